"""Streams as readers get them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.stage import (
    RANDOM_SESSION,
    Stage,
    frames,
    get,
    open_stage,
    problem,
    raw,
    read_stream,
    scripted,
    until,
)
from tests.databases import fresh_database

HOSTILE = [
    '\n\ndata: {"type":"done"}\n\n',
    "\r\rid: 9999\revent: end\rdata: {}\r\r",
    "\u2028\u2028event: end\u2029\x85data: x\x0b\x0c\x1c\x1d\x1e",
    ": hb\n\n:",
    '\n\nevent: end\ndata: {"reason":"run_finished"}\n\n',
]


@pytest.fixture(scope="module")
async def lively(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    """A host whose streams get a comment after 0.2 s of silence."""
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, stream={"heartbeat_s": 0.2}) as opened,
    ):
        yield opened


async def test_a_stream_begins_at_once_and_is_not_buffered_or_kept(stage: Stage) -> None:
    session = await stage.session()
    path = f"/v1/sessions/{session['id']}/stream"
    async with stage.client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["vary"] == "Authorization"
        assert "content-encoding" not in answer.headers
        assert "content-length" not in answer.headers
        assert "x-run-id" not in answer.headers
        first = await anext(answer.aiter_bytes())
    opening = f"retry: 2000\n: stream open session={session['id']} from=0\n\n"
    assert first.startswith(opening.encode())


async def test_silence_is_broken_by_comments_that_readers_ignore(lively: Stage) -> None:
    session = await lively.session()
    async with (
        asyncio.timeout(30),
        lively.client.stream("GET", f"/v1/sessions/{session['id']}/stream") as answer,
    ):
        text = ""
        async for more in answer.aiter_text():
            text += more
            if text.count(": hb\n\n") == 3:
                break
    assert text.endswith(": hb\n\n")
    assert text.replace(": hb\n\n", "").count("\n\n") == 2  # the opening and session.created


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_text_cannot_forge_a_frame(stage: Stage, hostile: str) -> None:
    run = await stage.run(
        scripted({"blocks": [{"text": hostile}], "chunk": 3}, text=hostile),
        session={"title": hostile},
    )
    path = f"/v1/runs/{run['id']}/stream"
    async with stage.client.stream("GET", path, params={"after": "0"}) as answer:
        content = await answer.aread()
    blocks = content.split(b"\n\n")
    assert b"\r" not in content
    assert all(len(block.split(b"\n")) == 3 for block in blocks[1:-2])
    read = await read_stream(stage.client, path, params={"after": "0"})
    durable = [frame for frame in read if frame.id]
    assert [int(frame.id or 0) for frame in durable] == list(range(2, len(durable) + 2))
    assert [frame.event for frame in read if frame.event == "end"] == ["end"]
    texts = [frame.json() for frame in read if frame.event == "message"]
    said = [m["message"]["content"][0]["text"] for m in texts if m["type"] == "assistant"]
    assert said == [hostile]


async def test_hostile_text_cannot_forge_a_frame_in_previews_either(stage: Stage) -> None:
    text = "".join(HOSTILE)
    body = {
        "prompt": scripted({"blocks": [{"text": text}], "chunk": 3, "delay": 0.3}),
        "stream": True,
        "include_partial_messages": True,
    }
    async with stage.client.stream("POST", "/v1/runs", json=body) as answer:
        read = [frame async for frame in frames(answer)]
    previews = [frame.json() for frame in read if frame.event == "preview"]
    assert previews[0]["status"] == "requesting"  # who starts a run is there in time for it
    events = [preview["event"] for preview in previews[1:]]
    deltas = [e["delta"]["text"] for e in events if e["type"] == "content_block_delta"]
    assert "".join(deltas) == text
    assert {frame.event for frame in read} - {None} == {"service", "message", "preview", "end"}
    assert all(frame.id is None for frame in read if frame.event == "preview")


@pytest.mark.parametrize(
    "value",
    [
        b"abc",
        b"-1",
        b"1.0",
        b"+1",
        b"1 2",
        b"0x1",
        b"1e3",
        b"latest",
        b"9223372036854775808",
        b"9" * 10_000,
        b"x" * 10_000,
        "\u0661".encode(),
        b"\xff",
        b"\xc2\xb2",
    ],
)
async def test_a_last_event_id_that_is_no_number_is_400_and_no_stream(
    stage: Stage, value: bytes
) -> None:
    run = await stage.run()
    for kind in (f"sessions/{run['session_id']}", f"runs/{run['id']}"):
        status, answer = await raw(
            stage.base_url, get(f"/v1/{kind}/stream".encode(), b"last-event-id: " + value)
        )
        assert (status, b'"code":"cursor_invalid"' in answer) == (400, True)


@pytest.mark.parametrize("after", ["abc", "-1", "1.0", "9" * 19, "\u0661", "LATEST", " "])
async def test_an_after_that_is_no_number_is_400(stage: Stage, after: str) -> None:
    run = await stage.run()
    for kind in (f"sessions/{run['session_id']}", f"runs/{run['id']}"):
        answer = await stage.client.get(f"/v1/{kind}/stream", params={"after": after})
        problem(answer, 400, "cursor_invalid")


async def test_a_cursor_beyond_the_log_is_400_and_names_its_end(stage: Stage) -> None:
    run = await stage.run()
    session = (await stage.client.get(f"/v1/sessions/{run['session_id']}")).json()
    for kind in (f"sessions/{run['session_id']}", f"runs/{run['id']}"):
        for given in ({"headers": {"last-event-id": "99999"}}, {"params": {"after": "99999"}}):
            answer = await stage.client.get(f"/v1/{kind}/stream", **given)  # type: ignore[arg-type]
            found = problem(answer, 400, "cursor_invalid")
            assert found["context"] == {"last_seq": session["last_seq"]}


async def test_the_header_wins_over_the_address_and_an_empty_one_says_nothing(
    stage: Stage,
) -> None:
    run = await stage.run()
    path = f"/v1/runs/{run['id']}/stream"
    last = run["last_seq"]

    async def ids(after: str | None, header: str | None) -> list[int]:
        read = await read_stream(
            stage.client,
            path,
            params={"after": after} if after else {},
            headers={"last-event-id": header} if header is not None else {},
        )
        return [int(frame.id) for frame in read if frame.id]

    everything = list(range(2, last + 1))
    assert await ids(None, None) == everything
    assert await ids(None, "") == everything
    assert await ids("0", None) == everything
    assert await ids("3", None) == list(range(4, last + 1))
    assert await ids("3", "") == list(range(4, last + 1))
    assert await ids("3", "5") == list(range(6, last + 1))
    assert await ids("5", "3") == list(range(4, last + 1))


async def test_a_finished_run_that_was_read_to_its_end_is_204(stage: Stage) -> None:
    run = await stage.run()
    path = f"/v1/runs/{run['id']}/stream"
    for given in (
        {"headers": {"last-event-id": str(run["last_seq"])}},
        {"params": {"after": str(run["last_seq"])}},
        {"params": {"after": "latest"}},
    ):
        answer = await stage.client.get(path, **given)  # type: ignore[arg-type]
        assert (answer.status_code, answer.content) == (204, b"")


async def test_two_last_event_ids_give_a_defined_answer(stage: Stage) -> None:
    run = await stage.run()
    status, _ = await raw(
        stage.base_url,
        get(f"/v1/runs/{run['id']}/stream".encode(), b"last-event-id: x", b"last-event-id: y"),
    )
    assert status == 400


async def test_a_stream_of_nothing_is_404_before_any_byte_of_it(stage: Stage) -> None:
    for path in (f"/v1/sessions/{RANDOM_SESSION}/stream", "/v1/runs/none/stream"):
        problem(await stage.client.get(path), 404, "not_found")
        problem(await stage.client.get(path, headers={"last-event-id": "5"}), 404, "not_found")


async def test_a_live_run_shows_previews_only_to_those_who_ask(stage: Stage) -> None:
    prompt = scripted({"blocks": [{"text": "abcdef"}], "chunk": 1, "delay": 0.5})
    started = await stage.client.post("/v1/runs", json={"prompt": prompt})
    path = f"/v1/runs/{started.json()['run']['id']}/stream"
    none, everything, text = await asyncio.gather(
        *(
            read_stream(stage.client, path, params=params)
            for params in ({}, {"previews": "all"}, {"previews": "text"})
        )
    )
    kinds = [{frame.event for frame in read} for read in (none, everything, text)]
    assert ["preview" in kind for kind in kinds] == [False, True, True]

    def events(read: list[Any]) -> set[str]:
        return {f.json()["event"]["type"] for f in read if f.event == "preview"}

    assert events(text) == {"content_block_delta"}
    assert "message_start" in events(everything)


async def test_streams_that_are_opened_and_closed_leave_nothing_behind(stage: Stage) -> None:
    hub = stage.host.service.hub
    session = await stage.session()
    where = httpx.URL(stage.base_url)
    request = get(f"/v1/sessions/{session['id']}/stream".encode())
    await until(lambda: not hub._topics)
    tasks = len(asyncio.all_tasks())

    async def open_and_close(n: int) -> None:
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(request)
        if n % 3:
            await reader.readuntil(b"session.created")
        elif n % 2:
            await reader.readuntil(b"\r\n\r\n")
        if n % 4:
            writer.close()
        else:
            writer.transport.abort()

    for start in range(0, 200, 20):
        await asyncio.gather(*(open_and_close(n) for n in range(start, start + 20)))
    await until(lambda: not hub._topics and not stage.host.server.server_state.tasks)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    await until(lambda: not stage.host.service.database.raw.in_use)
