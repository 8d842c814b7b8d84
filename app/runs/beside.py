"""Drive one subagent in the background: a run beside the one that a host drives in its session.

It is driven as a run is (`execute.py`), with what differs: it has no lease of its own, its rows are
those of a thread, nobody prompts it, and its end lets nothing go.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Protocol, TypeVar

from app.agent.backgrounded import begun, end_of, folded, opening, own_effects, stored_rows
from app.agent.broken_off import abandoned, interrupted, stopped_at_budget
from app.agent.effects import Effects
from app.agent.run_info import thread_to_end
from app.agent.state import Advance, LoopState
from app.agent.subagents import NoInbox
from app.domain.journal import Batch, ServiceEvent
from app.domain.mcp import ServerPin
from app.domain.model import PartialResponse
from app.domain.runs import EndReason
from app.domain.tasks import BackgroundTask, TaskEnd
from app.domain.usage import LedgerRow, Spend
from app.errors import LeaseLost, NobodyAnswered, Parked, WorkspaceUnavailable
from app.runs.activity import watched
from app.runs.attempt import Attempt, Stop
from app.runs.desk import Desk, WaitingRules
from app.runs.driving import why_given_up
from app.runs.live import Hub
from app.runs.loading import parsed, unread
from app.runs.ownership import Ownership
from app.runs.parts import Parts
from app.runs.purse import Purses, Share
from app.runs.writing import Writer, announcement
from app.store import cancels
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
    purses: Purses

    async def moved(self, epoch: int) -> None: ...

    def paid(self, run_id: str, rows: Sequence[LedgerRow]) -> None: ...


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
    _attempt: Attempt = field(init=False)
    _purse: Share | None = None
    _began_s: float = 0.0

    def __post_init__(self) -> None:
        yard, lease = self.yard, replace(self.holder.lease, run_id=self.run_id)
        self._writer = Writer(yard.database, lease, yard.appends, self.mail, 0)
        self._desk = Desk(
            yard.database, lease, yard.hub, yard.waiting, self._outlast, is_held=lambda: True
        )
        self._attempt = Attempt(self._writer, self._write, self._learn)

    @property
    def stopped_by(self) -> Stop | None:
        """What stopped it, if anything did."""
        return self._attempt.why

    def mail(self) -> None:
        """Say that something may have been answered, or changed."""
        self._desk.ring()

    def stop(self, why: Stop) -> None:
        """Stop it at once; what stopped it first counts, unless the session is lost."""
        if self._attempt.stop(why):
            self.is_stopped.set()

    def drain(self) -> None:
        """Let it go at its next message boundary, or where it waits for an answer."""
        self._attempt.is_draining = True
        self._desk.leave()
        if not self._attempt.is_loaded:
            self.stop("drain")

    # -- its life -------------------------------------------------------------------------

    async def run(self) -> None:
        """Drive it until it has ended, or has to be let go. Raises `LeaseLost`."""
        if self.stopped_by in {"drain", "lost"}:
            return  # it had no place yet
        beginning = await self._outlast(lambda: begin(self.yard.database, self._lease))
        if beginning is None:
            self.was_over = True
            return
        await self._attempt_with(beginning)

    async def _attempt_with(self, beginning: Beginning) -> None:
        tenant_id, session_id = self._lease.session
        launched, thread = beginning.launched, thread_to_end(beginning.launched)
        self._began_s = time.monotonic()
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
            replace(announcement(beginning.attempt), thread=thread.call_id),
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
            self._attempt.state = folded(parsed(rows), begun(info, launched, spend))
        except Exception:  # whatever it is, one that is given up has to end
            if why is None:
                raise
            log.exception("A run that is given up cannot be read")
            self._attempt.state = unread(
                self._lease, work, spent_before=Spend(), spend=spend, thread=thread
            )
        self._desk.may_have_asked = beginning.attempt > 1
        self._desk.notes_begun = self._now().run.options.actions.permissions == "ask"
        if why is not None:
            await self._abandon("worker_lost", why)  # before its parts: those may be what fails
            return
        if beginning.attempt > 1:
            self._desk.open_calls = self._now().open_everywhere
        claim = Claim(self._lease, beginning.attempt, beginning.stalled_attempts, 0, is_beside=True)
        try:
            async with self.yard.parts.open(
                claim, work, info, NoInbox(), no_shells(), self._desk
            ) as opened:
                pins = launched["servers"].items()
                await opened.servers.settle({k: ServerPin.from_json(pin) for k, pin in pins})
                effects = own_effects(
                    self._now(), watched(opened, self.holder.ownership, self._attempt.activity)
                )
                self._purse = self.holder.purses.share(self.run_id, self._now().run.options)
                effects = replace(effects, purse=self._purse)
                if not rows:
                    opened_by = self._now().after(
                        opening(launched, session_id, opened.servers.readiness())
                    )
                    await self._write(opened_by, is_shown=False)
                await self._drive(beginning, work, effects)
        except WorkspaceUnavailable as error:
            log.warning("The run cannot be opened on this host: %s", error)
            await self._abandon("internal", str(error))

    async def _drive(self, beginning: Beginning, work: Work, effects: Effects) -> None:
        failed = await self._attempt.drive(
            effects,
            deadline_left_s=work.deadline_left_s,
            was_lost=beginning.was_lost,
            is_cancelled=beginning.is_cancelled,
        )
        await self._stopped_by(failed)
        await self._after_stop(effects)

    def _learn(self, state: LoopState) -> LoopState:
        others_usd = self._purse.others_usd() if self._purse else Decimal(0)
        return replace(state, others_usd=others_usd)

    async def _stopped_by(self, error: BaseException | None) -> None:
        """Do what follows from an error that ended the loop."""
        match error:
            case Parked() | NobodyAnswered() if self.stopped_by is not None:
                pass  # what stopped it came first
            case Parked():
                self._attempt.why = "drain"
            case NobodyAnswered():
                await self._abandon("action_expired", str(error))
            case Exception() if not self._now().is_over:
                log.error("The loop failed", exc_info=error, extra={"action": "run_failed"})
                why = "The service failed inside this run; the operator's log has the details."
                await self._abandon("internal", why)
            case _:
                pass

    async def _after_stop(self, effects: Effects) -> None:
        if self._now().is_over:
            return
        stopped = self._attempt.at_stop
        match self.stopped_by:
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
                    begun=stopped.tools if stopped else (),
                    refused=await self._desk.withdraw(),
                )
                await self._attempt.store(self._now().after(ended))
            case "budget":
                ended = stopped_at_budget(
                    self._now(),
                    effects,
                    partial=effects.previews.partial(),
                    asides=self._cut_below(effects),
                )
                await self._attempt.store(self._now().after(ended))
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
        unbegun = await self._attempt.unbegun(self._desk)
        stamps = self.yard.parts.stamps
        ended = abandoned(self._now(), stamps, end_reason=end_reason, why=why, unbegun=unbegun)
        await self._attempt.store(self._now().after(ended))

    def _now(self) -> LoopState:
        return self._attempt.state

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

    async def _write(self, advance: Advance, *, is_shown: bool = True) -> None:
        state, batch = advance.state, self._attempt.closing(advance.batch)
        thread = state.run.thread
        call_id = thread.call_id if thread else None
        took_ms = state.run.elapsed_ms + round((time.monotonic() - self._began_s) * 1000)
        stamps = self.yard.parts.stamps
        batch = stored_rows(batch, state, stamps, took_ms, is_shown=is_shown)
        events = tuple(replace(event, thread=call_id) for event in batch.events)
        if batch.outcome is not None:
            await self._desk.withdraw()
        async with self.holder.writing:
            rows = await self._append(replace(batch, events=events))
            self.holder.paid(self.run_id, batch.ledger)
        self._attempt.state = state
        if batch.outcome is not None:
            self.end = end_of(state, batch.outcome.end_reason, time.time(), took_ms)
        self.yard.hub.wrote(*self._lease.session, rows)
