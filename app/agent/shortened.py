"""How a conversation gets shorter: a summary takes the place of its beginning, or all of it is left."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.agent.active import call_ids_of
from app.agent.briefing import opening_blocks
from app.domain.blocks import Block, TextBlock, encode_block
from app.domain.briefing import Briefing
from app.domain.messages import UserMessage
from app.domain.model import ContextMessage
from app.domain.tools import ToolMemory

if TYPE_CHECKING:
    from app.agent.draft import Draft


def put_summary(draft: "Draft", message: UserMessage, left: Mapping[str, Any]) -> None:
    """Put the summary in place of all but the messages that stay."""
    blocks = tuple(encode_block(block) for block in blocks_of(message))
    shift = left["used_tokens"] - left["used_tokens_before"]
    kept = (
        replace(stays, tokens_before=max(0, stays.tokens_before + shift))
        for stays in draft.context[len(draft.context) - left["kept"] :]
    )
    draft.context = [ContextMessage("user", blocks, uuids=(message.uuid,)).closed(), *kept]
    draft.call_ids = frozenset(call_ids_of(draft.context))
    draft.used_tokens = left["used_tokens"]
    draft.dropped_tokens = left["dropped_tokens"]
    draft.has_summary = True
    # Earlier ones since the newest response are not among the rows that are folded.
    draft.compactions = left.get("compactions", draft.compactions) + 1
    for name, value in draft.carrier.load(left["carried"]).items():
        setattr(draft, name, value)
    draft.memory = draft.memory.compacted()
    draft.failures = ()
    draft.head = opening_blocks(draft.briefing)


def clear(draft: "Draft", carried: Mapping[str, Any]) -> None:
    """Leave the conversation behind, and with it what the model knew of files and of the place."""
    draft.context, draft.results = [], {}
    draft.calls, draft.call_ids, draft.notes, draft.newer = (), frozenset(), (), ()
    draft.used_tokens, draft.compactions, draft.has_summary = 0, 0, False
    for name, value in draft.carrier.load(carried).items():
        setattr(draft, name, value)
    draft.memory = ToolMemory(draft.memory.cwd, work=draft.memory.work)
    draft.briefing, draft.head = Briefing(), ()


def blocks_of(message: UserMessage) -> Sequence[Block]:
    """Give what a message says, as blocks."""
    content = message.message.content
    return [TextBlock(text=content)] if isinstance(content, str) else content
