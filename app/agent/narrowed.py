"""Some tools of another toolbox: what a subagent is offered."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.agent.tool_effects import Toolbox
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec


@dataclass(frozen=True, slots=True)
class NarrowedToolbox:
    """Offers the tools that `names` names; calls of others find no tool."""

    tools: Toolbox
    names: Collection[str]

    def specs(self) -> Sequence[ToolSpec]:
        return tuple(spec for spec in self.tools.specs() if spec.name in self.names)

    def spec(self, name: str) -> ToolSpec | None:
        spec = self.tools.spec(name)
        return spec if spec is not None and spec.name in self.names else None

    def invalid(self, call: ToolCall) -> ToolResult | None:
        return self.tools.invalid(call) if self.spec(call.name) else no_such_tool(call)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        if self.spec(call.name) is None:
            return no_such_tool(call)
        return await self.tools.call(call, memory)


def no_such_tool(call: ToolCall) -> ToolResult:
    """Give the result of a call of a tool that is not on offer."""
    text = f"<tool_use_error>Error: No such tool available: {call.name}</tool_use_error>"
    return ToolResult(text, is_error=True)
