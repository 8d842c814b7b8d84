"""The subagents that work in the background of one session, on the host that holds it (ADR 16).

Theory of operation. Each is a run of its own, which nobody claims: whoever holds the session's lease
drives them all, under that lease. The lease goes from a run to the host that keeps the session, and
to the run that follows; its epoch rises each time, and they wait for the new one when the old one is
refused. A run learns how one has ended by asking; what became of those that ended with another host
is folded from their rows.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from app.agent.backgrounded import begun, end_of, folded
from app.agent.run_info import thread_to_end
from app.agent.state import LoopState
from app.domain.journal import Launch
from app.domain.tasks import BackgroundTask, TaskEnd
from app.domain.usage import LedgerRow, Spend
from app.errors import LeaseLost
from app.runs.attempt import Stop
from app.runs.beside import BesideRun, Yard
from app.runs.loading import parsed, unread
from app.runs.ownership import Ownership
from app.runs.purse import Purses
from app.store.beside import Beside, family_of, rows_of, untold
from app.store.leases import Lease, renew
from app.store.runs import work_of

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Crew:
    """Owns the tasks that drive them. Goes with the session's lease, from one holder to the next."""

    yard: Yard
    lease: Lease
    """Of the run that is driven, or that was driven last: its session's as this host holds it."""
    ownership: Ownership = field(init=False)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while one of them stores what it has spent."""
    meter: Spend = field(default_factory=Spend)
    """What they have spent since the run that is driven was loaded."""
    purses: Purses = field(default_factory=Purses)
    """What they, and the runs that they share a budget with, have spent of it."""
    is_lost: bool = False
    is_leaving: bool = False
    """Whether this host stops: they are left to the session's next holder."""
    _agents: dict[str, BesideRun] = field(default_factory=dict)
    _ends: dict[str, TaskEnd] = field(default_factory=dict)
    _left: dict[str, str] = field(default_factory=dict)
    """Those that were let go here before their end, which the session's next holder will learn: their
    ids, each with its run."""
    _places: asyncio.Semaphore = field(init=False)
    _bell: asyncio.Event = field(default_factory=asyncio.Event)
    """Rung, and replaced, whenever something here has changed."""

    def __post_init__(self) -> None:
        self.ownership = Ownership(self.yard.host.lease_s / 2, self._renew, time.monotonic())
        self._places = asyncio.Semaphore(self.yard.at_once)

    async def _renew(self) -> bool:
        lease = self.lease
        return lease in await renew(self.yard.database, self.yard.host, [lease])

    # -- the lease ------------------------------------------------------------------------

    def hold(self, lease: Lease) -> None:
        """Go on under this lease."""
        self.lease = lease
        self._ring()

    async def moved(self, epoch: int) -> None:
        """Wait until the session is held at another epoch. Raises `LeaseLost` when it is not held."""
        while self.lease.epoch == epoch and not self.is_lost:
            await self._bell.wait()
        if self.is_lost:
            raise LeaseLost("the session is not held any more")

    def lose(self) -> None:
        """Stop all at once: the session has another owner, or may have."""
        self.is_lost = True
        for agent in self._agents.values():
            agent.stop("lost")
        self._ring()

    # -- who is there ---------------------------------------------------------------------

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of those that work here."""
        return tuple(self._agents)

    @property
    def runs(self) -> list[tuple[str, str]]:
        """Tenant and run of each that works here."""
        return [(self.lease.tenant_id, agent.run_id) for agent in self._agents.values()]

    @property
    def known(self) -> tuple[str, ...]:
        """Ids of those that work here, or are known to have ended."""
        return tuple({**self._agents, **self._ends})

    def knows(self, agent_id: str) -> bool:
        """Whether it works or has worked here, or is known to have ended."""
        return any(agent_id in some for some in (self._agents, self._ends, self._left))

    def end_of(self, agent_id: str) -> TaskEnd | None:
        """Say how one has ended; None while it works, here or elsewhere."""
        return self._ends.get(agent_id)

    def start(self, run_id: str, agent_id: str) -> None:
        """Drive one from now on."""
        agent = BesideRun(self.yard, self, run_id, agent_id)
        self._agents[agent_id] = agent
        agent.task = asyncio.create_task(self._drive(agent))

    async def _drive(self, agent: BesideRun) -> None:
        has_place = False
        try:
            has_place = await self._place(agent)
            while not await self._attempt(agent):
                agent = self._again(agent)
        finally:
            if has_place:
                self._places.release()
            self._agents.pop(agent.agent_id, None)
            if agent.end is None:
                self._left[agent.agent_id] = agent.run_id
            else:
                self._ends[agent.agent_id] = agent.end
            self._ring()

    async def _attempt(self, agent: BesideRun) -> bool:
        """Drive one; say whether this host is done with it.

        One that failed is begun again, as a run whose host was lost: nobody else would drive it.
        """
        try:
            await agent.run()
            if agent.was_over:
                agent.end = await self._end_stored(agent.run_id)
        except LeaseLost:
            # Or the lease went on to another run meanwhile, and its beginning waits for that.
            if self.is_lost:
                log.warning("The lease was lost", extra={"action": "lease_lost"})
        except Exception:  # the edge: one run's failure must not take the host down
            log.exception("A run's execution failed", extra={"action": "execution_failed"})
            if agent.end is None and not self.is_lost:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(agent.is_stopped.wait(), self.yard.pause_s)
        else:
            return True
        return agent.end is not None or self.is_lost or agent.stopped_by == "drain"

    def _again(self, failed: BesideRun) -> BesideRun:
        agent = BesideRun(self.yard, self, failed.run_id, failed.agent_id, failed.task)
        self._agents[agent.agent_id] = agent
        if failed.stopped_by is not None:
            agent.stop(failed.stopped_by)
        elif self.is_leaving:
            agent.drain()
        return agent

    async def _place(self, agent: BesideRun) -> bool:
        """Wait for a place; say whether it has one, or was stopped before."""
        taking = asyncio.create_task(self._places.acquire())
        stopped = asyncio.create_task(agent.is_stopped.wait())
        try:
            await asyncio.wait([taking, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not taking.done():
                taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        return not taking.cancelled()

    def launch(self, launches: Sequence[Launch], parent: LoopState) -> None:
        """Drive what a run has begun; both draw on its budget."""
        for new in launches:
            self.purses.launch(parent, new.run_id)
            if self.is_leaving:
                self._left[new.launched["agent_id"]] = new.run_id
            else:
                self.start(new.run_id, new.launched["agent_id"])

    async def take_up(self) -> None:
        """Drive on what another holder has left, and learn how those ended that nobody has told."""
        for found in await untold(self.yard.database, *self.lease.session):
            if self.knows(found.agent_id):
                continue
            await self.know_family(found.run_id)
            if found.is_finished:
                self._ends[found.agent_id] = await self._recalled(found)
            else:
                self.start(found.run_id, found.agent_id)
        self._ring()

    async def know_family(self, run_id: str) -> None:
        """Look up what a run and all that share its budget have spent, unless it is known."""
        if self.purses.knows(run_id):
            return
        async with self.writing:  # what is spent meanwhile is counted once
            family = await family_of(self.yard.database, self.lease.tenant_id, run_id)
            self.purses.recall(family.budget_usd, family.spent)

    async def _end_stored(self, run_id: str) -> TaskEnd | None:
        """Give the end of one that another attempt has ended; None when it is told already."""
        for found in await untold(self.yard.database, *self.lease.session):
            if found.run_id == run_id and found.is_finished:
                return await self._recalled(found)
        return None

    async def _recalled(self, found: Beside) -> TaskEnd:
        tenant_id, session_id = self.lease.session
        database = self.yard.database
        lease = replace(self.lease, run_id=found.run_id)
        rows = await rows_of(database, tenant_id, session_id, found.run_id)
        work = await work_of(database, tenant_id, found.run_id)
        try:
            info = self.yard.parts.describe(lease, work)
            ended = folded(parsed(rows), begun(info, found.launched, Spend()))
        except Exception:  # else nobody could drive the session on
            log.exception("A subagent that has ended cannot be read")
            thread = thread_to_end(found.launched)
            ended = unread(lease, work, spent_before=Spend(), spend=Spend(), thread=thread)
        return end_of(
            ended, found.end_reason or "internal", found.ended_s or 0.0, found.took_ms or 0
        )

    # -- money ----------------------------------------------------------------------------

    def paid(self, run_id: str, rows: Sequence[LedgerRow]) -> None:
        """Count what one of them has spent."""
        for row in rows:
            self.meter = self.meter.plus(row)
        self.purses.add(run_id, sum((row.cost_usd or Decimal(0) for row in rows), Decimal(0)))
        self._stop_at_cap(run_id)

    def drawn(self, run_id: str, spent_usd: Decimal) -> None:
        """Take note of what the run that is driven has spent."""
        self.purses.set(run_id, spent_usd)
        self._stop_at_cap(run_id)

    def _stop_at_cap(self, by: str) -> None:
        """Stop all that share a spent budget, but for the one that spent it: its answer counts."""
        for agent in self._agents.values():
            if agent.run_id != by and self.purses.are_spent_together(by, agent.run_id):
                agent.stop("budget")

    # -- stops ----------------------------------------------------------------------------

    def mail(self, run_id: str | None = None) -> bool:
        """Say that something came for one of them, or may have come for any."""
        found = [a for a in self._agents.values() if run_id in {None, a.run_id}]
        for agent in found:
            agent.mail()
        return bool(found)

    def cancel(self, run_id: str) -> bool:
        """Cancel one by its run; its cancel is in the database already."""
        found = [agent for agent in self._agents.values() if agent.run_id == run_id]
        for agent in found:
            agent.stop("cancel")
        return bool(found)

    def heard(self, sent_s: float, cancelled: Collection[tuple[str, str]]) -> None:
        """Take note of a heartbeat that got through, and of cancels whose word was lost.

        `cancelled` are tenants and runs, also of others.
        """
        self.ownership.renewed(sent_s)
        self.mail()
        for tenant_id, run_id in self.runs:
            if (tenant_id, run_id) in cancelled:
                self.cancel(run_id)

    async def stop(self, agent_id: str) -> BackgroundTask | None:
        """End one, and wait until its end is stored; None when no such one works here."""
        agent = self._agents.get(agent_id)
        if agent is None:
            return None
        await self._stopped([agent], "cancel")
        return agent.background_task

    async def stop_all(self, why: Stop = "cancel") -> None:
        """End all, also those that were let go already, and wait until their ends are stored."""
        if not self.is_lost:
            left, self._left = self._left, {}
            for agent_id, run_id in left.items():
                self.start(run_id, agent_id)
        await self._stopped(list(self._agents.values()), why)

    async def _stopped(self, agents: Sequence[BesideRun], why: Stop) -> None:
        for agent in agents:
            agent.stop(why)
        if tasks := [agent.task for agent in agents if agent.task is not None]:
            await asyncio.wait(tasks)

    def drain(self) -> None:
        """Let each go at its next message boundary, or where it waits for an answer."""
        self.is_leaving = True
        for agent in self._agents.values():
            agent.drain()

    def hurry(self) -> None:
        """Let go at once those that are being drained."""
        for agent in self._agents.values():
            agent.stop("drain")

    async def leave(self) -> None:
        """Drain, and wait until nothing is left here."""
        self.drain()
        if tasks := [agent.task for agent in self._agents.values() if agent.task is not None]:
            await asyncio.wait(tasks)

    async def changed(self, is_there: Callable[[], bool]) -> None:
        """Wait until something that depends on this crew is so."""
        while not is_there():
            await self._bell.wait()

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()
