"""Drive one subagent in the background: a run beside the one that a host drives in its session.

It is driven as a run is (`execute.py`), with what differs: it has no lease of its own, its rows are
those of a thread, nobody prompts it, and its end lets nothing go.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

from app.agent.audit import with_audit
from app.agent.backgrounded import begun, end_of, folded, opening, own_effects, stored_rows
from app.agent.broken_off import abandoned, interrupted, stopped_at_budget
from app.agent.effects import Effects
from app.agent.loop import run_agent
from app.agent.lost_request import lost_request
from app.agent.run_info import thread_of
from app.agent.state import Advance, LoopState
from app.agent.subagents import NoInbox
from app.domain.journal import Batch, ServiceEvent
from app.domain.mcp import ServerPin
from app.domain.model import PartialResponse
from app.domain.options import AgentOptions
from app.domain.runs import EndReason
from app.domain.tasks import BackgroundTask, TaskEnd
from app.domain.usage import LedgerRow, Spend
from app.errors import LeaseLost, NobodyAnswered, Parked, WorkspaceUnavailable
from app.runs.activity import Activity, Stopped, watched
from app.runs.desk import Desk, WaitingRules
from app.runs.driving import until_ended, why_given_up
from app.runs.live import Hub
from app.runs.loading import parsed, unread
from app.runs.ownership import Ownership
from app.runs.parts import Parts
from app.runs.purse import Share
from app.runs.writing import Writer, announcement
from app.store import actions, cancels
from app.store.beside import Beginning, begin, let_go, rows_of
from app.store.claims import Claim
from app.store.engine import Database
from app.store.group_commit import GroupCommit
from app.store.leases import Host, Lease
from app.store.ledger import spends
from app.store.rows import Row
from app.store.runs import Work, work_of
from app.tools.agent_tool import no_shells

log = logging.getLogger(__name__)

Stop = Literal["cancel", "deadline", "budget", "drain", "lost"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Yard:
    """What a host has for all subagents in the background."""

    host: Host
    database: Database
    hub: Hub
    parts: Parts
    appends: GroupCommit
    max_attempts: int
    waiting: WaitingRules
    at_once: int
    """Of a session; more wait."""
    pause_s: float = 5.0
    """Between attempts at one that failed for no reason that is known."""


class Holder(Protocol):
    """Who holds the session: gives the lease to write under, and counts what is spent."""

    lease: Lease
    ownership: Ownership
    writing: asyncio.Lock

    async def moved(self, epoch: int) -> None: ...

    def paid(self, run_id: str, rows: Sequence[LedgerRow]) -> None: ...

    def share(self, run_id: str, options: AgentOptions) -> Share: ...


@dataclass(slots=True)
class BesideRun:
    """One subagent in the background, on this host."""

    yard: Yard
    holder: Holder
    run_id: str
    agent_id: str
    task: asyncio.Task[None] | None = None
    end: TaskEnd | None = None
    """Set once its end is stored."""
    was_over: bool = False
    """Whether it was found over: its end was stored by another attempt."""
    background_task: BackgroundTask | None = None
    is_stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _writer: Writer = field(init=False)
    _desk: Desk = field(init=False)
    _activity: Activity = field(default_factory=Activity)
    _stop: Stop | None = None
    _stopped: Stopped | None = None
    _loop_task: asyncio.Task[None] | None = None
    _is_draining: bool = False
    _attempt: int = 1
    _began_s: float = 0.0
    _state: LoopState | None = None

    def __post_init__(self) -> None:
        yard, lease = self.yard, replace(self.holder.lease, run_id=self.run_id)
        self._writer = Writer(yard.database, lease, yard.appends, self.mail, 0)
        self._desk = Desk(
            yard.database, lease, yard.hub, yard.waiting, self._outlast, is_held=lambda: True
        )

    @property
    def stopped_by(self) -> Stop | None:
        """What stopped it, if anything did."""
        return self._stop

    def mail(self) -> None:
        """Say that something may have been answered, or changed."""
        self._desk.ring()

    def stop(self, why: Stop) -> None:
        """Stop it at once; what stopped it first counts, unless the session is lost."""
        if self._stop is None or why == "lost":
            self._stop = why
            self._writer.is_lost = why == "lost"
            self._stopped = self._activity.now()
            self.is_stopped.set()
            if self._loop_task is not None:
                self._loop_task.cancel()

    def drain(self) -> None:
        """Let it go at its next message boundary, or where it waits for an answer."""
        self._is_draining = True
        self._desk.leave()
        if self._state is None:
            self.stop("drain")

    # -- its life -------------------------------------------------------------------------

    async def run(self) -> None:
        """Drive it until it has ended, or has to be let go. Raises `LeaseLost`."""
        if self._stop in {"drain", "lost"}:
            return  # it had no place yet
        beginning = await self._outlast(lambda: begin(self.yard.database, self._lease))
        if beginning is None:
            self.was_over = True
            return
        await self._attempt_with(beginning)

    async def _attempt_with(self, beginning: Beginning) -> None:
        tenant_id, session_id = self._lease.session
        launched, thread = beginning.launched, thread_of(beginning.launched)
        self._attempt, self._began_s = beginning.attempt, time.monotonic()
        self.background_task = BackgroundTask(
            *(self.agent_id, thread.description, "", thread.call_id, "", "local_agent")
        )
        work = await self._outlast(lambda: work_of(self.yard.database, tenant_id, self.run_id))
        _, spend = await self._outlast(
            lambda: spends(
                self.yard.database, tenant_id, session_id, self.run_id, thread=thread.call_id
            )
        )
        rows = await self._outlast(
            lambda: rows_of(self.yard.database, tenant_id, session_id, self.run_id)
        )
        # The row was there from its launch on; its log begins with the first attempt that writes.
        queued = () if rows else (ServiceEvent("run.queued", thread=thread.call_id),)
        self._writer.first = (
            *queued,
            replace(announcement(self._attempt), thread=thread.call_id),
        )
        self._writer.last_seq = beginning.last_seq
        why = why_given_up(
            work,
            stalled_attempts=beginning.stalled_attempts,
            was_lost=beginning.was_lost,
            max_attempts=self.yard.max_attempts,
        )
        try:
            info = self.yard.parts.describe(self._lease, work)
            self._state = folded(parsed(rows), begun(info, launched, spend))
        except Exception:
            if why is None:
                raise
            log.exception("A run that is given up cannot be read")
            self._state = unread(
                self._lease, work, spent_before=Spend(), spend=spend, thread=thread
            )
        if why is not None:
            await self._abandon("worker_lost", why)  # before its parts: those may be what fails
            return
        if self._attempt > 1:
            self._desk.open_calls = self._state.open_everywhere
        claim = Claim(self._lease, self._attempt, beginning.stalled_attempts, 0, is_beside=True)
        try:
            async with self.yard.parts.open(
                claim, work, info, NoInbox(), no_shells(), self._desk
            ) as opened:
                pins = launched["servers"].items()
                await opened.servers.settle({k: ServerPin.from_json(pin) for k, pin in pins})
                effects = own_effects(
                    self._now(), watched(opened, self.holder.ownership, self._activity)
                )
                share = self.holder.share(self.run_id, self._now().run.options)
                effects = replace(effects, purse=share)
                if not rows:
                    opened_by = self._now().after(opening(launched, session_id))
                    await self._store(opened_by, is_shown=False)
                await self._drive(beginning, work, effects)
        except WorkspaceUnavailable as error:
            log.warning("The run cannot be opened on this host: %s", error)
            await self._abandon("internal", str(error))

    async def _drive(self, beginning: Beginning, work: Work, effects: Effects) -> None:
        if beginning.was_lost and (lost := lost_request(self._now(), effects)) is not None:
            await self._store(self._now().after(lost))
        if beginning.is_cancelled:
            self.stop("cancel")
        if self._stop is None:
            self._loop_task = asyncio.create_task(self._loop(effects))
            failed = await until_ended(
                self._loop_task, work.deadline_left_s, lambda: self.stop("deadline")
            )
            await self._settle(effects)
            await self._stopped_by(failed)
        await self._after_stop(effects)

    async def _settle(self, effects: Effects) -> None:
        """Store what a loop that was stopped had asked beside the conversation."""
        if self._stop != "lost" and not self._now().is_over and (rows := effects.side.settle()):
            await self._store(self._now().after(Batch(ledger=rows)))

    async def _loop(self, effects: Effects) -> None:
        def learn(state: LoopState) -> LoopState:
            return replace(state, others_usd=effects.purse.others_usd())

        async with aclosing(run_agent(self._now(), effects, learn)) as advances:
            async for advance in advances:
                await self._store(advance)
                if self._is_draining and self._is_at_boundary:
                    self._stop = self._stop or "drain"
                    return

    async def _stopped_by(self, error: BaseException | None) -> None:
        """Do what follows from an error that ended the loop."""
        match error:
            case Parked() if self._stop is None:
                self._stop = "drain"
            case NobodyAnswered() if self._stop is None:
                await self._abandon("action_expired", str(error))
            case Exception() if not self._now().is_over and not isinstance(error, Parked):
                log.error("The loop failed", exc_info=error, extra={"action": "run_failed"})
                why = "The service failed inside this run; the operator's log has the details."
                await self._abandon("internal", why)
            case _:
                pass

    async def _after_stop(self, effects: Effects) -> None:
        if self._now().is_over:
            return
        match self._stop:
            case "cancel":
                asked = await self._outlast(
                    lambda: cancels.cancel_asked(self.yard.database, self._lease)
                )
                ended = interrupted(
                    self._now(),
                    effects,
                    end_reason=asked.end_reason,
                    partial=effects.previews.partial(),
                    asides=self._cut_below(effects),
                    begun=self._stopped.tools if self._stopped else (),
                    refused=await self._withdraw(),
                )
                await self._store(self._now().after(ended))
            case "budget":
                ended = stopped_at_budget(
                    self._now(),
                    effects,
                    partial=effects.previews.partial(),
                    asides=self._cut_below(effects),
                )
                await self._store(self._now().after(ended))
            case "deadline":
                await self._abandon("deadline", "The run's deadline has passed.")
            case "drain":
                await self._outlast(lambda: let_go(self.yard.database, self._lease))
            case _:
                pass

    def _cut_below(self, effects: Effects) -> dict[str, PartialResponse]:
        """Give what came of open messages of subagents of its own, by call."""
        thread = self._now().run.thread
        own = thread.call_id if thread else ""
        return {key: part for key, part in effects.agents.partials().items() if key != own}

    async def _abandon(self, end_reason: EndReason, why: str) -> None:
        ended = abandoned(self._now(), self.yard.parts.stamps, end_reason=end_reason, why=why)
        await self._store(self._now().after(ended))

    @property
    def _is_at_boundary(self) -> bool:
        return not self._now().is_over and not self._now().open_calls

    def _now(self) -> LoopState:
        if self._state is None:
            raise RuntimeError("the run is not loaded")
        return self._state

    # -- what it writes -------------------------------------------------------------------

    @property
    def _lease(self) -> Lease:
        """The session's as it is held now."""
        lease = replace(self.holder.lease, run_id=self.run_id)
        self._writer.lease = self._desk.lease = lease
        return lease

    async def _outlast(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the database until it answers, under whatever lease the session is held."""
        while True:
            epoch = self._lease.epoch
            try:
                return await self._writer.outlast(ask)
            except LeaseLost:
                await self.holder.moved(epoch)

    async def _append(self, batch: Batch) -> list[Row]:
        while True:
            epoch = self._lease.epoch
            try:
                return await self._writer.append(batch, is_beside=True)
            except LeaseLost:
                await self.holder.moved(epoch)

    async def _store(self, advance: Advance, *, is_shown: bool = True) -> None:
        """Store a batch, then show it. Once begun it is not cut off: half known is worst."""
        writing = asyncio.create_task(self._write(advance, is_shown=is_shown))
        writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.shield(writing)
        finally:
            if not writing.done():
                await asyncio.wait([writing])

    async def _write(self, advance: Advance, *, is_shown: bool) -> None:
        state, batch = advance.state, advance.batch
        if batch.outcome is not None and self._stopped is not None:
            for note in self._stopped.allowed:
                batch = replace(batch, entries=with_audit(batch.entries, note))
        thread = state.run.thread
        call_id = thread.call_id if thread else None
        took_ms = state.run.elapsed_ms + round((time.monotonic() - self._began_s) * 1000)
        stamps = self.yard.parts.stamps
        batch = stored_rows(batch, state, stamps, took_ms, is_shown=is_shown)
        events = [replace(event, thread=call_id) for event in batch.events]
        if batch.outcome is not None:
            await self._withdraw()
            told: dict[str, object] = {
                "result_subtype": batch.outcome.subtype,
                "end_reason": batch.outcome.end_reason,
            }
            if self._stopped is not None:
                told["stopped"] = self._stopped.to_json()
            events.append(ServiceEvent("run.finished", told, call_id))
        async with self.holder.writing:
            rows = await self._append(replace(batch, events=tuple(events)))
            self.holder.paid(self.run_id, batch.ledger)
        self._state = state
        if batch.outcome is not None:
            self.end = end_of(state, batch.outcome.end_reason, time.time(), took_ms)
        self.yard.hub.wrote(*self._lease.session, rows)

    async def _withdraw(self) -> Collection[str]:
        """Take back what the run still asks, before it ends; give the calls that it asked for."""
        if not self._desk.has_asked and self._attempt == 1:
            return ()
        withdrawn = await self._outlast(
            lambda: actions.withdraw_pending(self.yard.database, self._lease)
        )
        if withdrawn.seq is not None:
            self.yard.hub.grew(*self._lease.session, withdrawn.seq)
        return withdrawn.approvals
