"""The fence in front of side effects.

An append cannot go wrong: its statement checks the epoch. A model request or a tool can: a process
that was frozen longer than its lease wakes up and goes on as if it owned the session. So before each
of them it is checked that a heartbeat got through recently; if not, the database is asked.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from app.agent.effects import Model, Toolbox
from app.domain.model import ModelRequest, ModelResponse, StreamPart
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.errors import LeaseLost


@dataclass(slots=True)
class Ownership:
    """Whether this process still owns a session, as far as it knows."""

    fresh_s: float
    """How long a heartbeat is trusted: half a lease."""
    renew: Callable[[], Awaitable[bool]]
    """Asks the database: renews the lease, or says that it is lost."""
    renewed_s: float = 0.0
    """When the newest heartbeat that got through was sent."""

    def renewed(self, sent_s: float) -> None:
        """Take note of a heartbeat that got through; `sent_s` is when it was sent."""
        self.renewed_s = max(self.renewed_s, sent_s)

    async def check(self) -> None:
        """Raise `LeaseLost` unless the session is known to be ours."""
        now = time.monotonic()
        if now - self.renewed_s < self.fresh_s:
            return
        if not await self.renew():
            raise LeaseLost("the lease ran out while this process was away")
        self.renewed(now)


@dataclass(frozen=True, slots=True)
class FencedModel:
    """Asks the model only as the owner."""

    model: Model
    ownership: Ownership

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart | ModelResponse]:
        await self.ownership.check()
        async with aclosing(self.model.stream(request)) as parts:
            async for part in parts:
                yield part


@dataclass(frozen=True, slots=True)
class FencedToolbox:
    """Starts a tool only as the owner."""

    tools: Toolbox
    ownership: Ownership

    def specs(self) -> Sequence[ToolSpec]:
        return self.tools.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self.tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        return self.tools.invalid(call)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        await self.ownership.check()
        return await self.tools.call(call, memory)
