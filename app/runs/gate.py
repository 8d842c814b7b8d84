"""Permission for calls: the pure decision, at the loop's seam."""

from dataclasses import dataclass

from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decide import Permissions, decide
from app.permissions.decision import Ask, Verdict, unanswered


@dataclass(frozen=True, slots=True)
class RuleGate:
    """Decides by rules and mode alone: nobody is asked, so what has to be asked is denied."""

    permissions: Permissions

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> Verdict:
        decision = decide(call, spec, self.permissions, scene)
        return unanswered(decision) if isinstance(decision, Ask) else decision
