"""Timers for what mostly does not wait: one costs more than a small read or write."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Await something. A timer is set only when it has to wait. Raises `TimeoutError`."""
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as done:
        return cast("T", done.value)
    async with asyncio.timeout(seconds):
        return await _Begun(steps, waits_for)


async def beside(work: Awaitable[T], watch: Callable[[], AbstractContextManager[object]]) -> T:
    """Await something. What `watch` gives is entered only when it has to wait, and left at its end."""
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as done:
        return cast("T", done.value)
    with watch():
        return await _Begun(steps, waits_for)


class _Begun(Generic[T]):
    """What was begun by hand, and waits."""

    def __init__(self, steps: Generator[Any, Any, T], waits_for: object) -> None:
        self._steps, self._waits_for = steps, waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    got = yield waits_for
                except BaseException as error:  # noqa: BLE001 - the work hears of it, of a cancel too
                    waits_for = self._steps.throw(error)
                else:
                    waits_for = self._steps.send(got)
        except StopIteration as done:
            return cast("T", done.value)
