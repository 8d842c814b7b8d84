"""Permission for calls: the pure decision, at the loop's seam; what it leaves open is asked."""

from dataclasses import dataclass, replace
from typing import Protocol

from app.domain.options import AgentOptions
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decide import decide
from app.permissions.decision import Allow, Ask, Deny, Verdict, unanswered
from app.permissions.permissions import NOTHING_SET, Permissions


class Asker(Protocol):
    """Who turns a question into an answer."""

    async def ask(self, call: ToolCall, spec: ToolSpec, question: Ask, scene: Scene) -> Verdict:
        """Give the answer. May wait for a person, and raise `Parked`."""
        ...


class Nobody:
    """For a run that asks nobody: what has to be asked is denied."""

    async def ask(self, _call: ToolCall, _spec: ToolSpec, question: Ask, _scene: Scene) -> Verdict:
        return unanswered(question)


@dataclass(slots=True)
class RuleGate:
    """Decides by rules and mode; asks where they say so."""

    permissions: Permissions
    asker: Asker = Nobody()
    base: Permissions = NOTHING_SET
    """What no option changes: the rules of others, and the place."""

    def adopt(self, options: AgentOptions) -> None:
        """Decide by other options from now on."""
        self.permissions = Permissions.of(options, self.base)

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> Verdict:
        decision = decide(call, spec, self.permissions, scene)
        if not isinstance(decision, Ask):
            return decision
        answer = await self.asker.ask(call, spec, decision, scene)
        if isinstance(answer, Allow) and answer.updated_input is not None:
            # What a person wrote was not there when the rules were asked; deny beats everything.
            edited = decide(
                replace(call, input=answer.updated_input), spec, self.permissions, scene
            )
            return edited if isinstance(edited, Deny) else answer
        return answer
