"""Finding messages by words, with the text around them."""

import re
from dataclasses import dataclass
from datetime import datetime

from app.store.engine import Database
from app.store.search import Hit, find_messages

_BEFORE, _LENGTH = 60, 200
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Found:
    """A message, and how the words stand in it."""

    hit: Hit
    excerpt: str


async def search(
    database: Database,
    tenant_id: str,
    query: str,
    *,
    after: tuple[datetime, str, int] | None,
    limit: int,
) -> list[Found]:
    """Give up to `limit` messages beyond the key `after`, the newest first."""
    hits = await find_messages(database, tenant_id, query, after=after, limit=limit)
    return [Found(hit, excerpt(hit.text, query)) for hit in hits]


def excerpt(text: str, query: str) -> str:
    """Give a line of the text around the first word of the query, or its beginning."""
    lower = text.lower()
    places = (lower.find(word) for word in _WORD.findall(query.lower()))
    start = max(0, min((place for place in places if place >= 0), default=0) - _BEFORE)
    line = " ".join(text[start : start + _LENGTH].split())
    before = "… " if start else ""
    return f"{before}{line}{' …' if start + _LENGTH < len(text) else ''}"
