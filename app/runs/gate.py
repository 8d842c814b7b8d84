"""Permission for calls: the pure decision, at the loop's seam; what it leaves open is asked."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from app.agent.tool_effects import Fire
from app.domain.options import AgentOptions
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decide import decide
from app.permissions.decision import Allow, Ask, Deny, Verdict, unanswered
from app.permissions.hidden import hidden_by
from app.permissions.permissions import NOTHING_SET, Permissions
from app.runs.classifying import Classifier

EXIT_PLAN = "ExitPlanMode"
"""Allowed, it ends the mode `plan`."""
NO_PLAN = (
    "There is no plan to approve: you are not in the permission mode plan. Go on with the task."
)


class Asker(Protocol):
    """Who turns a question into an answer."""

    async def ask(
        self, call: ToolCall, spec: ToolSpec, question: Ask, scene: Scene, fire: Fire
    ) -> Verdict:
        """Give the answer. May wait for a person, and raise `Parked`."""
        ...

    async def answered(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> Verdict | None:
        """Give the answer that came while nobody drove the run, if the call has one."""
        ...


class Nobody:
    """For a run that asks nobody: what has to be asked is denied."""

    async def ask(
        self, _call: ToolCall, _spec: ToolSpec, question: Ask, _scene: Scene, _fire: Fire
    ) -> Verdict:
        return unanswered(question)

    async def answered(self, _call: ToolCall, _spec: ToolSpec, _scene: Scene) -> Verdict | None:
        return None


@dataclass(slots=True)
class RuleGate:
    """Decides by rules and mode; asks where they say so."""

    permissions: Permissions
    asker: Asker = Nobody()
    base: Permissions = NOTHING_SET
    """What no option changes: the rules of others, and the place."""
    of_project: Callable[[Permissions], Permissions] | None = None
    """Adds the rules of the project's own settings; asked once, before the first call."""
    classifier: Classifier | None = None
    """Is asked before people are, in the mode `auto`."""

    def adopt(self, options: AgentOptions) -> None:
        """Decide by other options from now on."""
        self.permissions = Permissions.of(options, self.base)

    def hidden(self) -> Callable[[str], bool] | None:
        """Give the test of paths that a search keeps to itself; None when there are none."""
        return hidden_by(self.permissions)

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
        self._take_project_in()
        permissions = self.permissions.with_granted(scene.granted)
        decision = decide(call, spec, permissions, scene)
        if isinstance(decision, Deny):
            return decision
        # It may have changed the rules too: what it says of this call comes first.
        if (answer := await self.asker.answered(call, spec, scene)) is not None:
            return self._still_allowed(call, spec, scene, answer)
        if not isinstance(decision, Ask):
            return decision
        if spec.name == EXIT_PLAN and self.permissions.mode != "plan":
            return Deny("other", NO_PLAN, is_announced=False)
        if decision.needs_classifier and self.classifier is not None:
            allowed = await self.classifier.judge(call, decision)
            if allowed is not None:
                return allowed
        answer = await self.asker.ask(call, spec, decision, scene, fire)
        return self._still_allowed(call, spec, scene, answer)

    def _take_project_in(self) -> None:
        if self.of_project is not None:
            self.base, self.permissions = map(self.of_project, (self.base, self.permissions))
            self.of_project = None

    def _still_allowed(
        self, call: ToolCall, spec: ToolSpec, scene: Scene, answer: Verdict
    ) -> Verdict:
        if isinstance(answer, Allow) and answer.updated_input is not None:
            # What a person wrote was not there when the rules were asked; deny beats everything.
            edited = decide(
                replace(call, input=answer.updated_input), spec, self.permissions, scene
            )
            return edited if isinstance(edited, Deny) else answer
        return answer

    def reads(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> bool:
        """Whether a call only reads and no rule is against it, whatever mode and allow rules say."""
        self._take_project_in()
        return isinstance(decide(call, spec, self.permissions.for_reading(), scene), Allow)
