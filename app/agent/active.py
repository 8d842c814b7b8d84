"""Which rows of a journal still say something to the model, after compactions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from app.domain.briefing import Briefing, News
from app.domain.messages import ConversationReset, Message
from app.domain.model import ContextMessage

COMPACTED = "compacted"
"""Fact on a summary: what was left when it was put in place of older messages."""

CLEARED = "cleared"
"""Fact on a `/clear`: what goes on behind it."""

JournalRow: TypeAlias = tuple[str | None, Message, Mapping[str, Any] | None]
"""The run, the message, its facts."""


def active_rows(
    rows: Sequence[JournalRow],
) -> tuple[Sequence[JournalRow], Mapping[str, Any] | None]:
    """Give the rows from the tail on that the last compaction kept, and what it left.

    All rows since the last `/clear`, and None, where there was none. Older summaries that stand
    among the rows are left out: the last one has taken them in.
    """
    rows = rows[_last_clear(rows) :]
    at = _last_summary(rows)
    if at is None:
        return rows, None
    left: Mapping[str, Any] = (rows[at][2] or {})[COMPACTED]
    first = next(n for n in range(at, -1, -1) if rows[n][1].uuid == left["head"])
    kept = [row for row in rows[first:at] if not _is_summary(row)]
    return [*kept, *rows[at:]], left


def briefing_of(left: Mapping[str, Any] | None) -> Briefing:
    """Give what the model knew of its place before the kept messages."""
    if left is None:
        return Briefing()
    return Briefing().plus(News.from_json(left["known"]))


def _last_summary(rows: Sequence[JournalRow]) -> int | None:
    return next((n for n in range(len(rows) - 1, -1, -1) if _is_summary(rows[n])), None)


def _last_clear(rows: Sequence[JournalRow]) -> int:
    at = (n for n in range(len(rows) - 1, -1, -1) if isinstance(rows[n][1], ConversationReset))
    return next(at, 0)


def _is_summary(row: JournalRow) -> bool:
    return row[2] is not None and COMPACTED in row[2]


def call_ids_of(context: Sequence[ContextMessage]) -> Iterator[str]:
    """Yield the ids of all calls in a conversation."""
    for message in context:
        for block in message.blocks:
            if block.startswith(b'{"type":"tool_use"'):
                yield orjson.loads(block)["id"]
