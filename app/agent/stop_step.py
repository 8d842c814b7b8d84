"""Steps of hooks between two requests: when all calls have results, and when the run would end."""

from collections.abc import AsyncGenerator
from typing import Any, Literal

import orjson

from app.agent.effects import Effects
from app.agent.hook_memory import MAX_STOP_BLOCKS, hook_facts
from app.agent.hook_points import contexts, fire, hooked, informational, told
from app.agent.results import note_entry
from app.agent.state import Advance, LoopState
from app.domain.blocks import ToolUseBlock
from app.domain.hook_outcome import HookOutcome
from app.domain.hooks import PostToolBatch, Stop, SubagentStop
from app.domain.journal import Batch, Entry
from app.domain.notices import NotificationMessage

_KEY = "stop-hook-error"


async def ask_hooks(
    event: Literal["PostToolBatch", "Stop"], state: LoopState, effects: Effects
) -> AsyncGenerator[Advance]:
    """Ask the hooks of an event about the newest response, and remember that they were asked."""
    ask = _ask_batch_hooks if event == "PostToolBatch" else _ask_stop_hooks
    yield await ask(state, effects)


async def _ask_batch_hooks(state: LoopState, effects: Effects) -> Advance:
    """Ask `PostToolBatch` about the newest response."""
    message_id = state.message_id or ""
    event = PostToolBatch(message_id, [_told_call(call, state) for call in state.calls])
    outcome = await fire(event, state, effects)
    facts = hook_facts(
        batch=message_id,
        contexts=contexts(outcome, event),
        ends=None if outcome.stop is None else "hook_stopped",
    )
    return hooked(Batch(told(outcome, event, state, effects)), facts, state)


async def _ask_stop_hooks(state: LoopState, effects: Effects) -> Advance:
    """Ask `Stop`: the run ends, or goes on with what a hook says (decisions B3).

    Of a subagent `SubagentStop`, with the same effect for it.
    """
    event = _stop_of(state)
    outcome = await fire(event, state, effects)
    notes = told(outcome, event, state, effects)
    if outcome.stop is not None:
        facts = hook_facts(stop="prevented", of=event.key, ends="stop_hook_prevented")
        return hooked(Batch(notes), facts, state)
    reason = outcome.closed if outcome.block is None else outcome.block
    if reason is not None:
        notes = (*_sent_back(reason, state, effects), *notes)
        return hooked(Batch(notes), _facts(event, outcome, state), state)
    if outcome.contexts:
        facts = hook_facts(stop="context", of=event.key, contexts=contexts(outcome, event))
        return hooked(Batch(notes), facts, state)
    return hooked(Batch(notes), hook_facts(stop="passed", of=event.key), state)


def _stop_of(state: LoopState) -> Stop | SubagentStop:
    run, key = state.run, state.message_id or ""
    if run.thread is not None:
        path = f"/v1/sessions/{run.session_id}/subagents/{run.thread.call_id}/messages"
        return SubagentStop(
            key=key,
            agent_id=run.thread.agent_id,
            agent_type=run.thread.agent_type,
            stop_hook_active=state.hooks.is_active,
            last_assistant_message=state.last_text,
            agent_transcript_path=path,
        )
    return Stop(
        key=key,
        stop_hook_active=state.hooks.is_active,
        last_assistant_message=state.last_text,
        background_tasks=[
            {"id": task.id, "type": "local_bash", "description": task.description}
            for task in state.tasks.values()
        ],
    )


def _facts(event: Stop | SubagentStop, outcome: HookOutcome, state: LoopState) -> dict[str, Any]:
    is_last = state.hooks.blocks + 1 >= MAX_STOP_BLOCKS
    added = [f"A Stop hook adds:\n{text}" for text in outcome.contexts]
    return hook_facts(
        stop="blocked",
        of=event.key,
        contexts=added,
        ends="stop_hook_limit" if is_last else None,
    )


def _sent_back(reason: str, state: LoopState, effects: Effects) -> tuple[Entry, ...]:
    """Tell the model what a Stop hook wants of it, and people once that there is one."""
    said = note_entry(f"Stop hook feedback:\n{reason}", state, effects, is_synthetic=True)
    if state.hooks.blocks + 1 >= MAX_STOP_BLOCKS:
        why = (
            f"Stop hooks kept this run from ending {MAX_STOP_BLOCKS} times in a row. It ends now "
            "all the same; the last feedback is part of the conversation."
        )
        ended = informational(why, state, effects, level="warning", tag="stop_hook_limit")
        return (
            said,
            ended,
            _notification("Stop hooks never agreed: the run ended.", state, effects),
        )
    if state.hooks.blocks:
        return (said,)
    return (said, _notification("A Stop hook asked the agent to go on.", state, effects))


def _notification(text: str, state: LoopState, effects: Effects) -> Entry:
    return Entry.of(
        NotificationMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            key=_KEY,
            text=text,
            priority="immediate",
        )
    )


def _told_call(call: ToolUseBlock, state: LoopState) -> dict[str, Any]:
    result = orjson.loads(state.results[call.id]) if call.id in state.results else {}
    return {
        "tool_name": call.name,
        "tool_input": call.input,
        "tool_use_id": call.id,
        "tool_response": result.get("content"),
    }
