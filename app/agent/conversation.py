"""The conversation of a state as the model will see it, but for the briefing."""

from dataclasses import replace
from typing import TYPE_CHECKING

from app.domain.blocks import is_thinking
from app.domain.model import ContextMessage

if TYPE_CHECKING:
    from app.agent.draft import Draft
    from app.agent.state import LoopState


def said_so_far(state: "LoopState") -> tuple[ContextMessage, ...]:
    """Give the conversation with what is newer than its newest response."""
    tail = said_since(state)
    return followed(state.context, tail, state.newer) if tail else state.context


def said_since(state: "LoopState | Draft") -> tuple[bytes, ...]:
    """Give what is newer than the newest response: results in call order, then notes."""
    results = state.results
    ordered = (results[call.id] for call in state.calls if call.id in results)
    return (*ordered, *state.notes)


def followed(
    context: tuple[ContextMessage, ...], said: tuple[bytes, ...], uuids: tuple[str, ...] = ()
) -> tuple[ContextMessage, ...]:
    """Give a conversation with something more on the user's side."""
    context = _answered_fully(context)
    if context and context[-1].role == "user":
        return (*context[:-1], context[-1].plus(said, uuids))
    return (*context, ContextMessage("user", said, uuids=uuids))


def _answered_fully(context: tuple[ContextMessage, ...]) -> tuple[ContextMessage, ...]:
    """Give the conversation without thoughts that led to nothing: the API refuses them at the end."""
    if not context or context[-1].role != "assistant":
        return context
    blocks = context[-1].blocks
    while blocks and is_thinking(blocks[-1]):
        blocks = blocks[:-1]
    if len(blocks) == len(context[-1].blocks):
        return context
    kept = (replace(context[-1], blocks=blocks, whole=None),) if blocks else ()
    return (*context[:-1], *kept)
