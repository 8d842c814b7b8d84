"""The last batch of a run: its result message and its outcome."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

from app.agent.effects import Stamps
from app.agent.results import status_entry
from app.agent.state import LoopState
from app.agent.structured import raw_input
from app.domain.blocks import ToolUseBlock
from app.domain.journal import Batch, Entry
from app.domain.messages import (
    ResultSubtype,
    WireModelUsage,
    WireUsage,
)
from app.domain.results import NO_STATUS, ErrorResult, SuccessResult, TerminalReason
from app.domain.runs import EndReason, Outcome
from app.domain.tools import ToolCall
from app.domain.usage import LedgerRow, Spend


def denial_of(call: ToolUseBlock | ToolCall) -> dict[str, Any]:
    """Give the entry of `permission_denials` for a call. A call of Agent goes by its older name."""
    name = "Task" if call.name == "Agent" else call.name
    return {"tool_name": name, "tool_use_id": call.id, "tool_input": dict(call.input)}


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
    counts = state.apply(Batch(before)).subagents  # those that end with the run are among them
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
        "subagent_stats": counts.stats,
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


def recounted(batch: Batch, state: LoopState) -> Batch:
    """Give a run's last batch with the numbers of subagents as they are behind `state`.

    Ends that are told between what the loop made of the run's end and the result are among them.
    """
    *before, last = batch.entries
    if not isinstance(last.message, SuccessResult | ErrorResult):
        return batch
    stats = state.apply(Batch(tuple(before))).subagents.stats
    message = last.message.model_copy(update={"subagent_stats": stats})
    told = replace(Entry.of(message, last.facts), audit=last.audit)
    return replace(batch, entries=(*before, told))


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
