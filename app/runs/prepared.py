"""Tools whose workspace is made at the first call: a run that calls none leaves no folder."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from app.agent.effects import Toolbox
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.errors import WorkspaceUnavailable


@dataclass(slots=True)
class PreparedToolbox:
    """Prepares once, then passes on. Calls that come meanwhile wait."""

    tools: Toolbox
    prepare: Callable[[], Awaitable[None]]
    """Raises `WorkspaceUnavailable`; then the call fails, and the next one tries again."""
    _is_ready: bool = False
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def specs(self) -> Sequence[ToolSpec]:
        return self.tools.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self.tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        return self.tools.invalid(call)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        if not self._is_ready:
            async with self._lock:
                try:
                    if not self._is_ready:
                        await self.prepare()
                except WorkspaceUnavailable as error:
                    return ToolResult(str(error), is_error=True)
                self._is_ready = True
        return await self.tools.call(call, memory)
