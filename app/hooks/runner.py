"""Asking the hooks of a run: all that match at once, each with its time-out; then one outcome.

The order in which hooks were registered decides where it matters: the operator's commands, then
Python hooks, then those of the run's options.
"""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.hook_outcome import NOTHING, Failed, HookOutcome, Note, Outcome, Ran, Said
from app.domain.hooks import HookEvent, PreToolUse, SessionStart, Surroundings
from app.domain.permissions import Behavior, HookVerdict
from app.domain.text import printable
from app.hooks.hook import Asked, Hook, HookFailed, Reply
from app.hooks.output import MAX_CHARS, Effect, effect_of

log = logging.getLogger(__name__)

_RANK: Mapping[Behavior, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class _Heard:
    hook: Hook
    notes: tuple[Note, ...]
    effect: Effect = Effect()
    closed: str | None = None


@dataclass(frozen=True, slots=True)
class RunHooks:
    """The hooks of one run."""

    hooks: Sequence[Hook]
    session_id: str
    run_id: str

    @property
    def events(self) -> frozenset[str]:
        """Events of which somebody wants to hear."""
        return frozenset(hook.event for hook in self.hooks)

    async def fire(self, event: HookEvent, around: Surroundings) -> HookOutcome:
        asked = [
            (number, hook)
            for number, hook in enumerate(self.hooks)
            if hook.event == event.name and hook.matches(event.subject)
        ]
        if not asked:
            return NOTHING
        told = self._input(event, around)
        calls = (self._ask(hook, Asked(self._id(event, n), event, told)) for n, hook in asked)
        return merged(await asyncio.gather(*calls))

    def _input(self, event: HookEvent, around: Surroundings) -> dict[str, Any]:
        """Give what hooks are told. `prompt_id` is the run: each prompt has one."""
        told: dict[str, Any] = {
            "session_id": self.session_id,
            "transcript_path": f"/v1/sessions/{self.session_id}/export",
            "cwd": around.cwd,
            "prompt_id": self.run_id,
            "hook_event_name": event.name,
        }
        if event.tells_mode:
            told["permission_mode"] = around.permission_mode
        if event.tells_effort and around.effort is not None:
            told["effort"] = {"level": around.effort}
        if around.agent_id is not None:
            told |= {"agent_id": around.agent_id, "agent_type": around.agent_type}
        return {**told, **event.told()}

    def _id(self, event: HookEvent, number: int) -> str:
        parts = (self.session_id, self.run_id, event.name, event.key, str(number))
        return f"hook_{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}"

    async def _ask(self, hook: Hook, asked: Asked) -> _Heard:
        reply = Reply()
        why: str | None = None
        outcome: Outcome = "error"
        try:
            async with asyncio.timeout(hook.timeout_s) as limit:
                reply = await hook.ask(asked)
            effect = Effect() if reply.output is None else effect_of(reply.output, asked.event)
            return _Heard(hook, _notes(hook, asked, reply, effect), effect)
        except TimeoutError as error:
            if limit.expired():
                outcome = "cancelled"
                why = f"The hook {hook.name} gave no answer within {hook.timeout_s:g} s."
            else:
                why = _words(error)
        except (HookFailed, ValueError) as error:
            why = _words(error)
        except Exception as error:  # a Python hook is somebody else's code: this is its edge
            log.exception(
                "A hook failed unexpectedly", extra={"action": "hook_crashed", "hook": hook.name}
            )
            why = f"it raised {type(error).__name__}"
        ran = _ran(hook, asked, reply, outcome)
        if hook.on_failure == "block" or (
            outcome == "cancelled" and isinstance(asked.event, PreToolUse)
        ):
            said = (
                why
                if outcome == "cancelled"
                else f"The hook {hook.name} failed: {why.rstrip('.')}."
            )
            return _Heard(hook, (ran,), closed=said)
        return _Heard(hook, (ran, Failed(hook.name, why)))


def merged(heard: Sequence[_Heard]) -> HookOutcome:
    """Make one outcome of what the hooks of an event said."""
    effects = [(each.hook, each.effect) for each in heard]
    verdict: HookVerdict | None = None
    for hook, effect in effects:
        if effect.decision is not None and (
            verdict is None or _RANK[effect.decision] > _RANK[verdict.decision]
        ):
            verdict = HookVerdict(effect.decision, effect.reason, hook.name)
    is_denied = verdict is not None and verdict.decision == "deny"

    def all_of(name: str) -> list[Any]:
        values = (getattr(effect, name) for _, effect in effects)
        return [value for value in values if value is not None]

    closed = [each.closed for each in heard if each.closed is not None]
    return HookOutcome(
        verdict=verdict,
        defers=not is_denied and any(effect.defers for _, effect in effects),
        interrupts=is_denied and any(effect.interrupts for _, effect in effects),
        updated_input=next(reversed(all_of("updated_input")), None),
        updated_output=next(reversed(all_of("updated_output")), None),
        contexts=tuple(text for text in all_of("context") if text),
        block=next(iter(all_of("block")), None),
        stop=next(iter(all_of("stop")), None),
        closed=None if is_denied else next(iter(closed), None),
        notes=tuple(note for each in heard for note in each.notes),
    )


def _notes(hook: Hook, asked: Asked, reply: Reply, effect: Effect) -> tuple[Note, ...]:
    ran = _ran(hook, asked, reply, "error" if reply.exit_code else "success")
    return (ran, Said(effect.says)) if effect.says else (ran,)


def _ran(hook: Hook, asked: Asked, reply: Reply, outcome: Outcome) -> Ran:
    return Ran(
        asked.id,
        outcome,
        output=_shown(reply.text),
        stdout=_shown(reply.stdout),
        stderr=_shown(reply.stderr),
        exit_code=reply.exit_code,
        is_always_told=hook.is_always_told and isinstance(asked.event, SessionStart),
    )


def _shown(text: str) -> str:
    return printable(text[:MAX_CHARS])


def _words(error: Exception) -> str:
    return printable(str(error))[:500] or type(error).__name__
