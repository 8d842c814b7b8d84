"""Commands of hooks that run on after they were heard, with an owner: the run."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from app.errors import ToolFailed
from app.hooks.hook import HookFailed
from app.sandbox.driver import Command

GRACE_S = 5.0
"""How long the last of them may go on after their run has ended in order."""
MOST = 16
"""Of one run, at a time."""


@dataclass(slots=True)
class Detached:
    """Leaving it ends them all: after `GRACE_S`, or at once when the run was cut short."""

    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._tasks and kind is None:
                await asyncio.wait(self._tasks, timeout=GRACE_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def keep(self, command: Command, limit_s: float) -> None:
        """Take a command over, which may run on for so long. Raises `HookFailed` when it may not."""
        if len(self._tasks) >= MOST:
            await _finish(command, timed_out=True)
            raise HookFailed(f"{MOST} commands of this run's hooks run on already")
        task = asyncio.create_task(_attend(command, limit_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(0)  # cancelled before its first step, a task would leave the command


async def _attend(command: Command, limit_s: float) -> None:
    has_ended = False
    try:
        has_ended = await command.ended(limit_s)
    finally:
        await _finish(command, timed_out=not has_ended)


async def _finish(command: Command, *, timed_out: bool) -> None:
    with suppress(ToolFailed):  # nobody is there to hear it any more
        await command.finish(timed_out=timed_out)
