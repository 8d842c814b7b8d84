"""What the log says of the service beside the wire's messages, while a run goes on."""

from datetime import timedelta
from decimal import Decimal

from app.agent.effects import Stamps
from app.agent.state import LoopState
from app.domain.journal import ServiceEvent
from app.domain.messages import wire_time
from app.domain.tools import ToolCall, ToolResult, ToolSpec
from app.domain.usage import LedgerRow
from app.errors import ModelError

WARNED_SHARES = (Decimal("0.8"), Decimal("0.95"))
"""Of a budget: the log says when they are passed."""
SNAPSHOT_EVERY = 10
"""Responses between two snapshots of what a run has used."""


def budget_warnings(ledger: tuple[LedgerRow, ...], state: LoopState) -> tuple[ServiceEvent, ...]:
    """Tell of the shares of the run's budget that a response passes by what it cost.

    Of no use, and so left out, once the budget is spent, or with the answer that ends the run.
    """
    budget = state.run.options.max_budget_usd
    if budget is None:
        return ()
    before = state.spent_usd
    spent = before + sum((row.cost_usd or Decimal(0) for row in ledger), Decimal(0))
    if spent >= budget:
        return ()
    return tuple(
        ServiceEvent(
            "budget.warning",
            {
                "scope": "run",
                "share": float(share),
                "spent_usd": f"{spent:f}",
                "budget_usd": f"{budget:f}",
            },
        )
        for share in WARNED_SHARES
        if before < share * budget <= spent
    )


def usage_snapshot(ledger: tuple[LedgerRow, ...], state: LoopState) -> tuple[ServiceEvent, ...]:
    """Tell every few responses what the run has used so far; `state` is that before the response."""
    turns = state.responses + 1
    if turns % SNAPSHOT_EVERY or state.run.thread is not None:
        return ()
    spend = state.spend
    for row in ledger:
        spend = spend.plus(row)
    parts = [part.usage for part in spend.by_model.values()]
    return (
        ServiceEvent(
            "usage.snapshot",
            {
                "num_turns": turns,
                "spent_usd": f"{spend.cost_usd:f}",
                "input_tokens": sum(usage.input_tokens for usage in parts),
                "output_tokens": sum(usage.output_tokens for usage in parts),
                "cache_read_tokens": sum(usage.cache_read_tokens for usage in parts),
                "cache_write_tokens": sum(usage.cache_write_tokens for usage in parts),
            },
        ),
    )


def model_retry(
    error: ModelError, attempt: int, delay_s: float, stamps: Stamps
) -> tuple[ServiceEvent, ...]:
    """Tell that a model request will be made again, and when."""
    return (
        ServiceEvent(
            "model.retry",
            {
                "attempt": attempt,
                "next_at": wire_time(stamps.clock.now() + timedelta(seconds=delay_s)),
                "status": error.status,
                "error": error.category,
            },
        ),
    )


def files_changed(call: ToolCall, spec: ToolSpec, result: ToolResult) -> tuple[ServiceEvent, ...]:
    """Tell which files a tool that edits has written. What commands change is not known."""
    if not spec.edits_files:
        return ()
    told = {"tool_name": call.name, "tool_use_id": call.id}
    return tuple(
        ServiceEvent("file.changed", {"path": path, **told}) for path in result.facts.files
    )
