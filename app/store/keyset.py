"""A part of a list by creation time, which begins beyond a row that is known: no page is counted off."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Keyset:
    """Up to `limit` rows, the oldest first unless it `is_descending`, beyond the key `after`."""

    limit: int
    after: tuple[datetime, str] | None = None
    is_descending: bool = False

    def within(self, select: str, table: str) -> str:
        """Give a query for these rows of one that ends in its conditions; `table` is its alias."""
        compare, order = ("<", "DESC") if self.is_descending else (">", "ASC")
        beyond = f"AND ({table}.created_at, {table}.id) {compare} (:after_at, :after_id)"
        return f"""{select} {"" if self.after is None else beyond}
            ORDER BY {table}.created_at {order}, {table}.id {order} LIMIT :limit"""

    @property
    def values(self) -> dict[str, Any]:
        """What the query's parameters are."""
        if self.after is None:
            return {"limit": self.limit}
        return {"limit": self.limit, "after_at": self.after[0], "after_id": self.after[1]}
