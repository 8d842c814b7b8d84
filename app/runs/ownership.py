"""The fence in front of side effects.

An append cannot go wrong: its statement checks the epoch. A model request or a tool can: a process
that was frozen longer than its lease wakes up and goes on as if it owned the session. So before each
of them it is checked that a heartbeat got through recently; if not, the database is asked.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.errors import LeaseLost


@dataclass(slots=True)
class Ownership:
    """Whether this process still owns a session, as far as it knows."""

    fresh_s: float
    """How long a heartbeat is trusted: half a lease."""
    renew: Callable[[], Awaitable[bool]]
    """Asks the database: renews the lease, or says that it is lost."""
    renewed_s: float = 0.0
    """When the newest heartbeat that got through was sent."""

    def renewed(self, sent_s: float) -> None:
        """Take note of a heartbeat that got through; `sent_s` is when it was sent."""
        self.renewed_s = max(self.renewed_s, sent_s)

    async def check(self) -> None:
        """Raise `LeaseLost` unless the session is known to be ours."""
        now = time.monotonic()
        if now - self.renewed_s < self.fresh_s:
            return
        if not await self.renew():
            raise LeaseLost("the lease ran out while this process was away")
        self.renewed(now)
