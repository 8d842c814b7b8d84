"""What follows a model request that failed: another try, another model, or the end of the run."""

from collections.abc import Mapping

from app.agent.effects import Effects, Stamps
from app.agent.events import model_retry
from app.agent.finish_step import budget_spent
from app.agent.result_batch import result_batch
from app.agent.results import status_entry, synthetic_entry
from app.agent.retries import FallbackTrigger, fallback_trigger, may_retry, retry_delay_s
from app.agent.state import Advance, LoopState
from app.agent.steps import can_make_room
from app.agent.structured import OUTPUT_FACT, RETRACTED_TEXT
from app.domain.journal import Batch, Entry
from app.domain.messages import (
    ApiRetryMessage,
    ModelFallbackMessage,
)
from app.domain.model import ModelRequest
from app.domain.results import TerminalReason
from app.domain.usage import LedgerRow, Usage
from app.errors import ContextTooLong, ModelError, ModelUnreachable

_WHY: dict[FallbackTrigger, str] = {
    "overloaded": "is overloaded",
    "server_error": "failed",
    "model_not_found": "was not found",
    "last_resort": "gave no answer",
}


def after_failure(
    error: ModelError,
    ledger: tuple[LedgerRow, ...],
    state: LoopState,
    effects: Effects,
    *,
    retracts_output: bool = False,
) -> tuple[Advance, float]:
    """Give what a failed try makes durable, and the wait in seconds before the next one.

    `ledger` holds what the try has cost. Nothing of its response is kept (decisions B26), not even
    a structured output that had come whole: a fallback `retracts_output` then.
    """
    spent = state.apply(Batch(ledger=ledger))
    if isinstance(error, ContextTooLong) and can_make_room(state):
        told = status_entry("compacting", state, effects, chars=0)
        return state.after(Batch((told,), ledger)), 0.0
    rules = state.run.retries
    failures = (*state.failures, error.category)
    fallback = state.run.options.fallback_model
    has_other = fallback is not None and fallback != state.model
    trigger = fallback_trigger(error, failures, rules) if has_other else None
    if trigger is None and not may_retry(error, failures, rules):
        return state.after(failure(error, spent, effects, ledger)), 0.0
    if spent.is_over_budget:
        return state.after(budget_spent(spent, effects, ledger)), 0.0
    if trigger is not None and fallback is not None:
        facts = {OUTPUT_FACT: "retracted"} if retracts_output else None
        told = _fallback(trigger, fallback, state, effects, facts)
        return state.after(Batch((told,), ledger)), 0.0
    attempt = len(failures)
    delay_s = retry_delay_s(attempt, error, effects.clock.jitter(), rules)
    told = retry_entry(error, attempt, delay_s, state, effects)
    events = model_retry(error, attempt, delay_s, effects)
    return state.after(Batch((told,), ledger, events=events)), delay_s


def billed(
    error: ModelError, request: ModelRequest, effects: Stamps, started: float
) -> tuple[LedgerRow, ...]:
    """Give the ledger row of a response that was lost, if anything of it was billed."""
    usage: Usage | None = error.usage
    if usage is None:
        return ()
    return (
        LedgerRow(
            model=request.model,
            usage=usage,
            cost_usd=effects.models.cost_usd(request.model, usage, effects.clock.now()),
            request_id=error.request_id,
            http_status=error.status,
            duration_ms=round((effects.clock.monotonic() - started) * 1000),
            estimated=True,
        ),
    )


def failure(
    error: ModelError,
    state: LoopState,
    effects: Stamps,
    ledger: tuple[LedgerRow, ...] = (),
    *,
    terminal_reason: TerminalReason | None = None,
) -> Batch:
    """End a run whose model request failed for good (decisions B5).

    `state` holds the ledger rows already. The synthetic message is never sent to a model.
    """
    status = f" {error.status}" if error.status else ""
    text = f"API error{status}: {error.message}"
    api_error = "connection_failed" if isinstance(error, ModelUnreachable) else None
    notice = synthetic_entry(
        text,
        "stop_sequence",
        state,
        effects,
        error="server_error" if _is_outage(error) else error.category,
        is_api_error_message=True,
        request_id=error.request_id,
        api_error_status=error.status,
        api_error_type=error.error_type,
        api_error=api_error,
    )
    was_retracted = state.output.is_retracted
    return result_batch(
        state,
        effects,
        subtype="error_max_structured_output_retries"
        if was_retracted
        else "error_during_execution",
        terminal_reason=terminal_reason or _terminal_reason(error),
        end_reason="structured_output" if was_retracted else "model_error",
        errors=(RETRACTED_TEXT, text) if was_retracted else (text,),
        api_error_status=error.status,
        api_error_type=error.error_type,
        api_error=api_error,
        ledger=ledger,
        before=(notice,),
    )


def _is_outage(error: ModelError) -> bool:
    # `api_retry` tells an overload and a lost connection apart; `assistant.error` does not.
    return error.category == "overloaded" or isinstance(error, ModelUnreachable)


def _terminal_reason(error: ModelError) -> TerminalReason:
    if isinstance(error, ContextTooLong):
        return "prompt_too_long"
    return "image_error" if error.status == 413 else "api_error"


def retry_entry(
    error: ModelError, attempt: int, delay_s: float, state: LoopState, effects: Effects
) -> Entry:
    """Make the message that says that a request will be made again."""
    return Entry.of(
        ApiRetryMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            attempt=attempt,
            max_retries=state.run.retries.max_retries,
            retry_delay_ms=round(delay_s * 1000),
            error_status=error.status,
            error=error.category,
        )
    )


def _fallback(
    trigger: FallbackTrigger,
    model: str,
    state: LoopState,
    effects: Effects,
    facts: Mapping[str, str] | None,
) -> Entry:
    return Entry.of(
        ModelFallbackMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            trigger=trigger,
            original_model=state.model,
            fallback_model=model,
            content=(
                f"{state.model} {_WHY[trigger]}: {model} answers for the rest of this run. "
                f"The next run begins with {state.model} again."
            ),
        ),
        facts,
    )
