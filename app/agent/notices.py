"""What the loop tells beside the conversation: estimates, limits, what a person should know."""

from collections.abc import Iterable, Iterator
from typing import Literal

from app.agent.effects import Stamps
from app.agent.state import LoopState
from app.domain.blocks import Block, ThinkingBlock
from app.domain.journal import Entry
from app.domain.notices import (
    InformationalMessage,
    RateLimitEvent,
    RateLimitInfo,
    ThinkingTokensMessage,
)
from app.domain.thinking import Asked, asked_of
from app.domain.usage import Usage

CHARACTERS_PER_TOKEN = 4


def asked_in(model: str, state: LoopState, stamps: Stamps) -> Asked:
    """Give what a request to `model` says about thinking and effort."""
    options, models = state.run.options, stamps.models
    max_output = models.limits(model).max_output
    return asked_of(model, options.thinking, options.effort, models.abilities(model), max_output)


def opening_notices(
    state: LoopState, stamps: Stamps, warnings: Iterable[str] = ()
) -> Iterator[Entry]:
    """Give what a person should know when a run begins; `warnings` are those of its place."""
    for warning in warnings:
        yield _informational(warning, "warning", "project_settings", state, stamps)
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
