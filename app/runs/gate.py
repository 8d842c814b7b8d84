"""Permission for calls: the pure decision, at the loop's seam."""

from dataclasses import dataclass

from app.domain.options import AgentOptions
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decide import Decision, decide


@dataclass(frozen=True, slots=True)
class RuleGate:
    """Decides by rules and mode alone: nobody is asked."""

    options: AgentOptions

    async def check(self, call: ToolCall, spec: ToolSpec) -> Decision:
        return decide(call, spec, self.options)
