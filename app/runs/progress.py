"""The toolbox, watched for calls that take long: readers hear that they still run."""

import asyncio
from dataclasses import dataclass

from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.runs.passing import PassingToolbox
from app.runs.previews import LivePreviews


@dataclass(frozen=True, slots=True)
class ToldToolbox(PassingToolbox):
    """Tells of each call again and again while it runs."""

    previews: LivePreviews
    every_s: float

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        timer: asyncio.TimerHandle

        def tell() -> None:
            nonlocal timer
            self.previews.progress(call, round(loop.time() - began_s))
            timer = loop.call_later(self.every_s, tell)

        timer = loop.call_later(self.every_s, tell)
        try:
            return await self.tools.call(call, memory)
        finally:
            timer.cancel()
