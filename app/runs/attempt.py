"""One attempt at a run: its loop, what stops that, and what was under way then.

The loop runs in a task of its own, so that stopping it (cancel, lost lease, drain) leaves whoever
drives the run free to write what has to be written afterwards.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal

from app.agent.audit import with_audit
from app.agent.effects import Effects
from app.agent.loop import run_agent
from app.agent.lost_request import lost_request
from app.agent.state import Advance, LoopState
from app.domain.journal import Batch, ServiceEvent
from app.runs.activity import Activity, Stopped
from app.runs.desk import Desk
from app.runs.driving import until_ended
from app.runs.writing import Writer

Stop = Literal["cancel", "deadline", "budget", "drain", "lost"]


@dataclass(slots=True)
class Attempt:
    """What every attempt has, whoever drives the run."""

    writer: Writer
    write: Callable[[Advance], Awaitable[None]]
    """Stores a batch, takes over the state that it leads to, and shows it."""
    learn: Callable[[LoopState], LoopState]
    """Gives what a state learns from elsewhere before each step."""
    activity: Activity = field(default_factory=Activity)
    why: Stop | None = None
    """What stopped it; it may be set without a stop, where its loop has ended."""
    at_stop: Stopped | None = None
    """What was under way then."""
    is_draining: bool = False
    """Whether it is let go at the next message boundary."""
    is_loaded: bool = False
    _state: LoopState | None = None
    _loop_task: asyncio.Task[None] | None = None

    @property
    def state(self) -> LoopState:
        """Where the run stands, as it is stored."""
        if self._state is None:
            raise RuntimeError("the run is not loaded")
        return self._state

    @state.setter
    def state(self, state: LoopState) -> None:
        self._state, self.is_loaded = state, True

    @property
    def is_at_boundary(self) -> bool:
        """Whether nothing of the run is half done."""
        return not self.state.is_over and not self.state.open_calls

    def stop(self, why: Stop) -> bool:
        """Stop the loop at once: kill its tools, close its model request.

        What stopped it first counts, unless the lease is lost; says whether this does.
        """
        if self.why is not None and why != "lost":
            return False
        self.why = why
        self.writer.is_lost = why == "lost"
        self.at_stop = self.activity.now()
        if self._loop_task is not None:
            self._loop_task.cancel()
        return True

    async def unbegun(self, desk: Desk) -> frozenset[str]:
        """Give the open calls that have certainly not begun, here or on an earlier host."""
        state, open_calls = self.state, {call.id for call in self.state.open_calls}
        suspects = open_calls
        if self.at_stop is not None:
            suspects = open_calls & {*self.at_stop.tools, *state.unsure}
        begun = await desk.begun_among(suspects)
        return frozenset(open_calls - begun - state.threads.keys())

    async def drive(
        self,
        effects: Effects,
        *,
        deadline_left_s: float | None,
        was_lost: bool,
        is_cancelled: bool,
    ) -> BaseException | None:
        """Run the loop until it ends, whatever ends it; give the error that did. Raises `LeaseLost`.

        `was_lost`: an earlier attempt may have died in the middle of a request.
        """
        if was_lost and (lost := lost_request(self.state, effects)) is not None:
            await self.store(self.state.after(lost))
        if is_cancelled:
            self.stop("cancel")
        if self.why is not None:
            return None
        self._loop_task = asyncio.create_task(self._loop(effects))
        failed = await until_ended(self._loop_task, deadline_left_s, lambda: self.stop("deadline"))
        if not self.writer.is_lost and not self.state.is_over and (rows := effects.side.settle()):
            await self.store(self.state.after(Batch(ledger=rows)))  # asked beside the conversation
        return failed

    async def _loop(self, effects: Effects) -> None:
        async with aclosing(run_agent(self.state, effects, self.learn)) as advances:
            async for advance in advances:
                await self.store(advance)
                if self.is_draining and self.is_at_boundary:
                    self.why = self.why or "drain"
                    return

    async def store(self, advance: Advance) -> None:
        """Store a batch, then show it. Once begun it is not cut off: half known is worst."""
        writing = asyncio.ensure_future(self.write(advance))
        # When we are stopped meanwhile nobody asks how it ended: a lost lease is no news then.
        writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.shield(writing)
        finally:
            if not writing.done():
                await asyncio.wait([writing])

    def closing(self, batch: Batch) -> Batch:
        """Give a run's last batch as it is stored: why calls ran that were stopped, and that it is over."""
        if batch.outcome is None:
            return batch
        finished: dict[str, object] = {
            "result_subtype": batch.outcome.subtype,
            "end_reason": batch.outcome.end_reason,
        }
        if self.at_stop is not None:
            finished["stopped"] = self.at_stop.to_json()
            for note in self.at_stop.allowed:
                batch = replace(batch, entries=with_audit(batch.entries, note))
        return replace(batch, events=(*batch.events, ServiceEvent("run.finished", finished)))
