"""A toolbox around another: what it does to calls differs, all else is passed on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.agent.tool_effects import Toolbox
from app.domain.tools import ToolCall, ToolResult, ToolSpec


@dataclass(frozen=True, slots=True)
class PassingToolbox:
    """All of `app.agent.tool_effects.Toolbox` but `call`."""

    tools: Toolbox
    spec: Callable[[str], ToolSpec | None] = field(init=False, repr=False, compare=False)
    """The inner toolbox's own, as `invalid` is: several stand in each other, and each call asks often."""
    invalid: Callable[[ToolCall], ToolResult | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self.tools.spec)
        object.__setattr__(self, "invalid", self.tools.invalid)

    def specs(self) -> Sequence[ToolSpec]:
        return self.tools.specs()
