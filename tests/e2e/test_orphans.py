"""Subagents whose session nobody drives a run of: taken by a host, which lets them go again."""

from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_background_commands import follow_up, is_let_go, runs_of, told
from tests.e2e.test_background_subagents import Json, child_run, in_background
from tests.e2e.test_replicas import check_session
from tests.e2e.test_subagents import OPTIONS
from tests.hosts import environment, host, host_process
from tests.runs.prompts import bash, finished, messages, scripted, start
from tests.store.seeds import opened, rows, until


async def pending(client: httpx.AsyncClient, session_id: str) -> dict[str, str]:
    """Ids of the actions that wait, by run."""
    path = f"/v1/sessions/{session_id}/actions"
    found = (await client.get(path, params={"status": "pending"})).json()["data"]
    return {action["run_id"]: action["id"] for action in found}


async def allow(client: httpx.AsyncClient, action_id: str) -> None:
    answer = await client.post(f"/v1/actions/{action_id}/resolve", json={"behavior": "allow"})
    assert answer.status_code == 200, answer.text


@pytest.mark.requirement("loop:background-subagents-resume")
async def test_a_subagent_that_asks_beside_a_parked_run_is_answered_and_holds_no_host_afterwards(
    make_settings: MakeSettings, database_url: str
) -> None:
    settings = make_settings(engine={"lease_s": 30, "heartbeat_s": 1, "poll_s": 0.2})
    options: Json = {
        **OPTIONS,
        "allowed_tools": [],
        "actions": {"permissions": "ask", "hold_seconds": 0},
    }
    child = in_background(bash("echo child >> log"), {"text": "report"})
    steps = (child, bash("echo parent >> log"), {"text": "fine"}, {"text": "heard"})
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host(settings))
        run = await start(a.client, scripted(*steps), **options)
        session_id = run["session_id"]

        async def both_ask() -> bool:
            return len(await pending(a.client, session_id)) == 2

        await until(both_ask, within_s=15)
        b = await stack.enter_async_context(host(settings))
        await a.service.drain()

        async def asks_again() -> bool:
            own = await child_run(b.client, session_id)
            return (own["status"], own["attempt"]) == ("requires_action", 2)

        await until(asks_again, within_s=15)
        asked = await pending(b.client, session_id)
        own = await child_run(b.client, session_id)
        await allow(b.client, asked[own["id"]])
        assert (await finished(b.client, own["id"]))["result"]["text"] == "report"
        await until(lambda: is_let_go(database, session_id), within_s=10)
        (parked,) = await rows(database, "SELECT is_parked FROM runs WHERE id = $1", run["id"])
        assert parked["is_parked"]
        await allow(b.client, asked[run["id"]])
        ended = await finished(b.client, run["id"])
        assert ended["result_subtype"] == "success"
        assert [r["origin"] for r in await runs_of(b.client, session_id)] == ["api", "subagent"]
        transcript = await messages(b.client, session_id)
        assert [m["status"] for m in told(transcript, "task_notification")] == ["completed"]
        await check_session(database, session_id)


async def test_a_run_that_follows_and_cannot_be_read_ends_after_as_many_attempts_as_any(
    make_settings: MakeSettings, database_url: str
) -> None:
    settings = make_settings(engine={"lease_s": 1, "heartbeat_s": 0.3, "poll_s": 0.1})
    child = in_background({"text": "report", "delay": 2})
    async with opened(database_url) as database:
        async with host(settings) as a:
            run = await start(a.client, scripted(child, {"text": "fine"}), **OPTIONS)
            session_id = run["session_id"]
            await finished(a.client, run["id"])
            await database.raw.execute(  # as a version of the program that is yet to come
                """UPDATE runs SET options = '{"from": "elsewhere"}' WHERE id = $1""", run["id"]
            )
        async with host(settings):

            async def is_over() -> bool:
                found = await rows(database, "SELECT origin, status, is_untold FROM runs")
                return len(found) == 3 and all(
                    each["status"] == "finished" and not each["is_untold"] for each in found
                )

            await until(is_over, within_s=30)
            await until(lambda: is_let_go(database, session_id))
        ends = await rows(
            database, "SELECT origin, attempt, end_reason FROM runs ORDER BY created_at, id"
        )
        assert ends[-1] == {
            "origin": "task-notification",
            "attempt": 4,
            "end_reason": "worker_lost",
        }
        results = await rows(database, "SELECT run_id FROM journal WHERE type = 'result'")
        assert len(results) == len({each["run_id"] for each in results}) == 3


@pytest.mark.parametrize("dies", [False, True])
async def test_one_that_waits_for_a_person_in_a_kept_session_goes_on_with_another_host(
    make_settings: MakeSettings, database_url: str, tmp_path: Path, dies: bool
) -> None:
    """It keeps its host's place for as long as nobody answers, and no longer than the host is there."""
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.3, "poll_s": 0.1})
    options: Json = {
        **OPTIONS,
        "allowed_tools": [],
        "actions": {"permissions": "ask", "hold_seconds": 0},
    }
    child = in_background(bash("echo child >> log; wc -l < log"), {"text": "report"})
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        first = host_process(environment(settings), tmp_path / "a.log")
        a = await stack.enter_async_context(first)
        run = await start(a.client, scripted(child, {"text": "fine"}, {"text": "heard"}), **options)
        session_id = run["session_id"]
        await finished(a.client, run["id"])

        async def asks() -> bool:
            own = await child_run(a.client, session_id)
            return bool(own["status"] == "requires_action")

        await until(asks, within_s=15)
        b = await stack.enter_async_context(host(settings))
        if dies:
            await a.kill()
        else:
            assert await a.terminate() == 0

        async def asks_again() -> bool:
            own = await child_run(b.client, session_id)
            return (own["status"], own["attempt"]) == ("requires_action", 2)

        await until(asks_again, within_s=15)
        (action_id,) = (await pending(b.client, session_id)).values()
        await allow(b.client, action_id)
        followed = await follow_up(b.client, session_id, after=2)
        assert followed["result"]["text"] == "heard"
        own = await child_run(b.client, session_id)
        assert (own["end_reason"], own["result"]["text"]) == ("completed", "report")
        await until(lambda: is_let_go(database, session_id))
        await check_session(database, session_id)
