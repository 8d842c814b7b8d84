"""Prompts that wait, at the loop's seam."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.messages import Prompt
from app.store.engine import GONE, Database
from app.store.journal import Lease
from app.store.queue import waiting_prompts


@dataclass(frozen=True, slots=True)
class StoredInbox:
    """The inbox rows of one run."""

    database: Database
    lease: Lease

    async def take(self) -> Sequence[Prompt]:
        while True:
            try:
                return await waiting_prompts(self.database, self.lease)
            except GONE:  # the run goes on when the database is back
                await asyncio.sleep(0.5)
