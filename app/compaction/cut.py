"""Where a conversation is cut: what comes before is summarised, the rest stays as it is.

A cut is always right before an assistant message. So a call is never parted from its result,
which stands in the user message after it, and roles still alternate behind the summary.
"""

from collections.abc import Sequence

from app.compaction.sizes import message_tokens
from app.domain.model import ContextMessage


def cut_point(
    context: Sequence[ContextMessage],
    used_tokens: int,
    tail_tokens: int,
    *,
    has_summary: bool,
    keeps_least: bool = False,
) -> int | None:
    """Give the index of the first message that stays; None if nothing would be gained.

    `context` ends with an assistant message, `used_tokens` is its size as counted. What stays is
    at the most `tail_tokens` large, but at least the last exchange, and just that with
    `keeps_least`. What goes is more than a prompt without an answer, if there is more, and never
    a summary alone.
    """
    cuts = [at for at, message in enumerate(context) if at and message.role == "assistant"]
    if not cuts or (has_summary and cuts[-1] == 1):
        return None
    newest = cuts[-1]
    if keeps_least:
        return newest
    first, estimated = newest, 0
    for at in range(len(context) - 1, 1, -1):
        estimated += message_tokens(context[at])
        if context[at].role == "assistant":
            if max(estimated, _counted(context[at], used_tokens)) > tail_tokens:
                break
            first = at
    return first


def _counted(message: ContextMessage, used_tokens: int) -> int:
    return used_tokens - message.tokens_before if message.tokens_before else 0
