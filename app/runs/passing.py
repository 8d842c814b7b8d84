"""A toolbox around another: what it does to calls differs, all else is passed on."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.agent.tool_effects import Toolbox
from app.domain.tools import ToolCall, ToolResult, ToolSpec


@dataclass(frozen=True, slots=True)
class PassingToolbox:
    """All of `app.agent.tool_effects.Toolbox` but `call`."""

    tools: Toolbox

    def specs(self) -> Sequence[ToolSpec]:
        return self.tools.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self.tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        return self.tools.invalid(call)
