"""Python tools in place of the MCP server `m` of the traces."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from app.domain.tools import ToolResult, ToolSource
from app.errors import ToolFailed
from app.tools.tool import Tool, ToolContext, ToolInput, tool


class SleepInput(ToolInput):
    s: float
    """Seconds to sleep."""
    n: str
    """The label; `raise` makes the call fail after its sleep."""


@dataclass(slots=True)
class StandIns:
    """`ro` (read-only) and `rw`, and what was seen from inside of them."""

    events: list[str] = field(default_factory=list)

    def tools(self) -> tuple[Tool[Any], ...]:  # each has an input type of its own
        return (self._tool("ro", read_only=True), self._tool("rw", read_only=False))

    def _tool(self, name: str, *, read_only: bool) -> Tool[SleepInput]:
        async def sleep(given: SleepInput, _: ToolContext) -> ToolResult:
            self.events.append(f"start {name} {given.n}")
            await asyncio.sleep(given.s)
            self.events.append(f"end {name} {given.n}")
            if given.n == "raise":
                raise ToolFailed("kaboom")
            content = [{"type": "text", "text": f"r-{given.n}"}]
            return ToolResult(content, structured=content)

        named = tool(
            name=f"mcp__m__{name}",
            description="Sleeps, then gives its label back.",
            input_model=SleepInput,
            read_only=read_only,
        )
        made = named(sleep)
        return replace(made, spec=replace(made.spec, source=ToolSource("m", name)))
