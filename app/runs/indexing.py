"""Keeps the full text of sessions up to date, behind the runs: what is said is found a moment later."""

import asyncio
import logging
from dataclasses import dataclass

from app.store.engine import TROUBLE, Database
from app.store.search import index_copies, index_messages, index_prompts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Indexer:
    """Takes in what no host has taken in yet; any number of hosts may do so at once."""

    database: Database
    pause_s: float = 1.0

    async def forever(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self.catch_up()
            except TROUBLE as error:
                log.warning("The search waits for the database: %s", type(error).__name__)
            await asyncio.sleep(self.pause_s)

    async def catch_up(self) -> None:
        """Take in all that there is now."""
        while await index_prompts(self.database):
            pass
        while await index_messages(self.database):
            pass
        while await index_copies(self.database):
            pass
