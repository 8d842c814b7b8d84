"""Tools whose workspace is made at the first call: a run that calls none leaves no folder."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from app.agent.tool_effects import Toolbox
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.errors import WorkspaceUnavailable


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
class PreparedToolbox:
    """Prepares, then passes on."""

    tools: Toolbox
    prepared: Prepared

    def specs(self) -> Sequence[ToolSpec]:
        return self.tools.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self.tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        return self.tools.invalid(call)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        try:
            await self.prepared.ready()
        except WorkspaceUnavailable as error:
            return ToolResult(str(error), is_error=True)
        return await self.tools.call(call, memory)
