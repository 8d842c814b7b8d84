"""What the loop tells beside the conversation: estimates, limits, what a person should know."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from app.agent.effects import Stamps
from app.agent.state import LoopState
from app.domain.blocks import Block, ThinkingBlock
from app.domain.journal import Entry, ServiceEvent
from app.domain.notices import (
    InformationalMessage,
    RateLimitEvent,
    RateLimitInfo,
    ThinkingTokensMessage,
)
from app.domain.thinking import Asked, asked_of
from app.domain.usage import LedgerRow, Usage

CHARACTERS_PER_TOKEN = 4
WARNED_SHARES = (Decimal("0.8"), Decimal("0.95"))
"""Of a budget: the log says when they are passed."""


def asked_in(model: str, state: LoopState, stamps: Stamps) -> Asked:
    """Give what a request to `model` says about thinking and effort."""
    options, models = state.run.options, stamps.models
    max_output = models.limits(model).max_output
    return asked_of(model, options.thinking, options.effort, models.abilities(model), max_output)


def opening_notices(state: LoopState, stamps: Stamps) -> Iterator[Entry]:
    """Give what a person should know when a run begins."""
    model = state.run.options.model or ""
    for note in asked_in(model, state, stamps).notes:
        yield _informational(note, "notice", "model_option", state, stamps)
    for name in filter(None, (model, state.run.options.fallback_model)):
        if stamps.models.cost_usd(name, Usage(input_tokens=1), stamps.clock.now()) is None:
            why = f"No price is known for {name}: its cost is not counted, and no budget stops it."
            yield _informational(why, "warning", "unpriced_model", state, stamps)


def estimate(block: Block, state: LoopState, stamps: Stamps) -> Iterator[Entry]:
    """Give the estimate that comes before a thinking block whose text is known."""
    if isinstance(block, ThinkingBlock) and block.thinking:
        tokens = -(-len(block.thinking) // CHARACTERS_PER_TOKEN)
        yield Entry.of(
            ThinkingTokensMessage(
                session_id=state.run.session_id,
                uuid=stamps.clock.uuid(),
                estimated_tokens=tokens,
                estimated_tokens_delta=tokens,
            )
        )


def limit_changed(
    info: RateLimitInfo | None, state: LoopState, stamps: Stamps
) -> tuple[Entry, ...]:
    """Tell of the provider's rate limit when it stands otherwise than the run was told last.

    A run begins as if it had been told that all is well. Of a refusal, each one is told that
    names another time.
    """
    if info is None:
        return ()
    told = state.rate_limit or RateLimitInfo(status="allowed")
    is_news = info.status != told.status
    if info.status == told.status == "rejected":
        is_news = info.resetsAt != told.resetsAt
    if not is_news:
        return ()
    return (
        Entry.of(
            RateLimitEvent(
                session_id=state.run.session_id, uuid=stamps.clock.uuid(), rate_limit_info=info
            )
        ),
    )


def budget_warnings(ledger: tuple[LedgerRow, ...], state: LoopState) -> tuple[ServiceEvent, ...]:
    """Tell of the shares of the run's budget that a response passes by what it cost.

    Of no use, and so left out, once the budget is spent, or with the answer that ends the run.
    """
    budget, before = state.run.options.max_budget_usd, state.spend.cost_usd
    spent = before + sum((row.cost_usd or Decimal(0) for row in ledger), Decimal(0))
    if budget is None or spent >= budget:
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


def _informational(
    content: str, level: Literal["notice", "warning"], tag: str, state: LoopState, stamps: Stamps
) -> Entry:
    return Entry.of(
        InformationalMessage(
            session_id=state.run.session_id,
            uuid=stamps.clock.uuid(),
            content=content,
            level=level,
            tag=tag,
        )
    )
