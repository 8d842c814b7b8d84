"""The orderly ends of a run: which there are, and what each says."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from app.agent.command import COMPACT
from app.agent.effects import Stamps
from app.agent.hook_memory import EndByHook
from app.agent.result_batch import plain_usd, result_batch
from app.agent.results import synthetic_entry
from app.agent.state import Advance, LoopState
from app.agent.steps import Cause
from app.domain.journal import Batch
from app.domain.usage import LedgerRow


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
