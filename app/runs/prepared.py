"""Tools whose workspace is made at the first call: a run that calls none leaves no folder."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.errors import WorkspaceUnavailable
from app.runs.passing import PassingToolbox


@dataclass(slots=True)
class Prepared:
    """Something that is prepared once. Whoever comes meanwhile waits."""

    prepare: Callable[[], Awaitable[None]]
    """Raises `WorkspaceUnavailable`; then the next one tries again."""
    _is_ready: bool = False
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ready(self) -> None:
        """Prepare, if that was not done yet. Raises `WorkspaceUnavailable`."""
        if not self._is_ready:
            async with self._lock:
                if not self._is_ready:
                    await self.prepare()
                self._is_ready = True


@dataclass(frozen=True, slots=True)
class PreparedToolbox(PassingToolbox):
    """Prepares, then passes on."""

    prepared: Prepared

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        try:
            await self.prepared.ready()
        except WorkspaceUnavailable as error:
            return ToolResult(str(error), is_error=True)
        return await self.tools.call(call, memory)
