"""What the HTTP layer gets: everything it may call, nothing it must build."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.runs.actions import Actions
from app.runs.callers import Callers
from app.runs.commands import Commands
from app.runs.controls import Controls
from app.runs.live import Hub
from app.runs.queries import Queries
from app.runs.servers import ServerControls
from app.runs.sessions import Sessions
from app.runs.skills import Skills
from app.runs.slots import StreamSlots
from app.runs.starts import Starts
from app.runs.stored_outputs import StoredOutputs
from app.runs.window import WindowReader
from app.runs.worker import Worker
from app.store.engine import Database


@dataclass(slots=True)
class Service:
    """A host, running."""

    database: Database
    hub: Hub
    worker: Worker | None
    starts: Starts
    commands: Commands
    sessions: Sessions
    skills: Skills
    actions: Actions
    controls: Controls
    servers: ServerControls
    queries: Queries
    outputs: StoredOutputs
    window: WindowReader
    callers: Callers
    meta: Callable[[], Mapping[str, Any]]
    """The body of `/v1/meta`."""
    stream_heartbeat_s: float
    stream_send_timeout_s: float
    stream_max_age_s: float
    stream_slots: StreamSlots
    drain_s: float
    is_draining: bool = False

    async def drain(self) -> None:
        """Stop taking work, end streams, let runs go at their next boundary. Once is enough."""
        if self.is_draining:
            return
        self.is_draining = True
        self.hub.close()
        if self.worker is not None:
            await self.worker.drain(self.drain_s)

    async def is_ready(self) -> bool:
        """Whether requests can be served: the database answers and this host stays."""
        if self.is_draining:
            return False
        try:
            async with asyncio.timeout(2):  # the wait for a connection is part of it
                await self.database.raw.fetchval("SELECT 1")
        except Exception:  # noqa: BLE001 - any failure means the same
            return False
        return True
