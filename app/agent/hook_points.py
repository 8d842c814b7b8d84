"""Asking hooks, and telling what they said: what the steps of the loop share."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from app.agent.effects import Effects, Stamps
from app.agent.hook_memory import HOOK
from app.agent.state import Advance, LoopState
from app.domain.hook_outcome import NOTHING, Failed, HookOutcome, Note, Ran, Said
from app.domain.hooks import HookEvent, StopFailure, Surroundings
from app.domain.journal import Batch, Entry
from app.domain.messages import AssistantMessage
from app.domain.notices import HookResponseMessage, HookStartedMessage, InformationalMessage


async def fire(event: HookEvent, state: LoopState, effects: Effects) -> HookOutcome:
    """Ask the hooks of an event; costs nothing where there are none. Never raises."""
    if event.name not in state.run.hooks:
        return NOTHING
    options, thread = state.run.options, state.run.thread
    around = Surroundings(
        state.memory.cwd or state.run.cwd,
        options.permission_mode,
        options.effort,
        thread.agent_id if thread else None,
        thread.agent_type if thread else None,
    )
    return await effects.hooks.fire(event, around)


async def tell_of_failure(ended: Advance, state: LoopState, effects: Effects) -> None:
    """Ask `StopFailure` when a run is about to end since its model request failed for good."""
    outcome = ended.batch.outcome
    if outcome is None or outcome.end_reason != "model_error":
        return
    messages = [entry.message for entry in ended.batch.entries]
    said = [m.error for m in messages if isinstance(m, AssistantMessage) and m.error]
    event = StopFailure("end", said[-1] if said else "unknown", state.last_text)
    await fire(event, state, effects)


def told(
    outcome: HookOutcome, event: HookEvent, state: LoopState, stamps: Stamps
) -> tuple[Entry, ...]:
    """Give what readers are told of the hooks of an event."""
    return tuple(entry for note in outcome.notes for entry in _told(note, event, state, stamps))


def contexts(outcome: HookOutcome, event: HookEvent) -> list[str]:
    """Give what the model is told of the hooks of an event. Objections are told like context."""
    words = [f"A {event.hook_name} hook adds:\n{text}" for text in outcome.contexts]
    if outcome.block is not None:
        words.append(f"A {event.hook_name} hook objects:\n{outcome.block}")
    return words


def hooked(batch: Batch, facts: Mapping[str, Any], state: LoopState) -> Advance:
    """Give the state after a step of hooks: facts go with the first entry, or wait for one."""
    if not batch.entries:
        stored = state.after(batch)
        return replace(stored.state.remembering(facts), batch=batch)
    first, *rest = batch.entries
    return state.after(replace(batch, entries=(with_hook(first, facts), *rest)))


def with_hook(entry: Entry, facts: Mapping[str, Any]) -> Entry:
    """Give the entry with facts of hooks, if there are any."""
    if not facts:
        return entry
    own = entry.facts or {}
    return replace(entry, facts={**own, HOOK: [*own.get(HOOK, ()), facts]})


def informational(
    content: str,
    state: LoopState,
    stamps: Stamps,
    **told: Any,  # noqa: ANN401 - fields of the message
) -> Entry:
    """Make the message that tells a person something. A notice, unless `level` says otherwise."""
    return Entry.of(
        InformationalMessage(
            session_id=state.run.session_id,
            uuid=stamps.clock.uuid(),
            content=content,
            **{"level": "notice", **told},
        )
    )


def _told(note: Note, event: HookEvent, state: LoopState, stamps: Stamps) -> tuple[Entry, ...]:
    match note:
        case Said(text):
            return (informational(f"{event.hook_name} says: {text}", state, stamps),)
        case Failed(hook, why):
            text = f"The {event.hook_name} hook {hook} gave no answer that can be used: {why}"
            warning = {"level": "warning", "tag": "hook_callback_failed"}
            return (informational(text, state, stamps, **warning),)
        case Ran():
            is_told = note.is_always_told or state.run.options.include_hook_events
            return _ran(note, event, state, stamps) if is_told else ()
        case _:
            assert_never(note)


def _ran(ran: Ran, event: HookEvent, state: LoopState, stamps: Stamps) -> tuple[Entry, Entry]:
    def common() -> dict[str, Any]:
        return {
            "session_id": state.run.session_id,
            "uuid": stamps.clock.uuid(),
            "hook_id": ran.hook_id,
            "hook_name": event.hook_name,
            "hook_event": event.name,
        }

    started = HookStartedMessage(**common())
    response = HookResponseMessage(
        **common(),
        output=ran.output,
        stdout=ran.stdout,
        stderr=ran.stderr,
        exit_code=ran.exit_code,
        outcome=ran.outcome,
    )
    return Entry.of(started), Entry.of(response)
