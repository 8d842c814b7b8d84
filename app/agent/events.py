"""What the log says of the service beside the wire's messages, while a run goes on."""

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal

from app.agent.effects import Stamps
from app.agent.state import LoopState
from app.agent.tool_effects import Toolbox
from app.domain.blocks import ToolResultBlock
from app.domain.journal import Entry, ServiceEvent
from app.domain.messages import UserMessage, wire_time
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


def files_changed(
    entries: Iterable[Entry], state: LoopState, tools: Toolbox
) -> tuple[ServiceEvent, ...]:
    """Tell which files the tools that edit have written. What commands change is not known."""
    names = {call.id: call.name for call in state.calls}
    return tuple(
        ServiceEvent("file.changed", {"path": path, "tool_name": name, "tool_use_id": call_id})
        for entry in entries
        for call_id in _answered(entry)
        if (name := names.get(call_id)) is not None
        and (spec := tools.spec(name)) is not None
        and spec.edits_files
        for path in ((entry.facts or {}).get("tool") or {}).get("files") or ()
    )


def _answered(entry: Entry) -> Iterable[str]:
    message = entry.message
    if not isinstance(message, UserMessage) or isinstance(message.message.content, str):
        return ()
    blocks = message.message.content
    return (block.tool_use_id for block in blocks if isinstance(block, ToolResultBlock))
