"""What a run writes: asked of the database until it answers, and nothing of it stored twice."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.domain.actions import RUN_RESUMED
from app.domain.journal import Batch, ServiceEvent
from app.errors import LeaseLost
from app.store import journal
from app.store.append import was_stored
from app.store.claims import Claim
from app.store.engine import GONE, Database
from app.store.group_commit import GroupCommit
from app.store.leases import Lease
from app.store.rows import LogRange, Row

log = logging.getLogger(__name__)

T = TypeVar("T")
OUTAGE_POLL_S = 0.5
"""How often a run tries again what the database did not answer."""


@dataclass(slots=True)
class Writer:
    """The writing end of one claimed run."""

    database: Database
    lease: Lease
    appends: GroupCommit
    mail: Callable[[], None]
    """Called when something came for the run."""
    last_seq: int
    """Of the newest row that this host knows of."""
    first: Sequence[ServiceEvent] = ()
    """Events that go ahead of the next batch."""
    is_lost: bool = False
    """Whether the lease is known to be lost: nothing is waited for any more."""

    async def append(
        self, batch: Batch, *, keeps_session: bool = False, is_beside: bool = False
    ) -> list[Row]:
        """Append under the fence; outlast an outage. Raises `LeaseLost`."""
        rows = await self._append(batch, keeps_session=keeps_session, is_beside=is_beside)
        self.first = ()
        self.last_seq = rows[-1].seq if rows else self.last_seq
        return rows

    async def outlast(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the database until it answers. Only for what may be asked twice.

        Raises `LeaseLost` when the lease was lost meanwhile.
        """
        while True:
            try:
                return await ask()
            except GONE as error:
                log.warning("The run waits for the database: %s", type(error).__name__)
            await asyncio.sleep(OUTAGE_POLL_S)
            self._check_lease()

    async def _append(self, batch: Batch, *, keeps_session: bool, is_beside: bool) -> list[Row]:
        while True:
            try:
                return await self.appends.append(
                    self.lease,
                    batch,
                    first=self.first,
                    on_mail=self.mail,
                    keeps_session=keeps_session,
                    is_beside=is_beside,
                )
            except GONE as error:
                log.warning("An append waits for the database: %s", type(error).__name__)
            if rows := await self._stored_after_all():
                return rows

    async def _stored_after_all(self) -> list[Row]:
        """Wait for the database; give the rows when the append had worked but its answer was lost."""
        while True:
            await asyncio.sleep(OUTAGE_POLL_S)
            self._check_lease()
            with contextlib.suppress(*GONE):
                if not await was_stored(self.database, self.lease, after=self.last_seq):
                    return []
                return await journal.read(
                    self.database, *self.lease.session, LogRange(self.last_seq)
                )

    def _check_lease(self) -> None:
        if self.is_lost:
            raise LeaseLost("the lease was lost while the database was away")


def begun(claim: Claim) -> ServiceEvent:
    """Give the event that says that a host has taken the run, or taken it up again."""
    if claim.has_waited:
        return ServiceEvent(RUN_RESUMED, {"attempt": claim.attempt})
    return announcement(claim.attempt)


def announcement(attempt: int) -> ServiceEvent:
    """Give the event that says that a host has begun the run."""
    return ServiceEvent("run.started" if attempt == 1 else "run.attempt", {"attempt": attempt})
