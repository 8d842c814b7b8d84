"""The toolbox, watched for calls that take long: readers hear that they still run."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from app.agent.tool_effects import Toolbox
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.runs.previews import LivePreviews


@dataclass(frozen=True, slots=True)
class ToldToolbox:
    """Tells of each call again and again while it runs."""

    tools: Toolbox
    previews: LivePreviews
    every_s: float

    def specs(self) -> Sequence[ToolSpec]:
        return self.tools.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self.tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        return self.tools.invalid(call)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        with self._telling(call):
            return await self.tools.call(call, memory)

    @contextmanager
    def _telling(self, call: ToolCall) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        timer: asyncio.TimerHandle

        def tell() -> None:
            nonlocal timer
            self.previews.progress(call, round(loop.time() - began_s))
            timer = loop.call_later(self.every_s, tell)

        timer = loop.call_later(self.every_s, tell)
        try:
            yield
        finally:
            timer.cancel()
