"""What people who host agents ran into, tried against real hosts. Named after the reports.

`ELSEWHERE` names the tests that show the reports which have none here.
"""

import ast
import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.agent.results import LOST_TEXT
from app.domain.messages import parse_message
from tests.conftest import MakeSettings
from tests.e2e.test_replicas import (
    check_session,
    events_of,
    processes_with,
    results_of,
    until_processes,
)
from tests.fakes.messages_api import MessagesApi
from tests.hosts import KEY, Host, HostProcess, environment, host, host_process
from tests.runs.prompts import bash, finished, messages, scripted, start
from tests.runs.sse import NOTHING_MORE, Frame, frames, journal_of, read_to_end
from tests.store.seeds import dice, opened, until

TESTS = Path(__file__).parent.parent
ELSEWHERE = {
    "P01": "e2e/test_readers.py::test_readers_cut_at_random_points_on_either_host_get_the_exact_journal",
    "P03": "e2e/test_replicas.py::test_what_a_killed_host_was_at_is_finished_by_another_one",
    "P06": "api/test_idempotency.py::test_the_same_key_at_the_same_instant_on_two_hosts_makes_one_run",
    "P15": "e2e/test_replicas.py::test_prompts_at_once_on_two_hosts_run_one_after_the_other",
    "P17": "store/test_sessions.py::test_a_session_is_busy_only_while_a_live_lease_is_held",
    "P36": "e2e/test_readers.py::test_a_run_is_streamed_from_another_host_while_it_goes_on",
    "P52": "e2e/test_readers.py::"
    "test_a_run_stream_holds_its_run_alone_and_a_session_stream_all_runs",
    "P56": "e2e/test_second_prompts.py::test_steer_goes_into_the_run_at_its_next_request",
}


@pytest.mark.parametrize("report", ELSEWHERE)
def test_a_report_that_is_shown_elsewhere_has_its_test_there(report: str) -> None:
    path, name = ELSEWHERE[report].split("::")
    tree = ast.parse((TESTS / path).read_bytes())
    assert name in {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}


async def listening(client: httpx.AsyncClient, run: dict[str, Any], until_seen: str) -> list[Frame]:
    """Read a run's stream until a frame holds some words, then hang up."""
    seen: list[Frame] = []
    async with aclosing(frames(client, f"/v1/runs/{run['id']}/stream")) as stream:
        async for frame in stream:
            seen.append(frame)
            if until_seen in frame.data:
                break
    return seen


# -- readers ----------------------------------------------------------------------------------


@pytest.mark.requirement("field:P02")
async def test_losing_the_reader_does_not_break_the_run(service: Host) -> None:
    body = {
        "prompt": scripted(bash("sleep 1; echo whole"), {"text": "done"}),
        "options": {"allowed_tools": ["Bash"]},
        "stream": True,
    }
    async with service.client.stream("POST", "/v1/runs", json=body) as answer:
        run_id = answer.headers["x-run-id"]
        async for line in answer.aiter_lines():
            if '"tool_use"' in line:
                break
    ended = await finished(service.client, run_id)
    assert (ended["result_subtype"], ended["end_reason"]) == ("success", "completed")
    told = (await service.client.get(f"/v1/runs/{run_id}/result")).json()
    assert (told["type"], told["result"]) == ("result", "done")
    assert results_of(await messages(service.client, ended["session_id"])) == ["whole"]


@pytest.mark.requirement("field:P50")
async def test_closing_a_tab_is_not_pressing_stop(service: Host, messages_api: MessagesApi) -> None:
    run = await start(service.client, scripted({"text": "x", "stall": 3}))
    await listening(service.client, run, '"init"')
    await messages_api.until(lambda: len(messages_api.requests) == 1)
    assert (await service.client.get(f"/v1/runs/{run['id']}")).json()["status"] == "running"
    assert messages_api.disconnected == 0
    answer = await service.client.post(f"/v1/runs/{run['id']}/cancel", params={"wait": 10})
    assert answer.json()["status"] == "finished"
    assert (await finished(service.client, run["id"]))["end_reason"] == "cancelled"


@pytest.mark.requirement("field:P26")
async def test_any_cursor_of_the_log_works_and_its_tail_is_whole(
    service: Host, database_url: str
) -> None:
    meta = (await service.client.get("/v1/meta")).json()
    assert meta["retention"] == {"log": "kept", "resume": "any cursor of the log works"}
    said = [{"text": "one"}, {"text": "two"}, {"tool": "Glob", "input": {"pattern": "*"}}]
    run = await start(service.client, scripted(said, {"text": "done"}))
    await finished(service.client, run["id"])
    async with opened(database_url) as database:
        await database.raw.execute("UPDATE journal SET at = at - interval '90 days'")
        journal = await journal_of(database, run["session_id"], run["id"])
    inside = next(f.id for f in journal if '"text":"one"' in f.data)  # its message has more blocks
    path = f"/v1/runs/{run['id']}/stream"
    *tail, end = await read_to_end(service.client, path, last_event_id=inside)
    assert end.body["reason"] == "run_finished"
    assert tail == [frame for frame in journal if (frame.id or 0) > (inside or 0)]
    told = [parse_message(frame.data) for frame in tail if frame.event == "message"]
    assert [message.type for message in told] == [
        *("assistant", "assistant", "user", "assistant", "result")
    ]


@pytest.mark.requirement("field:P27")
async def test_who_joins_in_the_middle_of_a_message_gets_the_text_before_it(
    make_settings: MakeSettings,
) -> None:
    async with host(make_settings()) as a, host(make_settings()) as b:
        text = "abcdefghijklmnopqrst"
        run = await start(a.client, scripted({"text": text, "chunk": 1, "chunk_delay": 0.15}))
        path = f"/v1/runs/{run['id']}/stream"
        async with aclosing(frames(a.client, path, previews="all")) as stream:
            async for frame in stream:
                if "text_delta" in frame.data:
                    break
        for read in await asyncio.gather(
            *(read_to_end(each.client, path, after=0, previews="all") for each in (a, b))
        ):
            events = [frame.body["event"] for frame in read if '"stream_event"' in frame.data]
            kinds = [event["type"] for event in events]
            assert kinds[:2] == ["message_start", "content_block_start"]
            assert kinds.count("message_start") == kinds.count("content_block_start") == 1
            pieces = [e["delta"]["text"] for e in events if e["type"] == "content_block_delta"]
            assert "".join(pieces) == text
            assert any(f.event == "message" and f'"text":"{text}"' in f.data for f in read)


@pytest.mark.requirement("field:P53")
async def test_one_call_of_curl_replays_and_follows(service: Host, database_url: str) -> None:
    run = await start(service.client, scripted({"text": "done", "delay": 1.0}))
    address = f"{service.base_url}/v1/runs/{run['id']}/stream?after=0"
    curl = await asyncio.create_subprocess_exec(
        *("curl", "-sN", "--max-time", "20", "-H", f"x-api-key: {KEY}", address),
        stdout=asyncio.subprocess.PIPE,
        env={"no_proxy": "*", "PATH": "/usr/bin:/bin"},
    )
    said, _ = await curl.communicate()
    assert curl.returncode == 0
    ids = [int(each) for each in re.findall(r"^id: (\d+)$", said.decode(), re.MULTILINE)]
    async with opened(database_url) as database:
        journal = await journal_of(database, run["session_id"], run["id"])
    assert ids == [frame.id for frame in journal]
    assert said.decode().rstrip().splitlines()[-2] == "event: end"


@pytest.mark.requirement("field:P41")
async def test_whoever_acts_on_the_result_is_never_told_that_the_session_is_busy(
    service: Host,
) -> None:
    first = await start(service.client, scripted({"text": "ok"}))
    path = f"/v1/sessions/{first['session_id']}/runs"
    await finished(service.client, first["id"])
    for _ in range(100):
        body = {"prompt": "again", "on_busy": "reject", "stream": True}
        async with service.client.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, await answer.aread()
            run_id = answer.headers["x-run-id"]
            async for line in answer.aiter_lines():
                if '"type":"result"' in line:
                    break
            seen = (await service.client.get(f"/v1/runs/{run_id}")).json()
            assert seen["status"] == "finished"


@contextlib.asynccontextmanager
async def impatient_proxy(upstream: str, idle_s: float) -> AsyncIterator[str]:
    """Pass HTTP on, and hang up when the upstream says nothing for a while."""
    port = httpx.URL(upstream).port
    cut = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_host, to_host = await asyncio.open_connection("127.0.0.1", port)
        to_host.write(await reader.readuntil(b"\r\n\r\n"))
        try:
            while data := await asyncio.wait_for(from_host.read(65536), idle_s):
                writer.write(data)
                await writer.drain()
        except TimeoutError:
            cut.set()
        finally:
            to_host.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert not cut.is_set(), "the proxy saw a silence"


@pytest.mark.requirement("field:P23")
async def test_a_quiet_stream_is_not_cut_by_a_proxy(make_settings: MakeSettings) -> None:
    settings = make_settings(stream={"heartbeat_s": 0.3})
    async with host(settings) as service, impatient_proxy(service.base_url, 1.5) as proxy:
        run = await start(
            service.client, scripted(bash("sleep 4"), {"text": "done"}), allowed_tools=["Bash"]
        )
        headers = {"x-api-key": KEY, "connection": "close"}
        async with httpx.AsyncClient(base_url=proxy, headers=headers, trust_env=False) as client:
            read = await read_to_end(client, f"/v1/runs/{run['id']}/stream")
        assert read[-1].body["reason"] == "run_finished"


# -- silence ----------------------------------------------------------------------------------


@pytest.mark.requirement("field:P12")
@pytest.mark.parametrize("silence", [{"delay": 60}, {"stall": 3}], ids=["first byte", "idle"])
async def test_a_model_that_falls_silent_ends_in_a_result(
    make_settings: MakeSettings, messages_api: MessagesApi, silence: dict[str, Any]
) -> None:
    model = {"first_byte_s": 0.5, "idle_s": 0.5, "max_retries": 1}
    settings = make_settings(model=model, stream={"heartbeat_s": 0.2})
    async with host(settings) as service:
        run = await start(service.client, scripted({"text": "x", **silence}))
        path = f"/v1/runs/{run['id']}/stream"
        async with asyncio.timeout(15), service.client.stream("GET", path) as answer:
            said = (await answer.aread()).decode()
        assert said.count(": hb\n") >= 2
        assert said.count('"type":"result"') == said.count("event: end") == 1
        assert said.count('"subtype":"api_retry"') == 1
        ended = await finished(service.client, run["id"])
        assert (ended["result_subtype"], ended["end_reason"]) == (
            "error_during_execution",
            "model_error",
        )
        assert len(messages_api.requests) == messages_api.disconnected == 2


@pytest.mark.requirement("field:P12")
async def test_a_deadline_ends_what_a_silent_model_would_hold_open(
    service: Host, messages_api: MessagesApi
) -> None:
    body = {"prompt": scripted({"text": "x", "delay": 60}), "deadline_seconds": 1, "wait": 15}
    run = (await service.client.post("/v1/runs", json=body)).json()["run"]
    assert (run["status"], run["end_reason"]) == ("finished", "deadline")
    await messages_api.until(lambda: messages_api.disconnected == 1)
    results = [
        m for m in await messages(service.client, run["session_id"]) if m["type"] == "result"
    ]
    assert [m["subtype"] for m in results] == ["error_during_execution"]


# -- stop -------------------------------------------------------------------------------------


@pytest.mark.requirement("field:P13")
async def test_stop_reaches_the_tool_its_children_and_the_model_from_another_host(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    async with (
        opened(database_url) as database,
        host(make_settings()) as a,
        host(make_settings()) as b,
    ):
        command = "sleep 306.13 & sleep 306.14"
        in_tool = await start(a.client, scripted(bash(command)), allowed_tools=["Bash"])
        await until_processes("sleep 306.14", exist=True)
        in_model = await start(a.client, scripted({"text": "x", "stall": 3}))
        await messages_api.until(lambda: len(messages_api.requests) == 2)
        for run in (in_tool, in_model):
            # Two seconds where the machine has time; what counts is what is left when it is answered.
            answer = await b.client.post(f"/v1/runs/{run['id']}/cancel", params={"wait": 10})
            assert (answer.status_code, answer.json()["status"]) == (200, "finished")
            again = await b.client.post(f"/v1/runs/{run['id']}/cancel")
            assert (again.status_code, again.json()["already_finished"]) == (200, True)
            assert (await events_of(b.client, run)).count("run.finished") == 1
            await check_session(database, run["session_id"])
        assert processes_with("sleep 306.1") == []
        await messages_api.until(lambda: messages_api.disconnected == 1)


# -- hosts that go ----------------------------------------------------------------------------

Hosts = Callable[[str], Awaitable[HostProcess]]


@pytest.fixture
async def begin(make_settings: MakeSettings, tmp_path: Path) -> AsyncIterator[Hosts]:
    """Start a host in a process of its own; all of them share a database and short leases."""
    settings = make_settings(engine={"lease_s": 2.0, "heartbeat_s": 0.5, "drain_s": 1.0})
    async with AsyncExitStack() as stack:

        async def begun(name: str) -> HostProcess:
            process = host_process(environment(settings), tmp_path / f"{name}.log")
            return await stack.enter_async_context(process)

        yield begun


@pytest.mark.requirement("field:P04")
async def test_a_polite_stop_hands_a_long_run_over_as_a_kill_does(
    begin: Hosts, database_url: str
) -> None:
    async with opened(database_url) as database:
        a, b = await begin("a"), await begin("b")
        run = await start(
            a.client,
            scripted(bash("echo x >> runs.txt; sleep 304.04"), {"text": "done"}),
            allowed_tools=["Bash"],
        )
        await until_processes("sleep 304.04", exist=True)
        assert await a.terminate() == 0
        assert processes_with("sleep 304.04") == []
        ended = await finished(b.client, run["id"])
        assert (ended["result_subtype"], ended["end_reason"]) == ("success", "completed")
        assert ended["attempt"] == 2
        assert results_of(await messages(b.client, run["session_id"])) == [LOST_TEXT]
        await check_session(database, run["session_id"])


@pytest.mark.requirement("field:P05")
async def test_a_run_that_was_accepted_survives_a_crash_right_after_the_answer(
    begin: Hosts, database_url: str
) -> None:
    async with opened(database_url) as database:
        a = await begin("a")
        first = await start(a.client, scripted({"text": "one"}))
        queued = await start(a.client, scripted({"text": "two"}), session_id=first["session_id"])
        await a.kill()
        b = await begin("b")
        for run in (first, queued):
            assert (await finished(b.client, run["id"]))["result_subtype"] == "success"
        await check_session(database, first["session_id"])


@pytest.mark.requirement("field:P14")
async def test_a_killed_host_leaves_no_orphans_and_its_sessions_get_one_owner_each(
    begin: Hosts, database_url: str
) -> None:
    async with opened(database_url) as database:
        a = await begin("a")
        command = "sleep 314.02 & sleep 314.01"
        runs = await asyncio.gather(
            *(
                start(a.client, scripted(bash(command), {"text": "done"}), allowed_tools=["Bash"])
                for _ in range(6)
            )
        )

        async def all_run() -> bool:
            return len(processes_with("sleep 314.01")) >= len(runs)

        await until(all_run)
        await a.kill()
        await until_processes("sleep 314.0", exist=False)
        again = await begin("again")
        for run in runs:
            ended = await finished(again.client, run["id"])
            assert (ended["result_subtype"], ended["attempt"]) == ("success", 2)
            await check_session(database, run["session_id"])
        assert processes_with("sleep 314.0") == []


@pytest.mark.requirement("field:P57")
async def test_a_reader_whose_replica_is_killed_goes_on_at_the_other_without_polling(
    begin: Hosts, database_url: str
) -> None:
    async with opened(database_url) as database:
        a, b = await begin("a"), await begin("b")
        look = {"tool": "Glob", "input": {"pattern": "*"}, "delay": 0.3}
        run = await start(a.client, scripted(*[look] * 6, {"text": "done"}))
        path = f"/v1/runs/{run['id']}/stream"
        seen: list[Frame] = []

        async def read_until_death() -> None:
            async with aclosing(frames(a.client, path)) as stream:
                async for frame in stream:
                    seen.append(frame)
                    if '"tool_result"' in frame.data and a.process.returncode is None:
                        await a.kill()

        with pytest.raises(httpx.TransportError):
            await read_until_death()
        cursor = seen[-1].id
        async with asyncio.timeout(20):
            seen += await read_to_end(b.client, path, last_event_id=cursor)
        assert seen.pop().body["reason"] == "run_finished"
        assert seen == await journal_of(database, run["session_id"], run["id"])


@pytest.mark.requirement("field:P44")
async def test_a_rolling_restart_under_load_loses_no_run_and_no_frame(
    begin: Hosts, database_url: str
) -> None:
    hosts = [await begin("a"), await begin("b")]
    steps = [bash("sleep 0.5"), {"text": "so far"}, {"tool": "Glob", "input": {"pattern": "*"}}]
    prompt = scripted(*[[steps[1], steps[0]], steps[2]] * 6, {"text": "done"})
    runs = await asyncio.gather(
        *(start(hosts[n % 2].client, prompt, allowed_tools=["Bash"]) for n in range(10))
    )
    ends: list[str] = []
    readers = [asyncio.create_task(follow(hosts, run, dice(n), ends)) for n, run in enumerate(runs)]
    for n in range(2):
        old = hosts[n]
        assert await old.terminate() == 0
        hosts[n] = await begin(f"new{n}")
    async with asyncio.timeout(60):
        read = await asyncio.gather(*readers)
    assert "server_shutdown" in ends
    moved = 0
    async with opened(database_url) as database:
        for run, seen in zip(runs, read, strict=True):
            ended = await finished(hosts[0].client, run["id"])
            assert (ended["result_subtype"], ended["num_turns"]) == ("success", 13)
            moved += ended["attempt"] > 1
            assert seen == await journal_of(database, run["session_id"], run["id"])
            await check_session(database, run["session_id"])
    assert moved > 0


async def follow(
    hosts: Sequence[HostProcess], run: dict[str, Any], chance: random.Random, ends: list[str]
) -> list[Frame]:
    """Read a run to its end, as a client does that comes back wherever a host serves."""
    path = f"/v1/runs/{run['id']}/stream"
    seen: list[Frame] = []
    while True:
        cursor = seen[-1].id if seen else None
        # A host that went while we read: others serve, and so does the cursor.
        with contextlib.suppress(httpx.TransportError):
            client = chance.choice(hosts).client
            async with aclosing(frames(client, path, last_event_id=cursor)) as stream:
                async for frame in stream:
                    if frame == NOTHING_MORE:
                        return seen
                    if frame.event == "end":
                        ends.append(frame.body["reason"])
                        if ends[-1] == "run_finished":
                            return seen
                        break
                    seen.append(frame)
        await asyncio.sleep(0.1)  # the pause that every client makes before it comes back
