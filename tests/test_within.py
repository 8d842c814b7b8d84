import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.within import beside, within


async def test_what_does_not_wait_is_done_at_once() -> None:
    done: list[int] = []

    async def write() -> int:
        done.append(1)
        return 2

    assert await within(0, write()) == 2
    assert done == [1]


async def test_what_waits_goes_on_as_it_would_by_itself() -> None:
    first, half, second = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write() -> int:
        await first.wait()
        half.set()
        await second.wait()
        return 1

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(within(5, write()))
        await asyncio.sleep(0)
        first.set()
        await half.wait()
        assert not waiting.done()
        second.set()
    assert waiting.result() == 1


async def test_what_waits_too_long_is_ended_and_cleans_up() -> None:
    done: list[str] = []

    async def write() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("cleaned up")

    with pytest.raises(TimeoutError):
        await within(0.01, write())
    assert done == ["cleaned up"]


async def test_an_error_and_a_cancel_come_through() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        await within(5, fails())
    waiting = asyncio.create_task(within(5, asyncio.Event().wait()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_waits_is_watched_from_its_first_wait_to_its_end() -> None:
    seen: list[str] = []

    @contextmanager
    def watch() -> Iterator[None]:
        seen.append("waits")
        try:
            yield
        finally:
            seen.append("ended")

    async def work(*, waits: bool) -> int:
        seen.append("begun")
        if waits:
            await asyncio.sleep(0)
            seen.append("goes on")
        return 1

    assert await beside(work(waits=False), watch) == 1
    assert seen == ["begun"]
    seen.clear()
    assert await beside(work(waits=True), watch) == 1
    assert seen == ["begun", "waits", "goes on", "ended"]
    seen.clear()
    with pytest.raises(TimeoutError):
        await within(0.01, beside(asyncio.Event().wait(), watch))
    assert seen == ["waits", "ended"]
