"""Hooks that may answer in a person's place: `PermissionRequest`, asked beside the person.

The first answer counts. Where a person is asked too, the hook's answer settles the action like a
person's: so whichever comes second finds it settled, and a host that takes over finds it in its row.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from app.domain.hook_outcome import Failed, HookOutcome
from app.domain.hooks import Notification, PermissionRequest, Surroundings
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolSpec
from app.hooks.runner import RunHooks
from app.permissions.decision import Allow, Ask, Author, Deny, Lost, Verdict, unanswered
from app.runs.asking import PersonAsker

log = logging.getLogger(__name__)

BY_HOOK = "hook:"
"""Begins the name of who answered, where that was a hook."""
EVENTS = frozenset({PermissionRequest.name, Notification.name})


@dataclass(frozen=True, slots=True)
class HookedAsker:
    """Asks hooks and, as the run's options say, a person."""

    person: PersonAsker
    hooks: RunHooks
    around: Callable[[Scene], Surroundings]

    async def ask(self, call: ToolCall, spec: ToolSpec, question: Ask, scene: Scene) -> Verdict:
        if spec.needs_person:  # a hook is none
            return await self._of_person(call, spec, question, scene, self._notify)
        if not self.person.asks(spec):
            outcome = await self._decided(call, question, scene)
            return unanswered(question) if outcome.verdict is None else _verdict(outcome)
        return await self._of_person(call, spec, question, scene, self._answer)

    async def answered(self, call: ToolCall, spec: ToolSpec) -> Verdict | None:
        found = await self.person.answered(call, spec)
        return None if found is None else _named(found)

    async def _of_person(
        self,
        call: ToolCall,
        spec: ToolSpec,
        question: Ask,
        scene: Scene,
        beside: Callable[[ToolCall, Ask, Scene], Awaitable[None]],
    ) -> Verdict:
        task = asyncio.ensure_future(beside(call, question, scene))
        try:
            return _named(await self.person.ask(call, spec, question, scene))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _notify(self, call: ToolCall, question: Ask, scene: Scene) -> None:
        event = Notification(call.id, question.message, "permission_prompt")
        await self.hooks.fire(event, self.around(scene))

    async def _answer(self, call: ToolCall, question: Ask, scene: Scene) -> None:
        _, outcome = await asyncio.gather(
            self._notify(call, question, scene), self._decided(call, question, scene)
        )
        if outcome.verdict is not None:
            by = f"{BY_HOOK}{outcome.verdict.hook}"
            await self.person.desk.settle(call.id, _body(outcome), by)

    async def _decided(self, call: ToolCall, question: Ask, scene: Scene) -> HookOutcome:
        suggestions = [update.model_dump(mode="json") for update in question.suggestions]
        event = PermissionRequest(call.id, call.name, call.input, suggestions)
        outcome = await self.hooks.fire(event, self.around(scene))
        for note in outcome.notes:
            if isinstance(note, Failed):  # the call's result is not there yet: nothing carries it
                log.warning("The PermissionRequest hook %s failed: %s", note.hook, note.why)
        return outcome


def _body(outcome: HookOutcome) -> dict[str, Any]:
    """Give the outcome as a person would have answered."""
    verdict = outcome.verdict
    if verdict is not None and verdict.decision == "allow":
        changed = outcome.updated_input
        return {"behavior": "allow", **({} if changed is None else {"updated_input": changed})}
    reason = (verdict.reason if verdict else None) or "A hook denied this call."
    return {"behavior": "deny", "message": reason, "interrupt": outcome.interrupts}


def _verdict(outcome: HookOutcome) -> Verdict:
    body = _body(outcome)
    by = Author("hook", outcome.verdict.hook if outcome.verdict else "")
    if body["behavior"] == "allow":
        return Allow("hook", by, source="hook", updated_input=body.get("updated_input"))
    return Deny(
        "hook",
        body["message"],
        by,
        source="hook",
        interrupts=body["interrupt"],
        is_announced=False,
    )


def _named(verdict: Verdict) -> Verdict:
    """Say that it was a hook who answered, if it was."""
    if isinstance(verdict, Lost) or not verdict.by.name.startswith(BY_HOOK):
        return verdict
    by = Author("hook", verdict.by.name.removeprefix(BY_HOOK))
    return replace(verdict, by=by, source="hook", reason="hook")
