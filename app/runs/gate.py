"""Permission for calls: the pure decision, at the loop's seam; what it leaves open is asked."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from app.agent.tool_effects import Fire
from app.domain.options import AgentOptions
from app.domain.permissions import Scene
from app.domain.skills import SKILL_TOOL
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
    names_of: Callable[[str], frozenset[str]] | None = None
    """Gives all names of the skill that a name means."""

    def adopt(self, options: AgentOptions) -> None:
        """Decide by other options from now on."""
        self.permissions = Permissions.of(options, self.base)

    def hidden(self) -> Callable[[str], bool] | None:
        """Give the test of paths that a search keeps to itself; None when there are none."""
        return hidden_by(self.permissions)

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
        self._take_project_in()
        scene = self._seen(call, spec, scene)
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
            call = replace(call, input=answer.updated_input)
            edited = decide(call, spec, self.permissions, self._seen(call, spec, scene))
            return edited if isinstance(edited, Deny) else answer
        return answer

    def reads(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> bool:
        """Whether a call only reads and no rule is against it, whatever mode and allow rules say."""
        self._take_project_in()
        scene = self._seen(call, spec, scene)
        return isinstance(decide(call, spec, self.permissions.for_reading(), scene), Allow)

    def _seen(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> Scene:
        """Add the names of the skill that a call loads, where a rule could mean one of them."""
        name = call.input.get("skill")
        if spec.name != SKILL_TOOL or self.names_of is None or not isinstance(name, str):
            return scene
        if all(rule.is_bare or rule.tool != SKILL_TOOL for rule in self.permissions.rules.all):
            return scene
        return replace(scene, also_named=self.names_of(name.strip().removeprefix("/")))
