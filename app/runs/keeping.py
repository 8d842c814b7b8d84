"""Sessions that this host keeps between runs, since commands of theirs run in the background.

Theory of operation. A run ends; commands that it left in the background do not. The commit that
ends the run then leaves the session's lease with this host: no other host can claim a run of the
session, a prompt that comes is driven here, among its commands. When one of them ends first, a run
follows that nobody asked for: it tells the model (loop 13.3). What ends a keeping: a claim (the new
run takes the commands over), a lost lease, the host's stop; the last two end the commands. The
journal shows them as running then, and whoever drives the next run tells the model.

Subagents go on under the kept lease too. When all of them have ended, and no run can follow here and
now (one waits for an answer without a host, or for now (one waits for an answer without a host, or for a slot), the session is let go: their ends are in
the tables, and any host may tell them. So is one that was archived, once nothing runs there any more.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from app.domain.runs import EndReason
from app.runs.background import Background
from app.runs.crew import Crew
from app.store.beside import Orphans
from app.store.claims import Claim
from app.store.engine import TROUBLE, Database
from app.store.follow_up import follow_up, is_archived
from app.store.leases import Host, Lease, release

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Kept:
    """A session without a run, and its commands."""

    lease: Lease
    """Of the run that ended last, at the next epoch."""
    options: Mapping[str, Any]
    """For the run that follows, in stored form: whether they can be read shows when that is driven."""
    background: Background
    tasks: tuple[str, ...]
    """What goes on there, and is to be told of."""
    renewed_s: float
    """Monotonic time of the newest heartbeat that got through."""
    watch: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Keeper:
    """Owns what is kept, and the tasks that wait for an end."""

    host: Host
    database: Database
    poll_s: float
    slot: Callable[[], AbstractContextManager[Host | None]]
    start: Callable[[Claim], None]
    grew: Callable[[Lease, int], None]
    """Tells readers of a session's new row."""
    is_closed: bool = False
    _kept: dict[tuple[str, str], Kept] = field(default_factory=dict)
    _watches: set[asyncio.Task[None]] = field(default_factory=set)

    def keep(self, kept: Kept) -> None:
        """Keep a session from now on. Called before the commit that ends its run."""
        self._kept[_key(kept.lease)] = kept

    async def adopt(self, found: Orphans, background: Background) -> None:
        """Keep a session that was taken for the sake of its subagents."""
        crew = background.crew
        if (older := self._kept.get(_key(found.lease))) is not None:
            await self._drop(older)  # our own lease had run out
        if self.is_closed:
            await self._release(found.lease)
            return
        try:
            await crew.take_up()
            await crew.know_family(found.lease.run_id)
        except BaseException:
            crew.lose()  # the lease runs out by itself
            raise
        options = crew.purses.left_of(found.lease.run_id, found.options)
        kept = Kept(found.lease, options, background, crew.known, time.monotonic())
        self.keep(kept)
        self.watch(kept)

    def watch(self, kept: Kept) -> None:
        """Let a run follow once a task has ended. Called after that commit."""
        if self._kept.get(_key(kept.lease)) is kept:
            kept.watch = asyncio.create_task(self._watch(kept))
            self._watches.add(kept.watch)
            kept.watch.add_done_callback(self._watches.discard)

    def take(self, lease: Lease) -> Background | None:
        """Give what a session has in its background to its next run; None when it is not kept."""
        kept = self._kept.pop(_key(lease), None)
        if kept is None:
            return None
        self._end_watch(kept)
        if lease.epoch != kept.lease.epoch + 1:
            kept.background.crew.lose()  # another host has held the session meanwhile
            return None
        return kept.background

    def background_of(self, session: tuple[str, str]) -> Background | None:
        """Give what a session has in its background that is kept; None when it is not."""
        kept = self._kept.get(session)
        return None if kept is None else kept.background

    @property
    def crews(self) -> list[Crew]:
        """Give the subagents of all sessions that are kept."""
        return [kept.background.crew for kept in self._kept.values()]

    def forget(self, kept: Kept) -> None:
        """Keep it no more: the commit did not happen. Its commands are the caller's."""
        if self._kept.get(_key(kept.lease)) is kept:
            del self._kept[_key(kept.lease)]

    def leases(self) -> list[Lease]:
        """Give the leases that are to be renewed: of those whose commit has happened."""
        return [kept.lease for kept in self._kept.values() if kept.watch is not None]

    async def heard(
        self,
        asked: Iterable[Lease],
        renewed: Container[Lease],
        sent_s: float,
        cancelled: Collection[tuple[str, str]],
    ) -> None:
        """Take note of a heartbeat; end what belonged to a lease that was lost.

        `cancelled` are runs of subagents whose cancel is asked for, each with its tenant.
        """
        for lease in asked:
            kept = self._kept.get(_key(lease))
            if kept is None or kept.lease != lease:
                continue
            if lease in renewed:
                kept.renewed_s = max(kept.renewed_s, sent_s)
                kept.background.crew.heard(sent_s, cancelled)
            else:
                await self._drop(kept)

    async def end_expired(self) -> None:
        """End what can have another owner by now: its lease ran out, as far as we can tell."""
        now = time.monotonic()
        for kept in list(self._kept.values()):
            if now - kept.renewed_s > self.host.lease_s:
                await self._drop(kept)

    async def close(self) -> None:
        """Keep nothing any more: end commands, let subagents go, then their sessions."""
        self.is_closed = True
        await asyncio.gather(*(crew.leave() for crew in self.crews))
        for kept in list(self._kept.values()):
            await self._drop(kept)
            await self._release(kept.lease)
        await asyncio.gather(*self._watches, return_exceptions=True)

    def hurry(self) -> None:
        """Let subagents go at once that are let go already."""
        for crew in self.crews:
            crew.hurry()

    async def _drop(self, kept: Kept) -> None:
        if self._kept.pop(_key(kept.lease), None) is not None:
            self._end_watch(kept)
            kept.background.crew.lose()
            await kept.background.shells.close()

    async def _release(self, lease: Lease) -> None:
        try:
            await release(self.database, lease)
        except TROUBLE as error:  # the lease runs out by itself
            log.warning("A session cannot be let go: %s", type(error).__name__)

    def _end_watch(self, kept: Kept) -> None:
        if kept.watch is not None and kept.watch is not asyncio.current_task():
            kept.watch.cancel()

    async def _watch(self, kept: Kept) -> None:
        await kept.background.someone_ended(kept.tasks)
        while self._kept.get(_key(kept.lease)) is kept:
            try:
                if await self._follow(kept):
                    return
                if await self._is_of_no_use(kept):
                    await self._drop(kept)
                    await self._release(kept.lease)
                    return
            except TROUBLE as error:
                log.warning("A run cannot follow now: %s", type(error).__name__)
            # A prompt that waits will be driven here, and tells; unless it is taken back.
            await asyncio.sleep(self.poll_s)

    async def _is_of_no_use(self, kept: Kept) -> bool:
        """Whether nothing is kept here that another host would not have, or that can be told."""
        background = kept.background
        if background.is_in_tables(kept.tasks):
            return True
        return not background.running and await is_archived(self.database, kept.lease)

    async def _follow(self, kept: Kept) -> bool:
        with self.slot() as host:
            made = await follow_up(
                self.database,
                self.host,
                kept.lease,
                dict(kept.options),
                may_claim=host is not None,
            )
            if made is None:
                return False
            self.grew(kept.lease, made.last_seq)
            if made.claim is not None:
                self.start(made.claim)
        return made.claim is not None


def end_of_tasks(end_reason: EndReason, *, spares_tasks: bool, is_over_budget: bool) -> str | None:
    """Say how background tasks end with their run; None when they go on without it."""
    if end_reason in {"cancelled", "superseded"} and not spares_tasks:
        return "was stopped with the run"
    if is_over_budget:
        return "was stopped, since the run's budget is spent"
    if end_reason == "deadline":
        return "was stopped at the run's deadline"
    if end_reason in {"internal", "worker_lost"}:
        return "was stopped, since the run could not go on"
    return None


def _key(lease: Lease) -> tuple[str, str]:
    return lease.tenant_id, lease.session_id
