"""Hooks that may answer in a person's place: `PermissionRequest`, asked beside the person.

The first answer counts. Where a person is asked too, the hook's answer settles the action like a
person's: so whichever comes second finds it settled, and a host that takes over finds it in its row.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from app.agent.tool_effects import Fire
from app.domain.hook_outcome import HookOutcome
from app.domain.hooks import Notification, PermissionRequest
from app.domain.permissions import HookVerdict, Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decision import Allow, Ask, Author, Deny, Lost, Verdict, unanswered
from app.runs.asking import PersonAsker

BY_HOOK = "hook:"
"""Begins the name of who answered, where that was a hook."""
EVENTS = frozenset({PermissionRequest.name, Notification.name})


@dataclass(frozen=True, slots=True)
class HookedAsker:
    """Asks hooks and, as the run's options say, a person."""

    person: PersonAsker

    async def ask(
        self, call: ToolCall, spec: ToolSpec, question: Ask, scene: Scene, fire: Fire
    ) -> Verdict:
        if not spec.needs_person and not self.person.asks(spec):
            outcome = await _decided(call, question, fire)
            return unanswered(question) if outcome.verdict is None else _verdict(outcome)
        beside = [_notify(call, question, fire)]
        if not spec.needs_person:  # a hook is none
            beside.append(self._answer(call, question, fire))
        tasks = [asyncio.ensure_future(each) for each in beside]
        try:
            return _named(await self.person.ask(call, spec, question, scene, fire))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def answered(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> Verdict | None:
        found = await self.person.answered(call, spec, scene)
        return None if found is None else _named(found)

    async def _answer(self, call: ToolCall, question: Ask, fire: Fire) -> None:
        outcome = await _decided(call, question, fire)
        if outcome.verdict is not None:
            by = f"{BY_HOOK}{outcome.verdict.hook}"
            await self.person.desk.settle(call.id, _body(outcome), by)


async def _notify(call: ToolCall, question: Ask, fire: Fire) -> None:
    await fire(Notification(call.id, question.message, "permission_prompt"))


async def _decided(call: ToolCall, question: Ask, fire: Fire) -> HookOutcome:
    suggestions = [update.model_dump(mode="json") for update in question.suggestions]
    outcome = await fire(PermissionRequest(call.id, call.name, call.input, suggestions))
    if outcome.closed is None:
        return outcome
    # A hook that should have been heard was not: nobody else's leave is enough.
    denied = HookVerdict("deny", f"{outcome.closed} The call was not made.", outcome.closed)
    return replace(outcome, verdict=denied)


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
