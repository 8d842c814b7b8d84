"""Two hosts on one database: a session moves, a host dies, and nothing is lost or doubled."""

import asyncio
import os
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from pydantic import SecretStr

from app.agent.results import LOST_TEXT
from app.domain.tools import ToolResult
from app.store.engine import Database
from app.tools.tool import Tool, ToolContext, ToolInput, tool
from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, HostProcess, environment, host, host_process
from tests.runs.prompts import finished, messages, scripted, start
from tests.runs.sse import read_to_end
from tests.store.proxy import Proxy
from tests.store.seeds import opened, rows, until


async def check_session(database: Database, session_id: str) -> None:
    """What must hold of every session, whatever happened to it."""
    log = await rows(
        database,
        "SELECT seq, run_id, type, uuid FROM journal WHERE session_id = $1 ORDER BY seq",
        session_id,
    )
    assert [row["seq"] for row in log] == list(range(1, len(log) + 1))
    uuids = [row["uuid"] for row in log if row["uuid"]]
    assert len(set(uuids)) == len(uuids)
    ended = await rows(
        database, "SELECT id FROM runs WHERE session_id = $1 AND status = 'finished'", session_id
    )
    for run in ended:
        mine = [row["type"] for row in log if row["run_id"] == run["id"]]
        assert (mine.count("result"), mine.count("run.finished"), mine.count("run.queued")) == (
            1,
            1,
            1,
        )
        last = [kind for kind in mine if kind not in {"prompt_suggestion", "run.attempt"}][-2:]
        assert last == ["result", "run.finished"]
    (sums,) = await rows(
        database,
        "SELECT (SELECT sum(cost_usd) FROM ledger WHERE session_id = $1) AS ledger,"
        " (SELECT sum(cost_usd) FROM runs WHERE session_id = $1) AS runs,"
        " (SELECT cost_usd FROM sessions WHERE id = $1) AS session",
        session_id,
    )
    assert (sums["ledger"] or 0) == sums["runs"] == sums["session"]


def processes_with(words: str) -> list[int]:
    """Give the processes whose command holds these words."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                command = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
            if words in command:
                found.append(int(folder.name))
    return found


async def until_processes(words: str, *, exist: bool) -> None:
    async def is_so() -> bool:
        return bool(processes_with(words)) == exist

    await until(is_so)


def results_of(transcript: list[dict[str, Any]]) -> list[str]:
    """Give the contents of the tool results in a transcript."""
    return [
        str(block["content"])
        for message in transcript
        if message["type"] == "user" and isinstance(message["message"]["content"], list)
        for block in message["message"]["content"]
        if block["type"] == "tool_result"
    ]


async def events_of(client: httpx.AsyncClient, run: dict[str, Any]) -> list[str]:
    """Give the service events of a run."""
    answer = await client.get(
        f"/v1/sessions/{run['session_id']}/events", params={"run_id": run["id"], "limit": 1000}
    )
    return [e["data"]["type"] for e in answer.json()["data"] if e["kind"] == "service"]


@dataclass(slots=True)
class Slow:
    """A read-only tool whose first call never ends by itself."""

    calls: int = 0
    is_in: asyncio.Event = field(default_factory=asyncio.Event)

    def tool(self) -> Tool[ToolInput]:
        async def look(_: ToolInput, __: ToolContext) -> ToolResult:
            self.calls += 1
            if self.calls == 1:
                self.is_in.set()
                await asyncio.get_running_loop().create_future()
            return ToolResult("looked")

        make = tool(name="Slow", description="Looks.", input_model=ToolInput, read_only=True)
        return make(look)


# -- a session moves --------------------------------------------------------------------------


async def test_a_session_goes_on_from_another_host_with_its_whole_context(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        b = await stack.enter_async_context(host(make_settings()))
        a = await stack.enter_async_context(
            host_process(environment(make_settings()), tmp_path / "a.log")
        )
        write = {"tool": "Write", "input": {"file_path": "/workspace/n.txt", "content": "41\n"}}
        move = {"tool": "Bash", "input": {"command": "mkdir deep && cd deep"}}
        first = await start(
            a.client,
            scripted(write, move, {"text": "The number is 41."}),
            allowed_tools=["Write", "Bash"],
        )
        await finished(a.client, first["id"])
        assert await a.terminate() == 0

        look = {"tool": "Bash", "input": {"command": "pwd; cat ../n.txt"}}
        second = await start(
            b.client,
            scripted(look, {"text": "done"}, text="And now?"),
            session_id=first["session_id"],
            allowed_tools=["Bash"],
        )
        ended = await finished(b.client, second["id"])
        assert ended["result_subtype"] == "success"
        request = messages_api.bodies()[3]
        assert [message["role"] for message in request["messages"]] == [
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
        ]
        assert "The number is 41." in str(request["messages"][5])
        assert "And now?" in str(request["messages"][6])
        transcript = await messages(b.client, first["session_id"])
        assert results_of(transcript)[-1] == "/workspace/deep\n41"
        await check_session(database, first["session_id"])


async def test_prompts_at_once_on_two_hosts_run_one_after_the_other(
    make_settings: MakeSettings, database_url: str, messages_api: MessagesApi
) -> None:
    async with (
        opened(database_url) as database,
        host(make_settings()) as a,
        host(make_settings()) as b,
    ):
        session_id = (await a.client.post("/v1/sessions", json={})).json()["id"]
        runs = await asyncio.gather(
            *(
                start((a, b)[n % 2].client, scripted({"text": f"{n}"}), session_id=session_id)
                for n in range(20)
            )
        )
        ended = [await finished(a.client, run["id"]) for run in runs]
        assert {run["result_subtype"] for run in ended} == {"success"}
        log = await rows(
            database,
            "SELECT run_id, type FROM journal WHERE session_id = $1 ORDER BY seq",
            session_id,
        )
        queued = [row["run_id"] for row in log if row["type"] == "run.queued"]
        driven = [row["run_id"] for row in log if row["type"] not in {"run.queued", "session.created"}]  # fmt: skip
        in_order = [run_id for n, run_id in enumerate(driven) if driven[n - 1 : n] != [run_id]]
        assert sorted(queued) == sorted(run["id"] for run in runs)
        assert in_order == queued  # each run in one piece, in the order in which they came
        await check_session(database, session_id)
    spans = sorted((r.started, r.ended or 0.0) for r in messages_api.requests)
    assert len(spans) == 20
    for (_, ended_at), (began_at, _) in pairwise(spans):
        assert ended_at <= began_at
    assert [len(body["messages"]) for body in messages_api.bodies()] == list(range(1, 40, 2))


async def test_a_run_is_cancelled_from_another_host_and_the_session_lives_on(
    make_settings: MakeSettings, database_url: str, messages_api: MessagesApi
) -> None:
    async with (
        opened(database_url) as database,
        host(make_settings()) as a,
        host(make_settings()) as b,
    ):
        sleep = f"sleep 314.{secrets.randbelow(10**9):09}"
        command = f"echo begun; {sleep}"
        run = await start(
            a.client,
            scripted({"tool": "Bash", "input": {"command": command}}, {"text": "never"}),
            allowed_tools=["Bash"],
        )
        await until_processes(sleep, exist=True)
        answer = await b.client.post(f"/v1/runs/{run['id']}/cancel", params={"wait": 10})
        assert (answer.status_code, answer.json()["status"]) == (200, "finished")
        assert processes_with(sleep) == []
        ended = (await b.client.get(f"/v1/runs/{run['id']}")).json()
        assert (ended["result_subtype"], ended["end_reason"]) == (
            "error_during_execution",
            "cancelled",
        )
        again = await b.client.post(f"/v1/runs/{run['id']}/cancel")
        assert again.json()["already_finished"]
        following = await start(b.client, scripted({"text": "on"}), session_id=run["session_id"])
        assert (await finished(b.client, following["id"]))["result_subtype"] == "success"
        assert len(messages_api.requests) == 2
        await check_session(database, run["session_id"])


# -- a host dies ------------------------------------------------------------------------------


async def test_what_a_killed_host_was_at_is_finished_by_another_one(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str, tmp_path: Path
) -> None:
    settings = make_settings(engine={"lease_s": 2.0, "heartbeat_s": 0.5})
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host_process(environment(settings), tmp_path / "a.log"))
        api = await stack.enter_async_context(host(settings, "api"))
        sleep = {"tool": "Bash", "input": {"command": "echo x >> runs.txt; sleep 271.82"}}
        count = {"tool": "Bash", "input": {"command": "wc -l < runs.txt"}}
        in_tool = await start(
            a.client, scripted(sleep, count, {"text": "done"}), allowed_tools=["Bash"]
        )
        slow_answer = {"text": "x", "stall": 3, "times": 1}
        in_model = await start(a.client, scripted(slow_answer), model="claude-opus-5-5")
        await until_processes("sleep 271.82", exist=True)
        await messages_api.until(lambda: len(messages_api.requests) == 2)
        await a.kill()
        await until_processes("sleep 271.82", exist=False)  # the tool dies with its host

        b = await stack.enter_async_context(host(settings))
        streams = [
            asyncio.ensure_future(read_to_end(api.client, f"/v1/runs/{run['id']}/stream"))
            for run in (in_tool, in_model)
        ]
        for run in (in_tool, in_model):
            ended = await finished(b.client, run["id"])
            assert (ended["result_subtype"], ended["attempt"]) == ("success", 2)
            assert await events_of(b.client, run) == [
                "run.queued",
                "run.started",
                "run.attempt",
                "run.finished",
            ]
            await check_session(database, run["session_id"])
        lost, lines = results_of(await messages(b.client, in_tool["session_id"]))
        assert (lost, lines) == (LOST_TEXT, "1")  # it was not run again
        for read in await asyncio.gather(*streams):
            assert read[-1].event == "end"


async def test_a_read_only_call_of_a_lost_host_is_made_again(
    make_settings: MakeSettings, database_url: str
) -> None:
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.5})
    slow = Slow()
    async with (
        opened(database_url) as database,
        host(settings, extra_tools=[slow.tool()]) as a,
        host(settings, extra_tools=[slow.tool()]) as b,
    ):
        run = await start(
            a.client, scripted({"tool": "Slow"}, {"text": "done"}), allowed_tools=["Slow"]
        )
        await asyncio.wait_for(slow.is_in.wait(), 10)
        assert a.service.worker is not None
        a.service.worker.is_draining = True
        await a.service.worker.close()  # as a kill does: nothing is written, nothing let go
        ended = await finished(b.client, run["id"])
        assert (ended["result_subtype"], ended["attempt"], slow.calls) == ("success", 2, 2)
        assert results_of(await messages(b.client, run["session_id"])) == ["looked"]
        await check_session(database, run["session_id"])


# -- a host goes ------------------------------------------------------------------------------


async def test_a_host_that_is_stopped_hands_its_runs_over(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str, tmp_path: Path
) -> None:
    settings = make_settings(engine={"lease_s": 30.0, "heartbeat_s": 5.0, "drain_s": 1.5})
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host_process(environment(settings), tmp_path / "a.log"))
        b = await stack.enter_async_context(host(settings))
        short = {"tool": "Bash", "input": {"command": "sleep 0.90001; echo whole"}}
        at_boundary = await start(
            a.client, scripted(short, {"text": "done"}), allowed_tools=["Bash"]
        )
        never = {"text": "x", "stall": 3, "times": 1}
        cut_off = await start(a.client, scripted(never), model="claude-opus-5-5")
        await until_processes("sleep 0.90001", exist=True)
        await messages_api.until(lambda: len(messages_api.requests) == 2)
        reading = asyncio.ensure_future(read_to_end(a.client, f"/v1/runs/{cut_off['id']}/stream"))
        stopping = asyncio.ensure_future(a.terminate())
        assert (await reading)[-1].body["reason"] == "server_shutdown"
        async with asyncio.timeout(60):
            for run in (at_boundary, cut_off):
                ended = await finished(b.client, run["id"])
                assert (ended["result_subtype"], ended["attempt"]) == ("success", 2)
                assert "run.attempt" in await events_of(b.client, run)
                await check_session(database, run["session_id"])
        assert await stopping == 0
        assert results_of(await messages(b.client, at_boundary["session_id"])) == ["whole"]


async def test_a_host_that_is_stopped_is_not_ready_any_more(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    async with host_process(environment(make_settings()), tmp_path / "a.log") as a:
        run = await start(
            a.client,
            scripted({"tool": "Bash", "input": {"command": "sleep 2.00003"}}, {"text": "x"}),
            allowed_tools=["Bash"],
        )
        await until_processes("sleep 2.00003", exist=True)
        stopping = asyncio.ensure_future(a.terminate())

        async def is_draining() -> bool:
            answer = await a.client.get("/readyz")
            return (answer.status_code, answer.json()["status"]) == (503, "draining")

        await until(is_draining)
        assert (await a.client.get(f"/v1/runs/{run['id']}")).json()["status"] == "running"
        assert await stopping == 0


# -- the database goes ------------------------------------------------------------------------


async def end_connections(url: str) -> int:
    """End every connection to the database, as its restart does."""
    connection = await asyncpg.connect(url)
    try:
        return int(
            await connection.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    finally:
        await connection.close()


async def test_a_run_outlives_the_loss_of_all_connections_and_doubles_nothing(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    looks = 12
    async with host(make_settings()) as a:
        prompt = scripted(
            *[{"tool": "Glob", "input": {"pattern": "*"}, "delay": 0.05}] * looks,
            {"text": "done"},
        )
        run = await start(a.client, prompt)
        answers: list[int] = []
        for step in (3, 6, 9):

            async def has_come_to(step: int = step) -> bool:
                return len(messages_api.requests) >= step

            await until(has_come_to)
            assert await end_connections(database_url) > 0
            answers += [(await a.client.get(f"/v1/runs/{run['id']}")).status_code for _ in range(3)]
        assert set(answers) <= {200, 503}
        assert 200 in answers

        async def is_over() -> bool:
            answer = await a.client.get(f"/v1/runs/{run['id']}")
            return answer.status_code == 200 and answer.json()["status"] == "finished"

        await until(is_over)
        ended = await finished(a.client, run["id"])
        assert (ended["result_subtype"], ended["num_turns"]) == ("success", looks + 1)
    async with opened(database_url) as database:
        await check_session(database, run["session_id"])
        ((paid, of_attempt),) = await database.raw.fetch(
            "SELECT (SELECT count(*) FROM ledger), attempt FROM runs"
        )
        assert (len(messages_api.requests), paid, of_attempt) == (looks + 1, looks + 1, 1)


@pytest.mark.parametrize("lease_s", [30.0, 1.0])
async def test_an_outage_is_answered_by_503_and_the_run_goes_on_afterwards(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str, lease_s: float
) -> None:
    async with Proxy(database_url) as wire:
        settings = make_settings(
            database={"url": SecretStr(wire.url)},
            engine={"lease_s": lease_s, "heartbeat_s": lease_s / 4},
        )
        async with host(settings) as a:
            look = {"tool": "Glob", "input": {"pattern": "*"}}
            run = await start(a.client, scripted(look, {**look, "delay": 0.3}, {"text": "done"}))
            await messages_api.until(lambda: len(messages_api.requests) == 2)
            await wire.cut()
            await no_answers(a, run)
            await wire.is_called()
            async with opened(database_url) as database:
                await until(
                    lambda: database.raw.fetchval(
                        "SELECT lease_expires_at < clock_timestamp() OR $1 FROM sessions",
                        lease_s > 10,
                    )
                )
            await wire.mend()

            async def is_back() -> bool:
                return (await a.client.get("/readyz")).status_code == 200

            await until(is_back)
            ended = await finished(a.client, run["id"])
            assert ended["result_subtype"] == "success"
            if lease_s > 10:
                assert ended["attempt"] == 1
                assert len(messages_api.requests) == 3
    async with opened(database_url) as database:
        await check_session(database, run["session_id"])


async def no_answers(service: Host | HostProcess, run: dict[str, Any]) -> None:
    """Without a database every request gets a clear problem, and health stays what it is."""
    client = service.client
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()) == (503, {"status": "unavailable"})
    assert (await client.get("/healthz")).status_code == 200
    for answer in (
        await client.post("/v1/runs", json={"prompt": "x"}),
        await client.post(f"/v1/sessions/{run['session_id']}/runs", json={"prompt": "x"}),
        await client.post(f"/v1/runs/{run['id']}/cancel"),
        await client.post(f"/v1/sessions/{run['session_id']}/fork"),
        await client.get(f"/v1/runs/{run['id']}"),
        await client.get(f"/v1/sessions/{run['session_id']}/messages"),
        await client.get("/v1/sessions"),
        await client.get(f"/v1/runs/{run['id']}/stream"),
    ):
        assert answer.status_code == 503, (answer.url, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"]
        assert answer.json()["code"] == "unavailable"
