"""Previews over HTTP: whoever joins, on whatever host and in whatever middle, misses nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import orjson

from app.store.bus import CHANNEL
from tests.api.stage import Frame, frames
from tests.conftest import MakeSettings
from tests.hosts import host
from tests.runs.pieces import Screen
from tests.runs.prompts import finished, messages, scripted, start
from tests.store.seeds import until

TEXT = "".join(f'{n} \N{GRINNING FACE}"\\\n' for n in range(400))


SELDOM = {"poll_s": 20.0}
"""The poll that heals lost words may find a message's rows before its last pieces come."""


def slow(text: str = TEXT, *, chunk: int = 25) -> str:
    """A prompt whose answer takes about a second."""
    return scripted({"blocks": [{"text": text}], "chunk": chunk, "chunk_delay": 0.008})


@asynccontextmanager
async def opened_stream(
    client: httpx.AsyncClient, path: str, **params: str
) -> AsyncIterator[AsyncIterator[Frame]]:
    async with client.stream("GET", path, params=params) as answer:
        assert answer.status_code == 200, await answer.aread()
        yield frames(answer)


async def watch(client: httpx.AsyncClient, run: dict[str, Any], **params: str) -> list[Frame]:
    """Read a run to its end, from now on."""
    path = f"/v1/runs/{run['id']}/stream"
    async with opened_stream(client, path, **{"previews": "all", **params}) as stream:
        return [frame async for frame in stream]


def screen_of(read: list[Frame]) -> Screen:
    screen = Screen()
    for frame in read:
        if frame.event == "preview":
            assert frame.id is None
            screen.show_body(frame.json())
    return screen


def order(read: list[Frame]) -> list[str]:
    """Give what came, in order, each kind once in a row."""
    kinds: list[str] = []
    for frame in read:
        if frame.comment == "snapshot":
            kinds.append("snapshot")
        elif frame.event == "preview":
            kinds.append("preview")
        elif frame.event == "message":
            kinds.append(str(frame.json()["type"]))
    return [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]


@asynccontextmanager
async def eavesdropping(dsn: str) -> AsyncIterator[list[str]]:
    """Hear all that hosts say to each other."""
    heard: list[str] = []
    connection = await asyncpg.connect(dsn)
    try:
        await connection.add_listener(CHANNEL, lambda *told: heard.append(str(told[3])))
        yield heard
    finally:
        await connection.close()


def parts_in(payloads: list[str]) -> int:
    words = [word for payload in payloads for word in orjson.loads(payload)[1]]
    return sum(word[0] == "part" for word in words)


async def test_readers_on_both_hosts_see_the_same_text_grow_and_only_those_who_ask_cost_anything(
    make_settings: MakeSettings, database_url: str
) -> None:
    async with (
        eavesdropping(database_url) as heard,
        host(make_settings(engine=SELDOM)) as a,
        host(make_settings(engine=SELDOM)) as b,
    ):
        alone = await start(a.client, slow())
        here, plain = await asyncio.gather(
            watch(a.client, alone), watch(b.client, alone, previews="none")
        )
        assert parts_in(heard) == 0
        assert order(plain)[-1] == "result"

        shared = await start(a.client, slow())
        async with asyncio.timeout(20):
            here, there, text = await asyncio.gather(
                watch(a.client, shared),
                watch(b.client, shared),
                watch(b.client, shared, previews="text"),
            )
        assert parts_in(heard) > 3
        assert all(len(payload.encode()) < 8000 for payload in heard)
        for read in (here, there):
            (text_seen,) = screen_of(read).texts.values()
            assert text_seen == TEXT
            kinds = [kind for kind in order(read) if kind != "snapshot"]
            assert kinds == ["system", "user", "preview", "assistant", "result"]
        deltas = [f.json()["event"]["delta"]["text"] for f in text if f.event == "preview"]
        assert "".join(deltas) == TEXT
        assert 3 < len(deltas) < 2 * len(TEXT) // 25
        assert b.service.worker is not None
        assert b.service.worker.running == 0


async def test_a_reader_that_joins_in_the_middle_gets_a_snapshot_on_either_host(
    make_settings: MakeSettings,
) -> None:
    async with host(make_settings(engine=SELDOM)) as a, host(make_settings(engine=SELDOM)) as b:
        run = await start(a.client, slow())
        path = f"/v1/runs/{run['id']}/stream"
        async with asyncio.timeout(20):
            async with opened_stream(a.client, path, previews="text") as first:
                seen = 0
                async for frame in first:
                    seen += frame.event == "preview"
                    if seen == 3:
                        break
            here, there, again = await asyncio.gather(
                watch(a.client, run), watch(b.client, run), watch(b.client, run)
            )
        for read in (here, there, again):
            kinds = order(read)
            assert kinds == ["system", "user", "snapshot", "preview", "assistant", "result"]
            (text,) = screen_of(read).texts.values()
            assert text == TEXT
            after = next(n for n, frame in enumerate(read) if frame.comment == "snapshot")
            events = [frame.json()["event"]["type"] for frame in read[after + 1 : after + 4]]
            assert events == ["message_start", "content_block_start", "content_block_delta"]


async def test_a_reader_that_comes_back_on_another_host_in_the_middle_holds_the_whole_text(
    make_settings: MakeSettings,
) -> None:
    """The cut lies between the start of a block and its last deltas (field report P27)."""
    async with host(make_settings(engine=SELDOM)) as a, host(make_settings(engine=SELDOM)) as b:
        run = await start(a.client, slow())
        path = f"/v1/runs/{run['id']}/stream"
        read: list[Frame] = []
        async with asyncio.timeout(20):
            async with opened_stream(a.client, path, previews="all") as stream:
                async for frame in stream:
                    read.append(frame)
                    if frame.event == "preview" and "text_delta" in frame.data:
                        break
            cursor = max(int(frame.id) for frame in read if frame.id)
            rest = await watch(b.client, run, after=str(cursor))
        assert [int(f.id) for f in [*read, *rest] if f.id] == list(range(2, run_end(rest) + 1))
        (text,) = screen_of(rest).texts.values()
        assert text == TEXT
        said = [m for m in await messages(a.client, run["session_id"]) if m["type"] == "assistant"]
        assert said[0]["message"]["content"][0]["text"] == TEXT


def run_end(read: list[Frame]) -> int:
    assert read[-1].event == "end"
    last: int = read[-1].json()["last_seq"]
    return last


async def test_a_retried_answer_is_void_and_the_next_one_whole_on_either_host(
    make_settings: MakeSettings,
) -> None:
    broken = {
        "blocks": [{"text": TEXT}],
        "chunk": 25,
        "chunk_delay": 0.004,
        "cut": 60,
        "times": 1,
        "delay": 0.3,
    }
    async with host(make_settings(engine=SELDOM)) as a, host(make_settings(engine=SELDOM)) as b:
        run = await start(a.client, scripted(broken))
        async with asyncio.timeout(30):
            both = await asyncio.gather(watch(a.client, run), watch(b.client, run))
        for read in both:
            screen = screen_of(read)
            first, second = screen.texts.values()
            assert TEXT.startswith(first)
            assert 0 < len(first) < len(TEXT)
            assert second == TEXT
            assert len(screen.aborted) == 1
            assert screen.aborted[0] == next(iter(screen.texts))[0]


async def test_a_session_stream_elsewhere_sees_the_texts_of_all_its_runs(
    make_settings: MakeSettings,
) -> None:
    async with host(make_settings(engine=SELDOM)) as a, host(make_settings(engine=SELDOM)) as b:
        session_id = (await a.client.post("/v1/sessions", json={})).json()["id"]
        seen: list[Frame] = []

        async def read() -> None:
            path = f"/v1/sessions/{session_id}/stream"
            async with opened_stream(b.client, path, previews="all") as stream:
                async for frame in stream:
                    seen.append(frame)  # noqa: PERF401 - others look at it as it grows

        reading = asyncio.ensure_future(read())
        try:
            async with asyncio.timeout(20):
                for n in range(2):
                    prompt = slow(f"{n}" * 500)
                    run = await start(a.client, prompt, session_id=session_id)
                    await finished(a.client, run["id"])

                async def has_both_ends() -> bool:
                    return sum("run.finished" in frame.data for frame in seen) == 2

                await until(has_both_ends)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert list(screen_of(seen).texts.values()) == ["0" * 500, "1" * 500]

        async def is_quiet() -> bool:
            return a.service.hub.relayed == {} and b.service.hub._topics == {}

        await until(is_quiet)


async def test_with_the_relay_off_other_hosts_show_no_previews_and_every_row(
    make_settings: MakeSettings, database_url: str
) -> None:
    settings = make_settings(stream={"preview_relay": "off"})
    async with eavesdropping(database_url) as heard, host(settings) as a, host(settings) as b:
        run = await start(a.client, slow("x" * 500))
        here, there = await asyncio.gather(watch(a.client, run), watch(b.client, run))
        assert list(screen_of(here).texts.values()) == ["x" * 500]
        assert order(there) == ["system", "user", "assistant", "result"]
        assert [f.id for f in there if f.id] == [f.id for f in here if f.id]
        words = [word[0] for payload in heard for word in orjson.loads(payload)[1]]
        assert {"want", "part"}.isdisjoint(words)
