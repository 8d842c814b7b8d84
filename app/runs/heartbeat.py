"""The heartbeat of a host: renews all its leases in one statement, and hears what else is to end.

A lease that is missing from the answer is lost, and its execution is stopped at once. Without an
answer, what may have another owner by now is stopped: its lease ran out, as far as we can tell.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.runs.crew import Crew
from app.runs.execute import Execution
from app.runs.keeping import Keeper
from app.store.beside import cancelled
from app.store.engine import TROUBLE, Database
from app.store.leases import Host, Lease, renew
from app.store.runs import marks_of_options

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Run as a task of the worker."""

    host: Host
    database: Database
    every_s: float
    keeper: Keeper
    executions: Callable[[], Mapping[Lease, Execution]]
    """What this host drives now."""
    crews: Callable[[], Sequence[Crew]]
    """Of the sessions that it holds now."""

    async def renew_forever(self) -> None:
        """Renew leases, stop what is lost or cancelled, until cancelled."""
        while True:
            await asyncio.sleep(self.every_s)
            held, kept = self.executions(), self.keeper.leases()
            if held or kept:
                await self._renew(held, kept)

    async def _renew(self, held: Mapping[Lease, Execution], kept: Sequence[Lease]) -> None:
        sent_s = time.monotonic()
        try:
            async with asyncio.timeout(self.host.lease_s / 2):
                renewed = await renew(self.database, self.host, [*held, *kept])
                marks = await marks_of_options(self.database, [*held])
                beside = [run for crew in self.crews() for run in crew.runs]
                ended = await cancelled(self.database, beside)
        except TROUBLE as error:
            log.warning("Leases cannot be renewed: %s", type(error).__name__)
            self._stop_expired()
            await self.keeper.end_expired()
            return
        await self.keeper.heard(kept, renewed, sent_s, ended)
        for lease, execution in held.items():
            if lease not in renewed:
                execution.stop("lost")
                continue
            execution.ownership.renewed(sent_s)
            execution.options_are(marks.get((lease.tenant_id, lease.run_id)))
            execution.background.crew.heard(sent_s, ended)
            if renewed[lease]:
                execution.stop("cancel")

    def _stop_expired(self) -> None:
        now = time.monotonic()
        for execution in self.executions().values():
            if now - execution.ownership.renewed_s > self.host.lease_s:
                execution.stop("lost")
