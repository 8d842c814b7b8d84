"""Prompts that wait, at the loop's seam."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.messages import Prompt
from app.store.engine import GONE, Database
from app.store.journal import Lease
from app.store.queue import waiting_prompts


@dataclass(slots=True)
class StoredInbox:
    """The inbox rows of one run. Looks only when it was told that something came."""

    database: Database
    lease: Lease
    known: Sequence[Prompt] | None = None
    """What waits, when that is known already."""
    _has_mail: bool = True

    def ring(self) -> None:
        """Say that something came."""
        self._has_mail = True

    async def take(self) -> Sequence[Prompt]:
        if not self._has_mail:
            return ()
        self._has_mail = False
        if self.known is not None:
            known, self.known = self.known, None
            return known
        while True:
            try:
                return await waiting_prompts(self.database, self.lease)
            except GONE:  # the run goes on when the database is back
                await asyncio.sleep(0.5)
