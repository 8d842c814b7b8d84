"""Streams at their limits: slow readers, old ones, too many; lines instead of events; long polls."""

import asyncio
import contextlib
import gc
import json
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from starlette.types import Message

from app.api.sse import Events
from app.api.streaming import Pace, StreamResponse, Subject
from app.errors import NotFound
from app.runs.callers import Caller
from app.runs.items import End, Framed, Item
from app.store.rows import Row
from tests.api.stage import (
    RANDOM_SESSION,
    Stage,
    frames,
    get,
    open_stage,
    problem,
    read_stream,
    scripted,
    until,
)
from tests.databases import fresh_database
from tests.store.seeds import TENANT

NDJSON = {"accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
async def tight(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    """A host with few slots, and little patience with readers that take nothing."""
    limits = {
        "max_per_session": 3,
        "max_per_key": 5,
        "send_timeout_s": 0.5,
        "heartbeat_s": 0.2,
        "buffer_bytes": 300_000,
    }
    async with fresh_database(postgres) as dsn, open_stage(scratch, dsn, stream=limits) as opened:
        yield opened


@asynccontextmanager
async def connected(stage: Stage) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own."""
    connection = await asyncpg.connect(stage.host.service.database.dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def grow(stage: Stage, session_id: str, count: int, size: int, **more: str) -> int:
    """Add rows to a session's log; give the newest seq."""
    kind, name = more.get("kind", "message"), more.get("type", "user")
    async with connected(stage) as connection:
        last: int = await connection.fetchval(
            "WITH s AS (UPDATE sessions SET last_seq = last_seq + $2 WHERE id = $1"
            "           RETURNING tenant_id, last_seq),"
            " j AS (INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)"
            "   SELECT tenant_id, $1, last_seq - $2 + n, $4, $5, $6,"
            """          '{"n":' || n || ',"x":"' || repeat('x', $3) || '"}'"""
            "   FROM s, generate_series(1, $2::int) n)"
            " SELECT last_seq FROM s",
            session_id,
            count,
            size,
            more.get("run_id"),
            kind,
            name,
        )
    return last


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]


def nobody_reads(stage: Stage) -> bool:
    service = stage.host.service
    return not service.hub._topics and service.stream_slots.open == 0


# -- lines ------------------------------------------------------------------------------------


async def test_lines_say_what_events_say(stage: Stage) -> None:
    hostile = '\n\n{"event":"end"}\r\n\u2028'
    run = await stage.run(scripted({"text": hostile}))
    for path in (f"/v1/runs/{run['id']}/stream", f"/v1/runs/{run['id']}/stream?envelope=1"):
        answer = await stage.client.get(path, headers=NDJSON)
        assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
        assert answer.headers["x-run-id"] == run["id"]
        assert answer.content.startswith(b"\n")
        assert answer.content.endswith(b"}\n")
        assert answer.content.count(b"\n") == 1 + len(answer.content.strip().split(b"\n"))
        read = [frame for frame in await read_stream(stage.client, path) if frame.event]
        assert lines_of(answer.text) == [
            {"event": frame.event}
            | ({"id": int(frame.id)} if frame.id else {})
            | {"data": frame.json()}
            for frame in read
        ]
    after = await stage.client.get(
        f"/v1/runs/{run['id']}/stream", headers={**NDJSON, "last-event-id": "4"}
    )
    assert [line.get("id") for line in lines_of(after.text)] == [
        *range(5, run["last_seq"] + 1),
        None,
    ]


async def test_a_post_may_ask_for_lines_too(stage: Stage) -> None:
    body = {
        "prompt": scripted({"blocks": [{"text": "abcdef"}], "chunk": 2, "delay": 0.2}),
        "options": {"include_partial_messages": True},
    }
    answer = await stage.client.post("/v1/runs", json=body, headers=NDJSON)
    lines = lines_of(answer.text)
    assert [line["event"] for line in lines][-1] == "end"
    assert {line["event"] for line in lines} == {"service", "message", "preview", "end"}
    assert all("id" not in line for line in lines if line["event"] in {"preview", "end"})


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "text/event-stream"),
        ("application/json", "text/event-stream"),
        ("text/event-stream, application/x-ndjson", "text/event-stream"),
        ("application/x-ndjson, text/event-stream", "application/x-ndjson"),
        ("application/json, application/x-ndjson", "application/x-ndjson"),
        ("application/x-ndjson;q=0.5, text/event-stream", "text/event-stream"),
        ("application/x-ndjson;q=0", "text/event-stream"),
        ("application/x-ndjson;q=zz", "application/x-ndjson"),
        ("Application/X-NDJSON; charset=utf-8", "application/x-ndjson"),
    ],
)
async def test_a_get_of_a_stream_always_streams_in_the_form_liked_best(
    stage: Stage, accept: str, kind: str
) -> None:
    run = await stage.run()
    answer = await stage.client.get(
        f"/v1/runs/{run['id']}/stream", headers={"accept": accept}, params={"after": "0"}
    )
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"


async def test_empty_lines_are_heartbeats(tight: Stage) -> None:
    session = await tight.session()
    path = f"/v1/sessions/{session['id']}/stream"
    async with asyncio.timeout(30), tight.client.stream("GET", path, headers=NDJSON) as answer:
        text = ""
        async for more in answer.aiter_text():
            text += more
            if text.endswith("}\n\n\n\n"):
                break
    assert [line["event"] for line in lines_of(text)] == ["service"]


async def test_an_envelope_names_the_run_of_each_message_and_leaves_the_rest(stage: Stage) -> None:
    run = await stage.run()
    path = f"/v1/sessions/{run['session_id']}"
    entries = (await stage.client.get(f"{path}/events")).json()["data"]
    async with stage.client.stream("GET", f"{path}/stream", params={"envelope": "1"}) as answer:
        read = []
        async for frame in frames(answer):
            read += [frame] if frame.event else []
            if len(read) == len(entries):
                break
    for frame, entry in zip(read, entries, strict=True):
        assert frame.id == str(entry["seq"])
        if entry["kind"] == "service":
            assert (frame.event, frame.json()) == ("service", entry["data"])
        else:
            assert frame.event == "entry"
            assert frame.json() == {
                "seq": entry["seq"],
                "run_id": run["id"],
                "message": entry["data"],
            }


# -- long polls -------------------------------------------------------------------------------


async def test_a_long_poll_answers_as_soon_as_something_is_there(stage: Stage) -> None:
    session = await stage.session()
    path = f"/v1/sessions/{session['id']}/events"
    began = time.monotonic()
    (created,) = (await stage.client.get(path, params={"wait": 20})).json()["data"]
    waiting = asyncio.ensure_future(
        stage.client.get(path, params={"after": created["seq"], "wait": 20})
    )
    waits_for_end = asyncio.ensure_future(
        stage.client.get(
            path, params={"after": created["seq"], "wait": 20, "types": ["run.finished"]}
        )
    )
    await until(lambda: stage.host.service.stream_slots.open == 2)
    await stage.client.post(f"/v1/sessions/{session['id']}/runs", json={"prompt": "hello"})
    first = (await waiting).json()["data"]
    (last,) = (await waits_for_end).json()["data"]
    assert first[0]["seq"] == created["seq"] + 1
    assert last["data"]["type"] == "run.finished"
    assert time.monotonic() - began < 15
    assert nobody_reads(stage)


async def test_a_long_poll_that_sees_nothing_gives_an_empty_page_in_time(stage: Stage) -> None:
    session = await stage.session()
    answer = await stage.client.get(
        f"/v1/sessions/{session['id']}/events", params={"after": 1, "wait": 1}
    )
    assert answer.json() == {"data": [], "has_more": False, "next_after": None}
    for wait in ("-1", "61", "x"):
        answer = await stage.client.get(
            f"/v1/sessions/{session['id']}/events", params={"wait": wait}
        )
        problem(answer, 422, "validation_failed")
    problem(
        await stage.client.get("/v1/sessions/none/events", params={"wait": 20}), 404, "not_found"
    )


# -- time -------------------------------------------------------------------------------------


async def test_heartbeats_go_on_while_a_replay_waits_for_the_database(stage: Stage) -> None:
    session = await stage.session()
    bodies: list[bytes] = []
    has_changed = asyncio.Event()

    async def send(message: Message) -> None:
        bodies.append(message.get("body", b""))
        has_changed.set()

    async def seen(body: bytes, count: int) -> None:
        while sum(body in sent for sent in bodies) < count:
            has_changed.clear()
            await has_changed.wait()

    async with connected(stage) as connection, asyncio.timeout(10):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE journal IN ACCESS EXCLUSIVE MODE")
        response = response_to(stage, session["id"], heartbeat_s=0.1)
        serving = asyncio.ensure_future(response({"type": "http", "method": "GET"}, never, send))
        await seen(b": hb\n\n", 3)
        assert not any(b"id: " in body for body in bodies)
        await transaction.rollback()
        await seen(b"id: 1\n", 1)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert nobody_reads(stage)


async def test_an_old_stream_is_ended_and_its_cursor_goes_on(scratch: Path, postgres: str) -> None:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, stream={"max_age_s": 0.4}) as stage,
        asyncio.timeout(10),
    ):
        session = await stage.session()
        path = f"/v1/sessions/{session['id']}/stream"
        *_, row, end = await read_stream(stage.client, path)
        assert (end.event, end.json()) == ("end", {"reason": "max_age", "last_seq": 1})
        newest = await grow(stage, session["id"], 3, 10)
        read = await read_stream(stage.client, path, headers={"last-event-id": str(row.id)})
        assert [frame.id for frame in read if frame.id] == [str(n) for n in range(2, newest + 1)]
        assert read[-1].json() == {"reason": "max_age", "last_seq": newest}
        await until(lambda: nobody_reads(stage))


# -- too many ---------------------------------------------------------------------------------


async def test_too_many_streams_are_refused_before_their_first_byte_and_slots_come_back(
    tight: Stage,
) -> None:
    first, second = await tight.session(), await tight.session()
    paths = [f"/v1/sessions/{s['id']}/stream" for s in (first, second)]
    async with contextlib.AsyncExitStack() as opened:

        async def hold(path: str) -> None:
            answer = await opened.enter_async_context(tight.client.stream("GET", path))
            assert answer.status_code == 200

        for _ in range(3):
            await hold(paths[0])
        refused = await tight.client.get(paths[0])
        problem(refused, 429, "rate_limited")
        assert int(refused.headers["retry-after"]) > 0
        for _ in range(2):
            await hold(paths[1])
        problem(await tight.client.get(paths[1]), 429, "rate_limited")
        waiting = await tight.client.get(
            f"/v1/sessions/{second['id']}/events", params={"after": 1, "wait": 20}
        )
        problem(waiting, 429, "rate_limited")
        # A run whose stream cannot be had is not started.
        for body, headers in (({"stream": True}, {}), ({}, NDJSON)):
            answer = await tight.client.post(
                "/v1/runs", json={"prompt": "hello", **body}, headers=headers
            )
            problem(answer, 429, "rate_limited")
        assert (await tight.client.get("/v1/runs")).json()["data"] == []
        _, key = await tight.tenant("another")
        other = await tight.client.get(paths[0], headers={"x-api-key": key})
        problem(other, 404, "not_found")
    await until(lambda: nobody_reads(tight))
    async with tight.client.stream("GET", paths[0]) as answer:
        assert answer.status_code == 200
    await until(lambda: nobody_reads(tight))


async def test_five_hundred_streams_that_come_and_go_leave_nothing_behind(stage: Stage) -> None:
    hub, session = stage.host.service.hub, await stage.session()
    where = httpx.URL(stage.base_url)
    path = f"/v1/sessions/{session['id']}/stream?previews=all".encode()
    await until(lambda: nobody_reads(stage))
    tasks = len(asyncio.all_tasks())

    async def open_and_close(n: int) -> None:
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(get(path, b"accept: application/x-ndjson" if n % 2 else b"x: y"))
        if n % 3:
            await reader.readuntil(b"session.created")
        elif n % 5:
            await reader.readuntil(b"\r\n\r\n")
        (writer.transport.abort if n % 4 == 0 else writer.close)()

    for start in range(0, 500, 20):
        await asyncio.gather(*(open_and_close(n) for n in range(start, start + 20)))
    await until(lambda: nobody_reads(stage) and not stage.host.server.server_state.tasks)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    gc.collect()
    assert hub.relayed == {}
    assert hub.elsewhere is not None
    assert hub.elsewhere._mirrors == {}  # type: ignore[attr-defined]
    await until(lambda: not stage.host.service.database.raw.in_use)


async def test_a_response_that_is_never_served_holds_nothing(stage: Stage) -> None:
    session = await stage.session()
    await until(lambda: nobody_reads(stage))
    for _ in range(50):
        response_to(stage, session["id"])
    assert nobody_reads(stage)
    gc.collect()
    assert nobody_reads(stage)


# -- too slow ---------------------------------------------------------------------------------


def response_to(
    stage: Stage,
    session_id: str,
    *,
    heartbeat_s: float = 5.0,
    send_timeout_s: float = 0.2,
    known: Sequence[Framed] = (),
) -> StreamResponse:
    """The response that a route gives for a session."""
    service = stage.host.service
    caller = Caller(TENANT, "key_1", allow_bypass=False)
    return StreamResponse(
        service.queries.follow_session(TENANT, session_id, after=0, previews="all"),
        Subject(session_id, None, 0),
        form=Events(),
        pace=Pace(heartbeat_s, send_timeout_s, 60.0),
        slot=lambda: service.stream_slots.hold(caller, session_id),
        known=known,
    )


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_head_and_known_rows_go_out_before_any_task_that_was_made_runs(stage: Stage) -> None:
    session = await stage.session()
    row = Row(1, None, "service", "session.created", "{}")
    went: list[Any] = []

    async def send(message: Message) -> None:
        went.append(message.get("body", message["type"]))

    async def other() -> None:
        went.append("other")

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(other())
            await response({"type": "http", "method": "GET"}, never, send)

    response = response_to(stage, session["id"], known=[Framed(row, b"known\n\n")])
    serving = asyncio.create_task(serve())
    await until(lambda: "other" in went)
    serving.cancel()
    await asyncio.wait([serving])
    assert went[0] == "http.response.start"
    assert went[1].endswith(b"known\n\n")
    assert went[2] == "other"


@pytest.mark.parametrize("is_broken", [False, True])
async def test_the_last_frames_go_out_with_the_end_of_the_response(*, is_broken: bool) -> None:
    went: list[Message] = []

    async def lists() -> AsyncGenerator[list[Item]]:
        yield [Framed(Row(1, None, "service", "session.created", "{}"), b"row\n\n")]
        if is_broken:
            raise NotFound("There is no such session.")
        yield [
            Framed(Row(2, None, "service", "run.finished", "{}"), b"last row\n\n"),
            End("run_finished"),
        ]

    async def send(message: Message) -> None:
        went.append(message)

    response = StreamResponse(
        lists(),
        Subject(RANDOM_SESSION, None, 0),
        form=Events(),
        pace=Pace(5.0, 0.2, 60.0),
        slot=contextlib.nullcontext,
    )
    await response({"type": "http", "method": "GET"}, never, send)
    bodies = [(message["body"], message["more_body"]) for message in went[1:]]
    assert [more for _, more in bodies] == [True, True, False]
    assert bodies[1][0] == b"row\n\n"
    last = bodies[2][0]
    if is_broken:
        assert last.startswith(b"event: problem\n")
    else:
        assert last.startswith(b"last row\n\nevent: end\n")


async def test_a_reader_that_takes_nothing_for_a_while_is_told_so_if_it_takes_that(
    stage: Stage,
) -> None:
    session = await stage.session()
    bodies: list[bytes] = []
    sends = 0

    async def send(message: Message) -> None:
        nonlocal sends
        if message["type"] == "http.response.body":
            sends += 1
            if sends == 2:  # the opening was taken, the first row is not
                await asyncio.Event().wait()
            bodies.append(message["body"])

    async with asyncio.timeout(30):
        await response_to(stage, session["id"])({"type": "http", "method": "GET"}, never, send)
    assert bodies[0].startswith(b"retry: ")
    assert bodies[1:] == [b'event: end\ndata: {"reason":"slow_reader","last_seq":0}\n\n', b""]
    assert nobody_reads(stage)


async def test_a_reader_that_never_takes_anything_again_is_let_go_all_the_same(
    stage: Stage,
) -> None:
    session = await stage.session()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    began = time.monotonic()
    async with asyncio.timeout(30):
        await response_to(stage, session["id"])({"type": "http", "method": "GET"}, never, send)
    assert time.monotonic() - began < 10
    assert nobody_reads(stage)


async def test_a_reader_that_takes_nothing_of_a_hundred_megabytes_costs_little_and_loses_nothing(
    tight: Stage,
) -> None:
    session = await tight.session()
    where = httpx.URL(tight.base_url)
    request = get(f"/v1/sessions/{session['id']}/stream".encode())
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.setblocking(False)  # noqa: FBT003 - the flag is the method's name
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (where.host, where.port))
        await loop.sock_sendall(sock, request)
        await until(lambda: tight.host.service.stream_slots.open == 1)
        before = resident_bytes()
        newest = 0
        for _ in range(10):
            newest = await grow(tight, session["id"], 10, 1_000_000)
            tight.host.service.hub.grew(TENANT, session["id"], newest)
        # What a stream still holds then: a page, its frames, what is joined for the socket.
        assert resident_bytes() - before < 40_000_000
        await until(lambda: nobody_reads(tight))
        assert (await tight.client.get("/healthz")).status_code == 200
        got = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                while more := await loop.sock_recv(sock, 1 << 20):
                    got += more
    whole = ids_of(got)
    assert whole == list(range(1, len(whole) + 1))
    assert len(whole) < newest
    path = f"/v1/sessions/{session['id']}/stream"
    async with asyncio.timeout(60):
        while not whole or whole[-1] != newest:  # a slow machine may be cut off again
            headers = {"last-event-id": str(whole[-1] if whole else 0)}
            async with tight.client.stream("GET", path, headers=headers) as answer:
                async for frame in frames(answer):
                    whole += [int(frame.id)] if frame.id else []
                    if frame.id == str(newest):
                        break
    assert whole == list(range(1, newest + 1))


def ids_of(raw_answer: bytes) -> list[int]:
    """Give the ids of the frames that came whole, out of a chunked answer."""
    _, _, chunks = raw_answer.partition(b"\r\n\r\n")
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size, 16) if size else 0
        body += rest[:length]
        chunks = rest[length + 2 :]
    whole = body.rpartition(b"\n\n")[0].split(b"\n\n")
    return [int(frame.split(b"\n")[0][4:]) for frame in whole if frame.startswith(b"id: ")]


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_a_slow_reader_that_goes_on_gets_every_row_though_its_buffer_was_too_small(
    tight: Stage,
) -> None:
    session = await tight.session()
    path = f"/v1/sessions/{session['id']}/stream"
    got: list[int] = []
    async with asyncio.timeout(30), tight.client.stream("GET", path) as answer:
        newest = 1
        async for frame in frames(answer):
            if not frame.id:
                continue  # a heartbeat: it may come while rows are made
            got.append(int(frame.id))
            if len(got) in {1, 20, 40}:
                newest = await grow(tight, session["id"], 30, 40_000)
                tight.host.service.hub.grew(TENANT, session["id"], newest)
            if got[-1] == newest == 91:
                break
    assert got == list(range(1, 92))


# -- pieces and ends --------------------------------------------------------------------------


@pytest.mark.parametrize(("coalesce_ms", "is_joined"), [(50, True), (0, False)])
async def test_deltas_are_joined_unless_they_are_wanted_raw(
    scratch: Path, postgres: str, coalesce_ms: int, *, is_joined: bool
) -> None:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, stream={"coalesce_ms": coalesce_ms}) as stage,
    ):
        text = "".join(f"{n} " for n in range(300))
        prompt = scripted({"blocks": [{"text": text}], "chunk": 4, "delay": 0.3})
        started = await stage.client.post("/v1/runs", json={"prompt": prompt})
        path = f"/v1/runs/{started.json()['run']['id']}/stream"
        read = await read_stream(stage.client, path, params={"previews": "text"})
        deltas = [f.json()["event"]["delta"]["text"] for f in read if f.event == "preview"]
        assert "".join(deltas) == text
        count = -(-len(text) // 4)
        assert len(deltas) < count / 4 if is_joined else len(deltas) == count


async def test_rows_that_trail_the_end_of_a_run_are_not_lost(stage: Stage) -> None:
    run = await stage.run()
    newest = await grow(
        stage, run["session_id"], 1, 5, run_id=run["id"], kind="message", type="system"
    )
    read = await read_stream(stage.client, f"/v1/runs/{run['id']}/stream")
    assert [int(frame.id) for frame in read if frame.id] == list(range(2, newest + 1))
    assert read[-1].json() == {
        "reason": "run_finished",
        "last_seq": newest,
        "run_id": run["id"],
    }


async def test_items_of_any_kind_are_written_in_whole_frames(stage: Stage) -> None:
    """What is sent together never parts a frame: a cut between sends is a cut between frames."""
    session = await stage.session()
    await grow(stage, session["id"], 20, 30_000)
    bodies: list[bytes] = []
    done = asyncio.Event()

    async def send(message: Message) -> None:
        bodies.append(message.get("body", b""))
        if b"id: 21\n" in bodies[-1]:
            done.set()

    async def receive() -> Message:
        await done.wait()
        return {"type": "http.disconnect"}

    async with asyncio.timeout(10):
        await response_to(stage, session["id"])({"type": "http", "method": "GET"}, receive, send)
    assert len(bodies) > 6
    assert all(body.endswith(b"\n\n") for body in bodies[1:])
    assert max(map(len, bodies)) < 64 * 1024 + 31_000
