"""Readers of streams over HTTP, on two hosts, while runs go on."""

import asyncio
import random
from contextlib import AsyncExitStack, aclosing
from typing import Any

import httpx
import pytest

from app.store.engine import Database
from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, host
from tests.runs.prompts import finished, scripted, start
from tests.runs.sse import NOTHING_MORE, Frame, frames, journal_of, read_to_end
from tests.store.seeds import dice, opened, until

ROUNDS = 15
"""Of tools in a long run: three messages each, and one text at the end."""


def long_prompt() -> str:
    look = [
        {"text": "I look."},
        {"tool": "Glob", "input": {"pattern": "*"}},
    ]
    steps: list[Any] = [{"blocks": look, "chunk": 2, "chunk_delay": 0.002}] * ROUNDS
    return scripted(*steps, {"text": "done"})


async def read_with_cuts(
    hosts: list[Host], path: str, chance: random.Random, *, ends_with: str
) -> list[Frame]:
    """Read a stream to its end, hanging up at random points and coming back on a random host."""
    got: list[Frame] = []
    cursor: int | None = None
    while True:
        patience = chance.randint(0, 12)
        client = chance.choice(hosts).client
        previews = chance.choice(("none", "all"))
        async with aclosing(
            frames(client, path, last_event_id=cursor, previews=previews)
        ) as stream:
            async for frame in stream:
                if frame.event == "end" or frame == NOTHING_MORE:
                    return got
                if frame.id is not None:
                    got.append(frame)
                    cursor = frame.id
                if ends_with in frame.data:
                    return got
                if patience == 0:
                    break
                patience -= 1


@pytest.mark.parametrize("buffer_frames", [2, 1000])
async def test_readers_cut_at_random_points_on_either_host_get_the_exact_journal(
    make_settings: MakeSettings, database_url: str, buffer_frames: int
) -> None:
    engine = {"lease_s": 60.0}  # a slow machine shall not make it change hands
    settings = make_settings(stream={"buffer_frames": buffer_frames}, engine=engine)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        hosts = [await stack.enter_async_context(host(settings)) for _ in range(2)]
        stack.push_async_callback(nobody_reads, hosts)
        run = await start(hosts[0].client, long_prompt())
        run_stream = f"/v1/runs/{run['id']}/stream"
        session_stream = f"/v1/sessions/{run['session_id']}/stream"
        async with asyncio.timeout(40):
            got = await asyncio.gather(
                *(
                    read_with_cuts(hosts, run_stream, dice(n), ends_with="run.finished")
                    for n in range(6)
                ),
                *(
                    read_with_cuts(hosts, session_stream, dice(-n), ends_with="run.finished")
                    for n in range(1, 5)
                ),
            )
        of_run = await journal_of(database, run["session_id"], run["id"])
        of_session = await journal_of(database, run["session_id"])
        assert len(of_run) == 1 + 1 + 2 + 3 * ROUNDS + 1 + 2 + ROUNDS // 10  # `usage.snapshot`
        assert got == [of_run] * 6 + [of_session] * 4


async def nobody_reads(hosts: list[Host]) -> None:
    """Readers that hung up leave nothing behind."""
    for each in hosts:

        async def is_empty(each: Host = each) -> bool:
            return each.service.hub._topics == {}

        await until(is_empty)


async def test_a_run_is_streamed_from_another_host_while_it_goes_on(
    make_settings: MakeSettings, database_url: str, messages_api: MessagesApi
) -> None:
    async with (
        opened(database_url) as database,
        host(make_settings()) as a,
        host(make_settings()) as b,
    ):
        prompt = scripted({"tool": "Glob", "input": {"pattern": "*"}}, {"text": "x", "stall": 3})
        run = await start(a.client, prompt)
        seen: list[Frame] = []
        async with (
            asyncio.timeout(10),
            aclosing(frames(b.client, f"/v1/runs/{run['id']}/stream")) as stream,
        ):
            async for frame in stream:
                seen.append(frame)
                if '"tool_result"' in frame.data:
                    break
            await messages_api.until(lambda: len(messages_api.requests) == 2)
            assert (await b.client.get(f"/v1/runs/{run['id']}")).json()["status"] == "running"
            assert b.service.worker is not None
            assert b.service.worker.running == 0
            await b.client.post(f"/v1/runs/{run['id']}/cancel")
            seen += [frame async for frame in stream]
        assert seen[-1].event == "end"
        assert seen[-1].body == {
            "reason": "run_finished",
            "last_seq": seen[-2].id,
            "run_id": run["id"],
        }
        assert seen[:-1] == await journal_of(database, run["session_id"], run["id"])


async def test_words_that_never_come_are_made_up_for_by_the_poll(
    make_settings: MakeSettings, database_url: str, messages_api: MessagesApi
) -> None:
    async with (
        opened(database_url) as database,
        host(make_settings()) as a,
        host(make_settings()) as deaf,
    ):
        deaf.service.hub.bus._hear.clear()
        run = await start(a.client, scripted({"text": "done", "delay": 0.5}))
        async with asyncio.timeout(10):
            read = await read_to_end(deaf.client, f"/v1/runs/{run['id']}/stream")
        assert read[:-1] == await journal_of(database, run["session_id"], run["id"])
        assert len(messages_api.requests) == 1


async def test_a_run_stream_holds_its_run_alone_and_a_session_stream_all_runs(
    make_settings: MakeSettings, database_url: str
) -> None:
    async with opened(database_url) as database, host(make_settings()) as service:
        client = service.client
        first = await start(client, scripted({"text": "one", "delay": 0.3}))
        session_id = first["session_id"]
        second = await start(client, scripted({"text": "two"}), session_id=session_id)
        session_stream = f"/v1/sessions/{session_id}/stream"
        async with asyncio.timeout(10), aclosing(frames(client, session_stream)) as stream:
            of_first, of_second = await asyncio.gather(
                *(read_to_end(client, f"/v1/runs/{run['id']}/stream") for run in (first, second))
            )
            assert of_first[:-1] == await journal_of(database, session_id, first["id"])
            assert of_second[:-1] == await journal_of(database, session_id, second["id"])
            ends = [(f[-1].event, f[-1].body["reason"]) for f in (of_first, of_second)]
            assert ends == [("end", "run_finished")] * 2
            everything = await journal_of(database, session_id)
            read = [await anext(stream) for _ in everything]
        assert read == everything
        assert {f.body.get("run_id") for f in read if f.event == "service"} == {
            None,
            first["id"],
            second["id"],
        }


async def test_a_session_stream_ends_when_its_host_goes(make_settings: MakeSettings) -> None:
    async with host(make_settings()) as service:
        session_id = (await service.client.post("/v1/sessions", json={})).json()["id"]
        reading = asyncio.ensure_future(
            read_to_end(service.client, f"/v1/sessions/{session_id}/stream")
        )

        async def follows() -> bool:
            topics = service.service.hub._topics.values()
            return any(topic.cursor is not None for topic in topics)

        await until(follows)
        await service.service.drain()
        async with asyncio.timeout(30):
            *rows, end = await reading
        assert [row.id for row in rows] == [1]
        assert end.body == {"reason": "server_shutdown", "last_seq": 1}


async def test_a_finished_run_read_to_its_end_has_nothing_more(
    service: Host, database_url: str
) -> None:
    run = await start(service.client, scripted({"text": "done"}))
    await finished(service.client, run["id"])
    path = f"/v1/runs/{run['id']}/stream"
    read = await read_to_end(service.client, path)
    last_seq = read[-1].body["last_seq"]
    async with opened(database_url) as database:
        assert read[:-1] == await journal_of(database, run["session_id"], run["id"])
    for query in ({"after": last_seq}, {"after": "latest"}):
        assert await read_to_end(service.client, path, **query) == [NOTHING_MORE]
    assert await read_to_end(service.client, path, last_event_id=last_seq) == [NOTHING_MORE]
    assert await read_to_end(service.client, path, after=last_seq - 1) == read[-2:]


async def test_the_last_event_id_wins_over_after(service: Host) -> None:
    run = await start(service.client, scripted({"text": "done"}))
    await finished(service.client, run["id"])
    path = f"/v1/runs/{run['id']}/stream"
    everything = await read_to_end(service.client, path)
    assert await read_to_end(service.client, path, last_event_id=3, after=5) == [
        frame for frame in everything if frame.id is None or frame.id > 3
    ]
    assert await read_to_end(service.client, path, last_event_id=3, after="latest") == [
        frame for frame in everything if frame.id is None or frame.id > 3
    ]


async def test_latest_gives_what_comes_and_nothing_before(
    service: Host, messages_api: MessagesApi
) -> None:
    run = await start(service.client, scripted({"text": "done", "delay": 0.5}))
    await messages_api.until(lambda: len(messages_api.requests) == 1)
    async with asyncio.timeout(10):
        read = await read_to_end(service.client, f"/v1/runs/{run['id']}/stream", after="latest")
    kinds = [frame.body.get("type", frame.event) for frame in read]
    assert kinds == ["assistant", "result", "run.finished", "end"]


async def test_a_cursor_that_cannot_be_is_refused(service: Host) -> None:
    run = await start(service.client, scripted({"text": "done"}))
    await finished(service.client, run["id"])
    session_stream = f"/v1/sessions/{run['session_id']}/stream"
    for cursor in ("999", "-1", "x", "1.5", "9" * 30):
        for path in (f"/v1/runs/{run['id']}/stream", session_stream):
            for answer in (
                await service.client.get(path, headers={"Last-Event-ID": cursor}),
                await service.client.get(path, params={"after": cursor}),
            ):
                assert (answer.status_code, answer.json()["code"]) == (400, "cursor_invalid")
    beyond = await service.client.get(session_stream, params={"after": 999})
    session = (await service.client.get(f"/v1/sessions/{run['session_id']}")).json()
    assert beyond.json()["context"] == {"last_seq": session["last_seq"]}


async def test_a_post_that_asks_for_a_stream_gets_the_whole_run(
    service: Host, database_url: str
) -> None:
    body = {"prompt": scripted({"text": "done"}), "stream": True}
    answer = await service.client.post("/v1/runs", json=body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    run_id = answer.headers["x-run-id"]
    run = (await service.client.get(f"/v1/runs/{run_id}")).json()
    async with opened(database_url) as database:
        stored = await journal_of(database, run["session_id"], run_id)
    for frame in stored:
        assert f"id: {frame.id}\nevent: {frame.event}\ndata: {frame.data}\n\n" in answer.text
    assert answer.text.count("\nid: ") == len(stored)


async def test_an_end_is_seen_by_who_waits_and_who_reads_alike(
    service: Host, database_url: str
) -> None:
    """A run that shows its end has its last row, and the other way round."""
    async with opened(database_url) as database:
        run = await start(service.client, scripted({"text": "done", "delay": 0.2}))
        is_over = False
        async with asyncio.timeout(10):
            while not is_over:
                is_over = await looked(service.client, database, run)


async def looked(client: httpx.AsyncClient, database: Database, run: dict[str, Any]) -> bool:
    """Look at the log between two looks at the run; give whether the run is over."""
    before = (await client.get(f"/v1/runs/{run['id']}")).json()
    stored = await journal_of(database, run["session_id"], run["id"])
    after = (await client.get(f"/v1/runs/{run['id']}")).json()
    has_end = '"type":"run.finished"' in stored[-1].data
    if before["status"] == "finished":
        assert has_end
    if has_end:
        assert after["status"] == "finished"
    return has_end
