"""Calls that run together: each a task, whose rows the step takes as they come.

What a call makes durable goes into a queue, so that nothing is yielded inside a task group (PEP
789). A call that goes on after that (a subagent) waits until it is stored.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.agent.effects import Effects
from app.agent.state import LoopState
from app.agent.subagents import Tree
from app.domain.blocks import ToolUseBlock
from app.domain.journal import Batch
from app.domain.value import value
from app.errors import Interrupted, Parked

MAX_PARALLEL_CALLS = 16
_CarryOut: TypeAlias = "Callable[[ToolUseBlock, Calls], Coroutine[Any, Any, Done]]"


@value
class Done:
    """What came of a call, or of a part of it."""

    batch: Batch
    """Ends with its result, unless it goes on, or is left for a later run."""
    is_deferred: bool = False
    """Whether a hook left it for a later run: it has no result."""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class _Handed:
    """What a call makes durable before its end."""

    batch: Batch
    stored: asyncio.Future[None]
    """Set once it is."""


@dataclass(slots=True)
class Calls:
    """Owns the tasks of calls that run together."""

    state: LoopState
    effects: Effects
    tree: Tree
    carry_out: _CarryOut
    """Gives what came of a call, with its result."""
    open: int = 0
    """Calls whose results nobody has taken."""
    _tasks: list[asyncio.Task[Done]] = field(default_factory=list)
    _ready: asyncio.Queue[asyncio.Task[Done] | _Handed] = field(default_factory=asyncio.Queue)
    _waiting: list[_Handed] = field(default_factory=list)
    """What was given last: whoever handed it over waits until it is stored."""
    _end: Parked | Interrupted | None = None
    """What ends the step, once what is ready is taken."""

    @property
    def under_way(self) -> int:
        """How many calls may move.

        All others wait for one of them to end: if each of these waits for an answer, nothing moves.
        """
        return min(self.open, MAX_PARALLEL_CALLS)

    def start(self, calls: Iterable[ToolUseBlock]) -> None:
        """Start a task for each call. None of them runs before the caller waits for something."""
        together = tuple(calls)
        run = self.carry_out
        if len(together) > MAX_PARALLEL_CALLS:
            run = _in_turn(run, asyncio.Semaphore(MAX_PARALLEL_CALLS))
        for call in together:
            task = asyncio.create_task(run(call, self))
            task.add_done_callback(self._ready.put_nowait)
            self._tasks.append(task)
            self.open += 1

    async def ready(self) -> list[Done]:
        """Wait for something to store; give all that is ready, in order. Nothing at the end.

        Raises what a call raised: a gate or a toolbox that broke ends the step, it never hangs.
        """
        while self.open and not isinstance(self._end, Interrupted):
            ready = [await self._ready.get()]
            while not self._ready.empty():
                ready.append(self._ready.get_nowait())
            if taken := [done for one in ready if (done := self._taken(one)) is not None]:
                return taken
        if self._end is not None:
            raise self._end
        return []

    def stored(self) -> None:
        """Say that what was given last is stored."""
        for handed in self._waiting:
            if not handed.stored.done():  # its call may have been cancelled
                handed.stored.set_result(None)
        self._waiting.clear()

    async def stop(self) -> None:
        """Cancel what still runs and wait until it is gone."""
        if not self.open:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def hand_over(self, batch: Batch) -> None:
        """Have a call's batch stored while the call goes on."""
        handed = _Handed(batch, asyncio.get_running_loop().create_future())
        self._ready.put_nowait(handed)
        await handed.stored

    def _taken(self, one: asyncio.Task[Done] | _Handed) -> Done | None:
        if isinstance(one, _Handed):
            self._waiting.append(one)
            return Done(one.batch)
        self.open -= 1
        try:
            return one.result()
        except (Parked, Interrupted) as end:
            self._end = end
            return None


def _in_turn(carry_out: _CarryOut, slots: asyncio.Semaphore) -> _CarryOut:
    """Give what carries calls out, no more of them at a time than there are slots."""

    async def run(block: ToolUseBlock, calls: Calls) -> Done:
        async with slots:
            return await carry_out(block, calls)

    return run
