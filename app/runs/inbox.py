"""Prompts that wait, at the loop's seam."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.domain.messages import Prompt
from app.store.engine import GONE, Database
from app.store.inbox import waiting_prompts
from app.store.leases import Lease


@dataclass(slots=True)
class StoredInbox:
    """The inbox rows of one run. Looks only when it was told that something came."""

    database: Database
    lease: Lease
    known: Sequence[Prompt] | None = None
    """What waits, when that is known already."""
    _waiting: list[Prompt] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)
    _has_mail: bool = True

    def ring(self) -> None:
        """Say that something came."""
        self._has_mail = True
        self.known = None  # it was known before that came

    async def take(self, *, steers: bool) -> Sequence[Prompt]:
        if self._has_mail:
            self._has_mail = False
            self._waiting = [p for p in await self._look() if p.id not in self._taken]
        taken = [prompt for prompt in self._waiting if prompt.is_steer == steers]
        self._waiting = [prompt for prompt in self._waiting if prompt.is_steer != steers]
        self._taken.update(prompt.id for prompt in taken)
        return taken

    async def _look(self) -> Sequence[Prompt]:
        if self.known is not None:
            known, self.known = self.known, None
            return known
        while True:
            try:
                return await waiting_prompts(self.database, self.lease)
            except GONE:  # the run goes on when the database is back
                await asyncio.sleep(0.5)
