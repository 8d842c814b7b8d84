"""The toolbox, watched for calls that take long: readers hear that they still run."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.runs.passing import PassingToolbox
from app.runs.previews import LivePreviews
from app.within import beside


@dataclass(frozen=True, slots=True)
class ToldToolbox(PassingToolbox):
    """Tells of each call again and again while it waits."""

    previews: LivePreviews
    every_s: float

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        return await beside(self.tools.call(call, memory), lambda: self._telling(call))

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
