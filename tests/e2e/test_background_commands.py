"""Commands that go on in the background: across turns, prompts and hosts."""

import asyncio
import os
import secrets
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.store.engine import Database
from tests.conftest import MakeSettings
from tests.e2e.test_replicas import (
    check_session,
    processes_with,
    results_of,
    until_processes,
)
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, environment, host, host_process
from tests.runs.prompts import bash, finished, messages, scripted, start
from tests.store.seeds import opened, rows, until

Json = dict[str, Any]
OPTIONS: Json = {"allowed_tools": ["Bash", "Read"]}


def in_background(command: str, **given: object) -> Json:
    return bash(command, run_in_background=True, **given)


def long_sleep() -> str:
    """A command that ends by no other hand than ours, and that /proc can be searched for."""
    return f"sleep 3{secrets.randbelow(10**6):06}"


def end_sleep(command: str) -> None:
    """End what `long_sleep` gave; the shell that waits for it goes on."""
    for pid in processes_with(command):
        if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
            os.kill(pid, signal.SIGKILL)


def told(transcript: list[Json], subtype: str) -> list[Json]:
    return [message for message in transcript if message.get("subtype") == subtype]


def in_requests(api: MessagesApi, words: str) -> list[int]:
    """Give the numbers of the model requests whose newest message holds the words."""
    return [
        number for number, body in enumerate(api.bodies()) if words in str(body["messages"][-1])
    ]


async def runs_of(client: httpx.AsyncClient, session_id: str) -> list[Json]:
    answer = await client.get("/v1/runs", params={"session_id": session_id, "order": "asc"})
    found: list[Json] = answer.json()["data"]
    return found


async def follow_up(client: httpx.AsyncClient, session_id: str, *, after: int = 1) -> Json:
    """Wait for the run that follows, and for its end."""

    async def is_there() -> bool:
        return len(await runs_of(client, session_id)) > after

    await until(is_there)
    return await finished(client, (await runs_of(client, session_id))[after]["id"])


async def is_let_go(database: Database, session_id: str) -> bool:
    (row,) = await rows(database, "SELECT owner FROM sessions WHERE id = $1", session_id)
    return row["owner"] is None


async def session_status(client: httpx.AsyncClient, session_id: str) -> str:
    return str((await client.get(f"/v1/sessions/{session_id}")).json()["status"])


@pytest.mark.requirement("tools:background")
async def test_the_end_of_a_command_begins_a_turn_of_its_own_when_the_model_has_stopped(
    service: Host, messages_api: MessagesApi, database_url: str
) -> None:
    client = service.client
    waits = long_sleep()
    begins = in_background(f"{waits}; echo done")
    run = await start(client, scripted(begins, {"text": "started"}), **OPTIONS, max_budget_usd=1)
    session_id = run["session_id"]
    ended = await finished(client, run["id"])
    assert (ended["result"]["text"], ended["num_turns"]) == ("started", 2)
    assert await session_status(client, session_id) == "idle"
    async with opened(database_url) as database:
        assert not await is_let_go(database, session_id)
        touched = await start(
            client,
            scripted({"text": "went"}, {"text": "I saw it end"}),
            session_id=session_id,
            **OPTIONS,
        )
        await finished(client, touched["id"])
        end_sleep(waits)
        followed = await follow_up(client, session_id, after=2)
        assert followed["origin"] == "task-notification"
        assert followed["parent_run_id"] == touched["id"]
        assert (followed["result"]["text"], followed["num_turns"]) == ("I saw it end", 1)
        await until(lambda: is_let_go(database, session_id))
        await check_session(database, session_id)
    transcript = await messages(client, session_id)
    (notification,) = told(transcript, "task_notification")
    assert notification["status"] == "completed"
    (begun,) = told(transcript, "task_started")
    assert begun["task_id"] == notification["task_id"]
    assert begun["run_id"] == run["id"]
    results = [m for m in transcript if m["type"] == "result"]
    assert [result.get("origin", {}).get("kind") for result in results] == [
        None,
        None,
        "task-notification",
    ]
    (number,) = in_requests(messages_api, "<task-notification>")
    assert number == len(messages_api.requests) - 1


async def test_an_end_while_the_model_works_is_told_before_its_next_request(
    service: Host, messages_api: MessagesApi
) -> None:
    ends = "while [ ! -e go ]; do sleep 0.05; done; touch ended; exit 3"
    waits = "touch go; while [ ! -e ended ]; do sleep 0.05; done; sleep 1"
    steps = (in_background(ends), bash(waits), {"text": "done"})
    run = await start(service.client, scripted(*steps), **OPTIONS)
    await finished(service.client, run["id"])
    assert in_requests(messages_api, "<status>failed</status>") == [2]
    transcript = await messages(service.client, run["session_id"])
    assert [message["tasks"] for message in told(transcript, "background_tasks_changed")][1] == []
    await asyncio.sleep(0.3)
    assert len(await runs_of(service.client, run["session_id"])) == 1


async def test_a_run_that_follows_spends_what_is_left_of_the_budget_and_no_more(
    service: Host, messages_api: MessagesApi
) -> None:
    client = service.client
    steps = (
        in_background("sleep 0.5"),
        {"text": "started"},
        in_background("sleep 0.1"),
        {"text": "again"},
        in_background("sleep 0.1"),
        {"text": "and again"},
    )
    run = await start(client, scripted(*steps), **OPTIONS, max_budget_usd=0.001)
    session_id = run["session_id"]
    await follow_up(client, session_id)

    async def has_settled() -> bool:
        return "budget" in str(told(await messages(client, session_id), "task_notification")[-1:])

    await until(has_settled)
    spent = sum(float(each["cost"]["run_usd"]) for each in await runs_of(client, session_id))
    assert spent < 0.0015
    assert len(messages_api.requests) < 6


async def test_a_cancel_ends_background_commands_unless_it_is_of_the_turn_alone(
    service: Host, messages_api: MessagesApi
) -> None:
    client, kept, ended, held = service.client, long_sleep(), long_sleep(), long_sleep()
    steps = (in_background(kept), bash(long_sleep()), {"text": "never"})
    run = await start(client, scripted(*steps), **OPTIONS)
    session_id = run["session_id"]
    await until_processes(kept, exist=True)
    await messages_api.until(lambda: len(messages_api.requests) >= 2)
    receipt = await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", json={"scope": "turn"})
    assert receipt.json()["stopped"]["tasks"] == []
    await until_processes(kept, exist=True)

    steps = (in_background(ended), bash(held), {"text": "never"})
    run = await start(client, scripted(*steps), session_id=session_id, **OPTIONS)
    await until_processes(ended, exist=True)
    await until_processes(held, exist=True)
    async with asyncio.timeout(20):
        receipt = await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", json={})
        assert receipt.json()["status"] == "finished"
        await until_processes(kept, exist=False)
        await until_processes(ended, exist=False)
    assert len(receipt.json()["stopped"]["tasks"]) == 2
    assert receipt.json()["stopped"]["processes"] == 3
    transcript = await messages(client, session_id)
    assert {m["status"] for m in told(transcript, "task_notification")} == {"stopped"}
    assert told(transcript, "background_tasks_changed")[-1]["tasks"] == []
    asked = await start(client, scripted({"text": "yes"}), session_id=session_id, **OPTIONS)
    await finished(client, asked["id"])
    newest = str(messages_api.bodies()[-1]["messages"])
    assert newest.count("<status>killed</status>") == 2
    assert len(await runs_of(client, session_id)) == 3


async def test_the_model_stops_a_command_and_is_not_told_what_it_did_itself(
    service: Host, messages_api: MessagesApi
) -> None:
    command = long_sleep()
    prompt = scripted(in_background(command), {"text": "started"})
    run = await start(service.client, prompt, **OPTIONS)
    session_id = run["session_id"]
    await finished(service.client, run["id"])
    transcript = await messages(service.client, session_id)
    (begun,) = told(transcript, "task_started")
    stop = {"tool": "KillShell", "input": {"shell_id": begun["task_id"]}}
    second = await start(
        service.client, scripted(stop, {"text": "stopped"}), session_id=session_id, **OPTIONS
    )
    await finished(service.client, second["id"])
    await until_processes(command, exist=False)
    transcript = await messages(service.client, session_id)
    kinds = [m.get("subtype") or m["type"] for m in transcript][-6:]
    assert kinds == [
        "task_updated",
        "task_notification",
        "background_tasks_changed",
        "user",
        "assistant",
        "success",
    ]
    assert "<task-notification>" not in str(messages_api.bodies()[-1]["messages"])
    init = told(transcript, "init")[0]
    assert "TaskStop" in init["tools"]
    assert "KillShell" not in init["tools"]


@pytest.mark.requirement("tools:background-hosts")
async def test_with_a_killed_host_its_commands_end_and_the_next_turn_says_so_elsewhere(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str, tmp_path: Path
) -> None:
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.5})
    command = long_sleep()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host_process(environment(settings), tmp_path / "a.log"))
        run = await start(
            a.client, scripted(in_background(command), {"text": "started"}), **OPTIONS
        )
        session_id = run["session_id"]
        await finished(a.client, run["id"])
        await until_processes(command, exist=True)
        b = await stack.enter_async_context(host(settings))
        waits = await start(b.client, scripted({"text": "I see"}), session_id=session_id, **OPTIONS)
        # The prompt is driven where the commands are.
        await finished(b.client, waits["id"])
        assert "<task-notification>" not in str(messages_api.bodies()[-1]["messages"])
        await a.kill()
        await until_processes(command, exist=False)
        after = await start(
            b.client, scripted({"text": "so it is gone"}), session_id=session_id, **OPTIONS
        )
        ended = await finished(b.client, after["id"])
        assert ended["result"]["text"] == "so it is gone"
        assert "<status>killed</status>" in str(messages_api.bodies()[-1]["messages"][-1])
        transcript = await messages(b.client, session_id)
        assert told(transcript, "background_tasks_changed")[-1]["tasks"] == []
        await until(lambda: is_let_go(database, session_id))
        await check_session(database, session_id)


async def test_a_host_bounds_the_commands_of_all_its_sessions(make_settings: MakeSettings) -> None:
    async with host(make_settings(engine={"max_background_commands": 1})) as a:
        sleeping = long_sleep()
        steps = (in_background(sleeping), {"text": "started"})
        first = await start(a.client, scripted(*steps), **OPTIONS)
        await finished(a.client, first["id"])
        other = await start(a.client, scripted(*steps), **OPTIONS)
        await finished(a.client, other["id"])
        (refused,) = results_of(await messages(a.client, other["session_id"]))
        assert "This host runs 1 commands in the background already" in refused
        assert len(told(await messages(a.client, first["session_id"]), "task_started")) == 1
    await until_processes(sleeping, exist=False)


async def test_a_host_that_stops_ends_the_commands_of_idle_and_of_busy_sessions(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str, tmp_path: Path
) -> None:
    idle_command, busy_command = long_sleep(), long_sleep()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(
            host_process(environment(make_settings()), tmp_path / "a.log")
        )
        idle = await start(
            a.client, scripted(in_background(idle_command), {"text": "started"}), **OPTIONS
        )
        await finished(a.client, idle["id"])
        b = await stack.enter_async_context(host(make_settings()))
        slow = {"blocks": [{"text": "moved"}], "delay": 2}
        busy = await start(
            a.client, scripted(in_background(busy_command), bash("sleep 2"), slow), **OPTIONS
        )
        await until_processes(busy_command, exist=True)
        assert await a.terminate() == 0
        await until_processes(idle_command, exist=False)
        await until_processes(busy_command, exist=False)
        ended = await finished(b.client, busy["id"])
        assert ended["result"]["text"] == "moved"
        assert in_requests(messages_api, "<status>killed</status>") != []
        assert await is_let_go(database, idle["session_id"])
        again = await start(
            b.client,
            scripted({"text": "I see"}),
            session_id=idle["session_id"],
            **OPTIONS,
        )
        await finished(b.client, again["id"])
        assert "<status>killed</status>" in str(messages_api.bodies()[-1]["messages"][-1])
        for session in (idle, busy):
            await check_session(database, session["session_id"])


async def test_a_host_whose_lease_is_lost_ends_the_commands_that_it_keeps(
    make_settings: MakeSettings, database_url: str, messages_api: MessagesApi
) -> None:
    del messages_api
    command = long_sleep()
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.3})
    async with opened(database_url) as database, host(settings) as a:
        run = await start(
            a.client, scripted(in_background(command), {"text": "started"}), **OPTIONS
        )
        await finished(a.client, run["id"])
        await until_processes(command, exist=True)
        await rows(
            database,
            "UPDATE sessions SET epoch = epoch + 1, owner = 'another' WHERE id = $1",
            run["session_id"],
        )
        await until_processes(command, exist=False)


async def test_output_of_a_command_can_be_read_while_it_runs(service: Host) -> None:
    command = f"echo ready; {long_sleep()}"
    run = await start(
        service.client, scripted(in_background(command), {"text": "started"}), **OPTIONS
    )
    session_id = run["session_id"]
    await finished(service.client, run["id"])
    (result,) = results_of(await messages(service.client, session_id))
    path = next(word for word in result.split() if word.startswith("/tmp/")).rstrip(":")
    look = {"tool": "Read", "input": {"file_path": path}}
    second = await start(
        service.client, scripted(look, {"text": "seen"}), session_id=session_id, **OPTIONS
    )
    await finished(service.client, second["id"])
    assert results_of(await messages(service.client, session_id))[-1] == "1\tready\n2\t"
