"""What a session's tools put into files since it was too long for a message."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from app.agent.thread_facts import own_facts
from app.domain.tools import STORED, StoredOutput
from app.errors import NotFound, ToolFailed
from app.runs.queries import Queries
from app.store.journal import find_message
from app.store.rows import Row
from app.tools.open_file import OpenFile, in_thread
from app.tools.workspace import Workspace

_PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message of a session's log."""

    row: Row
    stored: StoredOutput | None
    """Where all of a tool's output is, if the message holds a part."""


@dataclass(frozen=True, slots=True)
class StoredOutputs:
    """Single messages, and the files that belong to them."""

    queries: Queries
    folders: Callable[[Mapping[str, Any]], Workspace]
    """Gives a session's own folders, by what is stored of its workspace. The caller closes it."""

    async def message(self, tenant_id: str, session_id: str, uuid: str) -> FoundMessage:
        """Give a message. Raises `NotFound`."""
        await self.queries.session(tenant_id, session_id)
        found = await find_message(self.queries.database, tenant_id, session_id, uuid)
        if found is None:
            raise NotFound("The session has no such message.")
        row, facts = found
        told = own_facts(orjson.loads(facts)).get(STORED) if facts else None
        return FoundMessage(row, StoredOutput.from_json(told) if told else None)

    async def output(
        self, tenant_id: str, session_id: str, uuid: str
    ) -> Callable[[], AsyncGenerator[bytes]]:
        """Find the output that a message holds a part of; what is given reads it.

        Raises `NotFound`.
        """
        stored = (await self.message(tenant_id, session_id, uuid)).stored
        if stored is None:
            raise NotFound("The message has no stored output: it holds all there is.")
        session = await self.queries.session(tenant_id, session_id)

        def opened() -> OpenFile:
            with self.folders(session.workspace) as folders:
                return folders.open(stored.path)

        try:
            opened().close()
        except (OSError, ToolFailed):  # the folder is the agent's: anything may be there now
            raise NotFound("The output is not there any more, or not on this host.") from None
        return lambda: _pieces(opened)


async def _pieces(opened: Callable[[], OpenFile]) -> AsyncGenerator[bytes]:
    """Give what the file held when it was opened."""
    with opened() as file:
        left = file.size_bytes
        while left > 0:
            piece = await in_thread(partial(file.more, min(left, _PIECE_BYTES)))
            if not piece:
                return
            left -= len(piece)
            yield piece
