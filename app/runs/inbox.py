"""Prompts that wait, at the loop's seam."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.messages import Prompt
from app.store.engine import Database
from app.store.journal import Lease
from app.store.queue import waiting_prompts


@dataclass(frozen=True, slots=True)
class StoredInbox:
    """The inbox rows of one run."""

    database: Database
    lease: Lease

    async def take(self) -> Sequence[Prompt]:
        return await waiting_prompts(self.database, self.lease)
