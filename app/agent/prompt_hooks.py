"""Hooks at the opening of a run, and at each prompt before it enters the conversation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from app.agent.effects import Effects
from app.agent.expansion import expanded
from app.agent.hook_memory import hook_facts
from app.agent.hook_points import contexts, fire, informational, told, with_hook
from app.agent.result_batch import result_batch
from app.agent.start_step import Heard, opening, take_in
from app.agent.state import Advance, LoopState
from app.domain.briefing import Briefing
from app.domain.hook_outcome import HookOutcome
from app.domain.hooks import HookEvent, SessionStart, Setup, UserPromptSubmit
from app.domain.journal import Entry
from app.domain.messages import Prompt


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of prompts."""

    prompts: tuple[Prompt, ...]
    """Those that enter the conversation."""
    heard: Heard
    ends: str | None = None
    """Why the run ends before its next request, in a sentence; None: it goes on."""


async def open_run(
    prompts: Sequence[Prompt],
    briefing: Briefing,
    state: LoopState,
    effects: Effects,
    *,
    also: tuple[Entry, ...] = (),
) -> Advance:
    """Give the first batch of a run: what hooks say of it, `init`, its prompts, what stands behind.

    It is the last one too, with the run's result, when hooks let no prompt in or stop the run.
    """
    before, facts = await _greet(state, effects)
    admitted = await admit(prompts, state, effects, begins=True)
    heard = replace(admitted.heard, before=before, facts=facts)
    texts = await expanded(admitted.prompts, briefing.skills, state, effects)
    servers, tools = effects.servers.readiness(), effects.tools.specs()
    batch = opening(admitted.prompts, state, tools, effects, briefing, texts, servers, heard)
    opened = state.after(replace(batch, entries=(*batch.entries, *also)))
    return opened if admitted.ends is None else opened.then(_ended(admitted.ends, opened, effects))


async def steer(prompts: Sequence[Prompt], state: LoopState, effects: Effects) -> Advance:
    """Give the batch in which prompts that were sent into a run enter its conversation."""
    admitted = await admit(prompts, state, effects, begins=False)
    texts = await expanded(admitted.prompts, state.briefing.skills, state, effects)
    batch = take_in(admitted.prompts, state, effects, texts, heard=admitted.heard)
    if admitted.ends is not None:
        first = with_hook(batch.entries[0], hook_facts(ends="hook_stopped"))
        batch = replace(batch, entries=(first, *batch.entries[1:]))
    return state.after(batch)


async def admit(
    prompts: Sequence[Prompt], state: LoopState, effects: Effects, *, begins: bool
) -> Admitted:
    """Ask `UserPromptSubmit` of each prompt. `begins`: of a run that has made no request yet."""
    asked = [(UserPromptSubmit(prompt.uuid, _text(prompt)), prompt) for prompt in prompts]
    heard = [(event, prompt, await fire(event, state, effects)) for event, prompt in asked]
    kept = {prompt.id for _, prompt, outcome in heard if _objection(outcome) is None}
    stops = any(outcome.stop is not None for _, prompt, outcome in heard if prompt.id in kept)
    ends = stops or (begins and bool(prompts) and not kept)
    notes: list[Entry] = []
    facts: dict[str, dict[str, Any]] = {}
    why: str | None = None
    for event, prompt, outcome in heard:
        notes += told(outcome, event, state, effects)
        if prompt.id in kept:
            facts[prompt.id] = hook_facts(contexts=contexts(outcome, event))
        if prompt.id not in kept or outcome.stop is not None:
            said = _outcome_of(outcome, is_kept=prompt.id in kept)
            notes.append(_warning(said, state, effects, ends=ends))
            why = said["text"]
    return Admitted(
        tuple(prompt for prompt in prompts if prompt.id in kept),
        Heard(
            after=tuple(notes),
            prompts=facts,
            refused=tuple(prompt for prompt in prompts if prompt.id not in kept),
        ),
        why if ends else None,
    )


async def _greet(state: LoopState, effects: Effects) -> tuple[tuple[Entry, ...], dict[str, Any]]:
    """Ask `Setup` and `SessionStart`. A run that no prompt began opens nothing."""
    run = state.run
    if run.follows is not None:
        return (), {}
    is_new = not (state.context or state.results or state.notes)
    events: list[HookEvent] = [Setup("init", "init")] if is_new else []
    source: Literal["startup", "resume"] = "startup" if is_new else "resume"
    events.append(SessionStart("open", source, run.options.model or ""))
    notes: list[Entry] = []
    added: list[str] = []
    for event in events:
        outcome = await fire(event, state, effects)
        notes += told(outcome, event, state, effects)
        added += contexts(outcome, event)
    return tuple(notes), hook_facts(contexts=added)


def _objection(outcome: HookOutcome) -> str | None:
    return outcome.closed if outcome.block is None else outcome.block


def _outcome_of(outcome: HookOutcome, *, is_kept: bool) -> dict[str, Any]:
    """Say what became of a prompt that a hook objects to, or that it ends the run with."""
    if is_kept:
        reason = outcome.stop or ""
        why = "The run ended with this prompt, since a UserPromptSubmit hook told it to stop."
    else:
        reason = _objection(outcome) or ""
        why = "This prompt was not taken in, since a UserPromptSubmit hook of the run blocked it."
    return {
        "text": f"{why} {reason}".strip(),
        "kind": "stopped_by_hook" if is_kept else "blocked_by_hook",
        "prompt_kept": is_kept,
        "reason": reason,
    }


def _warning(said: dict[str, Any], state: LoopState, effects: Effects, *, ends: bool) -> Entry:
    result = {name: said[name] for name in ("kind", "prompt_kept", "reason")}
    return informational(
        said["text"],
        state,
        effects,
        level="warning",
        prevent_continuation=ends or None,
        prompt_submit_outcome=result,
    )


def _ended(why: str, opened: Advance, effects: Effects) -> Advance:
    """End a run before its first request. It has no output, if one was asked for (B11)."""
    state = opened.state
    if state.run.options.output_format is None:
        batch = result_batch(state, effects, terminal_reason=None, end_reason="hook", text=why)
    else:
        batch = result_batch(
            state,
            effects,
            subtype="error_during_execution",
            terminal_reason=None,
            end_reason="hook",
            errors=(why,),
        )
    return state.after(batch)


def _text(prompt: Prompt) -> str:
    """Give the words of a prompt; pictures and documents are left out."""
    if isinstance(prompt.content, str):
        return prompt.content
    return "\n".join(str(b["text"]) for b in prompt.content if b.get("type") == "text")
