"""What every host with a worker does for all of them, now and then: whoever comes first."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.runs.live import Hub
from app.store.bus import Bus
from app.store.engine import TROUBLE, Database
from app.store.idempotency import forget_old
from app.store.settling import expire_due
from app.store.words import MailArrived

log = logging.getLogger(__name__)

TIDY_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Chores:
    """Run as tasks of the worker."""

    database: Database
    bus: Bus
    hub: Hub
    poll_s: float
    mail: Callable[[str], bool]
    """Says that something came for a run; False when it is not driven here."""
    wake: Callable[[], None]
    """Has work looked for."""
    adopt: Callable[[], Awaitable[bool]]
    """Takes one session whose subagents nobody drives; False when there is none."""

    async def expire_forever(self) -> None:
        """Settle actions that nobody answered in time, until cancelled."""
        while True:
            await asyncio.sleep(self.poll_s)
            try:
                due = await expire_due(self.database)
            except TROUBLE as error:
                log.warning("Expired actions cannot be settled: %s", type(error).__name__)
                continue
            for action in due:
                self.hub.grew(action.tenant_id, action.session_id, action.seq)
                if not self.mail(action.run_id):
                    self.bus.say(MailArrived(action.run_id))
            if due:
                self.wake()

    async def adopt_forever(self) -> None:
        """Take sessions whose subagents in the background nobody drives, until cancelled."""
        while True:
            await asyncio.sleep(self.poll_s)
            try:
                while await self.adopt():
                    pass
            except TROUBLE as error:
                log.warning("Subagents cannot be taken up: %s", type(error).__name__)
            except Exception:  # the edge: one session's failure must not take the host down
                log.exception("A session's subagents cannot be taken up")

    async def tidy_forever(self) -> None:
        """Forget what is kept for a day only, until cancelled."""
        while True:
            try:
                await forget_old(self.database)
            except TROUBLE as error:
                log.warning("Old answers cannot be forgotten: %s", type(error).__name__)
            await asyncio.sleep(TIDY_EVERY_S)
