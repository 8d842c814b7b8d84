"""The end of a run: its result message and its outcome, in one batch."""

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from app.agent.command import COMPACT
from app.agent.effects import Stamps
from app.agent.hook_memory import EndByHook
from app.agent.results import LOST_TEXT, note_entry, result_entry, status_entry, synthetic_entry
from app.agent.state import Advance, LoopState
from app.agent.steps import Cause
from app.agent.structured import raw_input
from app.agent.thread_rows import row_of_thread, threads_killed
from app.domain.blocks import TextBlock, ToolUseBlock
from app.domain.journal import Batch, Entry
from app.domain.messages import (
    ApiMessage,
    AssistantMessage,
    ResultSubtype,
    WireModelUsage,
    WireUsage,
    wire_time,
)
from app.domain.model import PartialResponse
from app.domain.results import NO_STATUS, ErrorResult, SuccessResult, TerminalReason
from app.domain.runs import EndReason, Outcome
from app.domain.tools import ToolCall, ToolResult
from app.domain.usage import LedgerRow, Spend, Usage

INTERRUPTED_TEXT = "The user stopped the run before this call finished; its effect is unknown."
UNSTARTED_TEXT = "The user stopped the run before this call began, so it did nothing."
NOTHING_OPEN: Mapping[str, PartialResponse] = {}
INTERRUPT_MARKER = "[Request interrupted by user]"
INTERRUPT_MARKER_TOOLS = "[Request interrupted by user for tool use]"


async def finish(cause: Cause, state: LoopState, effects: Stamps) -> AsyncGenerator[Advance]:
    """End a run in an orderly way."""
    yield state.after(ending(cause, state, effects))


def ending(cause: Cause, state: LoopState, effects: Stamps) -> Batch:
    """Give the last batch of a run that ends in an orderly way; without its outcome if more comes."""
    if cause == "nothing_to_compact":
        return nothing_to_compact(state, effects)
    if cause == "blocking_limit":
        return blocked(state, effects)
    if cause == "mcp_required":
        return result_batch(
            state,
            effects,
            subtype="error_during_execution",
            terminal_reason=None,
            end_reason="mcp_required",
            errors=state.missing_servers,
        )
    if cause == "budget":
        return budget_spent(state, effects)
    if cause == "completed":
        ended = result_batch(state, effects)
        return replace(ended, outcome=None) if state.wants_suggestion else ended
    if cause == "structured_output":
        return result_batch(
            state,
            effects,
            subtype="error_max_structured_output_retries",
            terminal_reason="structured_output_retry_exhausted",
            end_reason="structured_output",
            errors=(state.failed_output.told(),),
        )
    if cause == "max_turns":
        limit = state.run.options.max_turns
        return result_batch(
            state,
            effects,
            subtype="error_max_turns",
            terminal_reason="max_turns",
            end_reason="max_turns",
            errors=(f"Reached maximum number of turns ({limit})",),
        )
    return ended_by_hook(cause, state, effects)


def ended_by_hook(
    cause: EndByHook | Literal["tool_deferred"], state: LoopState, effects: Stamps
) -> Batch:
    """End a run that hooks end. Without the output that was asked for it is an error (B11)."""
    is_deferred = cause == "tool_deferred"
    given: dict[str, Any] = {
        "terminal_reason": "completed" if cause == "stop_hook_limit" else cause,
        "end_reason": "hook",
    }
    if state.run.options.output_format is not None and state.structured_output is None:
        why = f"A hook ended this run ({cause}) before it gave its structured output."
        return result_batch(
            state, effects, subtype="error_during_execution", errors=(why,), **given
        )
    return result_batch(
        state,
        effects,
        text=state.last_text if cause == "stop_hook_prevented" else "",
        deferred=state.open_calls[-1] if is_deferred else None,
        **given,
    )


def budget_spent(state: LoopState, effects: Stamps, ledger: tuple[LedgerRow, ...] = ()) -> Batch:
    """End a run that may not make another request. `state` holds the ledger rows already."""
    amount = plain_usd(state.run.options.max_budget_usd or Decimal(0))
    return result_batch(
        state,
        effects,
        subtype="error_max_budget_usd",
        terminal_reason="budget_exhausted",
        end_reason="max_budget_run",
        errors=(f"Reached maximum budget (${amount})",),
        ledger=ledger,
    )


def nothing_to_compact(state: LoopState, effects: Stamps) -> Batch:
    """End a `/compact` that finds nothing to take out."""
    told = synthetic_entry("Error: No messages to compact", "end_turn", state, effects)
    return result_batch(state, effects, local_command=COMPACT, before=(told,))


def blocked(state: LoopState, effects: Stamps) -> Batch:
    """End a run that has no room for its next request, where nothing may be compacted."""
    why = "Prompt is too long"
    told = synthetic_entry(
        why,
        "stop_sequence",
        state,
        effects,
        error="invalid_request",
        is_api_error_message=True,
    )
    return result_batch(
        state,
        effects,
        subtype="error_during_execution",
        terminal_reason="blocking_limit",
        end_reason="model_error",
        errors=(why,),
        before=(told,),
    )


def interrupted(
    state: LoopState,
    effects: Stamps,
    *,
    end_reason: EndReason = "cancelled",
    partial: PartialResponse | None = None,
    asides: Mapping[str, PartialResponse] = NOTHING_OPEN,
    begun: Collection[str] = (),
    refused: Collection[str] = (),
) -> Batch:
    """End a run that its client cancelled (loop 5).

    `begun` names the calls that were running; calls of a lost attempt may have run too. `asides`:
    responses to subagents, by call, which were cut as well. `refused` names calls that a person was
    asked about: they count as denials.

    Text of a cut response is kept as an aborted block, and what it cost is estimated; open calls
    are closed with a rejection; then comes the marker.
    """
    open_calls = state.open_calls
    denials = (denial_of(call) for call in open_calls if call.id in refused)
    state = replace(state, denials=(*state.denials, *denials))
    marker = INTERRUPT_MARKER_TOOLS if open_calls else INTERRUPT_MARKER
    ledger = (row_of_cut(partial, effects),) if partial else lost_summary(state, effects)
    ledger += tuple(
        row_of_thread(row_of_cut(cut, effects), call_id) for call_id, cut in asides.items()
    )
    return result_batch(
        state.apply(Batch(ledger=ledger)),
        effects,
        subtype="error_during_execution",
        terminal_reason="aborted_tools" if open_calls else "aborted_streaming",
        end_reason=end_reason,
        errors=("The run was cancelled.",),
        ledger=ledger,
        before=(
            *_aborted(partial, state, effects),
            *(_rejection(call, state, effects, begun) for call in open_calls),
            *threads_killed(open_calls, state, effects),
            note_entry(marker, state, effects),
        ),
    )


def denial_of(call: ToolUseBlock | ToolCall) -> dict[str, Any]:
    """Give the entry of `permission_denials` for a call."""
    return {"tool_name": call.name, "tool_use_id": call.id, "tool_input": dict(call.input)}


def abandoned(state: LoopState, effects: Stamps, *, end_reason: EndReason, why: str) -> Batch:
    """End a run that cannot go on: cost from the ledger, open calls told as lost.

    A run that lost its hosts has no stop reason (decisions B17); every other keeps that of its
    last finished response.
    """
    return result_batch(
        state,
        effects,
        subtype="error_during_execution",
        terminal_reason=None,
        end_reason=end_reason,
        errors=(why,),
        has_stop_reason=end_reason != "worker_lost",
        before=(
            *threads_killed(state.open_calls, state, effects),
            *(
                result_entry(call.id, ToolResult(LOST_TEXT, is_error=True), state, effects)
                for call in state.open_calls
            ),
        ),
    )


def result_batch(
    state: LoopState,
    effects: Stamps,
    *,
    subtype: ResultSubtype = "success",
    terminal_reason: TerminalReason | None = "completed",
    end_reason: EndReason | None = None,
    errors: tuple[str, ...] = (),
    api_error_status: int | None = NO_STATUS,
    api_error_type: str | None = None,
    api_error: str | None = None,
    has_stop_reason: bool = True,
    ledger: tuple[LedgerRow, ...] = (),
    before: tuple[Entry, ...] = (),
    local_command: str | None = None,
    text: str | None = None,
    deferred: ToolUseBlock | None = None,
) -> Batch:
    """Make the last batch of a run. `state` holds the spend of `ledger` already.

    `text` stands in `result` instead of the last answer; `deferred` is the call that a hook left
    for a later run. A compaction that is under way ends with the run.
    """
    is_error = subtype != "success"
    if state.is_compacting:
        why = errors[0] if errors else None
        before = (status_entry(None, state, effects, result="failed", error=why), *before)
    stop_reason = state.stop_reason if has_stop_reason else None
    if deferred is not None:
        stop_reason = "tool_deferred"
    structured = state.structured_output
    if text is None or structured is not None:
        text = state.last_text if structured is None else raw_input(structured)
    total = state.spent_before.merged(state.spend)
    common: dict[str, Any] = {
        "session_id": state.run.session_id,
        "uuid": effects.clock.uuid(),
        "duration_ms": elapsed_ms(state, effects),
        "duration_api_ms": total.api_ms,
        "num_turns": state.responses,
        "stop_reason": stop_reason,
        "terminal_reason": None if local_command else terminal_reason,
        "total_cost_usd": float(total.cost_usd),
        "usage": WireUsage.of(state.spend.main_thread),
        "modelUsage": _by_model(total, effects),
        "model_usage_since_last_result": _by_model(state.spend, effects),
        "permission_denials": list(state.denials),
        "origin": _origin(state),
        "safety_stops": int(stop_reason == "refusal"),
        "user_message_uuid": state.client_uuids[0] if state.client_uuids else None,
        "user_message_uuids": list(state.client_uuids) or None,
        "local_command": local_command,
    }
    message: SuccessResult | ErrorResult
    has_status = terminal_reason is not None and not local_command and deferred is None
    if subtype == "success":
        message = SuccessResult(
            result=text,
            structured_output=structured,
            ttft_ms=None if deferred else state.ttft_ms,
            api_error_status=None if has_status else NO_STATUS,
            deferred_tool_use=_deferred(deferred),
            **common,
        )
    else:
        message = ErrorResult(
            subtype=subtype,
            errors=list(errors),
            api_error_status=api_error_status,
            api_error_type=api_error_type,
            api_error=api_error,
            **common,
        )
    outcome = Outcome(
        subtype=subtype,
        end_reason=end_reason or ("refusal" if stop_reason == "refusal" else "completed"),
        is_error=is_error,
        stop_reason=stop_reason,
        terminal_reason=None if local_command else terminal_reason,
        num_turns=state.responses,
        result_text=None if is_error else text,
        errors=errors,
        permission_denials=state.denials,
    )
    return Batch((*before, Entry.of(message)), ledger, outcome=outcome)


def _deferred(call: ToolUseBlock | None) -> dict[str, Any] | None:
    return None if call is None else {"id": call.id, "name": call.name, "input": call.input}


def _origin(state: LoopState) -> dict[str, str] | None:
    if state.run.follows is None:
        return None
    return {
        "kind": "task-notification",
        "producer": "session-task",
        "runId": state.run.follows,
    }


def elapsed_ms(state: LoopState, effects: Stamps) -> int:
    """Give the time since the run's first claim, earlier attempts included."""
    return state.run.elapsed_ms + round((effects.clock.monotonic() - state.run.began_s) * 1000)


def plain_usd(amount: Decimal) -> str:
    """Write an amount without trailing zeros or an exponent: `0.06`, `2`."""
    return f"{amount.normalize():f}"


def _by_model(spend: Spend, effects: Stamps) -> dict[str, WireModelUsage]:
    models = effects.models
    return {
        model: WireModelUsage.of(part, models.limits(model), models.canonical(model))
        for model, part in spend.by_model.items()
    }


def _rejection(
    call: ToolUseBlock, state: LoopState, effects: Stamps, begun: Collection[str]
) -> Entry:
    may_have_run = call.id in begun or call.id in state.unsure or call.id in state.threads
    result = ToolResult(INTERRUPTED_TEXT if may_have_run else UNSTARTED_TEXT, is_error=True)
    return result_entry(call.id, result, state, effects, rejected_by="user")


def _aborted(
    partial: PartialResponse | None, state: LoopState, effects: Stamps
) -> tuple[Entry, ...]:
    if partial is None:
        return ()
    messages = (
        AssistantMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            message=ApiMessage(
                id=partial.message_id,
                model=partial.model,
                content=[TextBlock(text=text)],
                stop_reason=None,
                usage=WireUsage.of(partial.usage),
            ),
            timestamp=wire_time(effects.clock.now()),
            aborted=True,
        )
        for text in partial.texts
    )
    return tuple(Entry.of(message) for message in messages)


def lost_summary(state: LoopState, effects: Stamps) -> tuple[LedgerRow, ...]:
    """Give the ledger row of a summary that was under way, if one was: an estimate."""
    if not state.is_compacting:
        return ()
    usage = Usage(input_tokens=state.used_tokens)
    cost_usd = effects.models.cost_usd(state.model, usage, effects.clock.now())
    return (
        LedgerRow(state.model, usage, cost_usd, "compaction", http_status=None, estimated=True),
    )


def row_of_cut(partial: PartialResponse, effects: Stamps) -> LedgerRow:
    """Give the ledger row of a response that was cut off: an estimate."""
    usage = partial.usage
    return LedgerRow(
        model=partial.model,
        usage=usage,
        cost_usd=effects.models.cost_usd(partial.model, usage, effects.clock.now()),
        http_status=None,
        estimated=True,
    )
