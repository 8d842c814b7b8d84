"""Waiting with a limit, for what mostly does not wait: a time-out costs more than a small write."""

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import suppress
from typing import Any


async def within(seconds: float, work: Awaitable[None]) -> None:
    """Await something. A timer is set only when it has to wait. Raises `TimeoutError`."""
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration:
        return
    async with asyncio.timeout(seconds):
        await _Begun(steps, waits_for)


class _Begun:
    """What was begun by hand, and waits."""

    def __init__(self, steps: Generator[Any, Any, None], waits_for: object) -> None:
        self._steps, self._waits_for = steps, waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for = self._waits_for
        with suppress(StopIteration):
            while True:
                try:
                    got = yield waits_for
                except BaseException as error:  # noqa: BLE001 - the work hears of it, of a cancel too
                    waits_for = self._steps.throw(error)
                else:
                    waits_for = self._steps.send(got)
