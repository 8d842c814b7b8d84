"""Pages of lists and their cursors."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import orjson

from app.api.params import Order
from app.errors import CursorInvalid
from app.runs.callers import Caller
from app.runs.listing import Keyset


class Dated(Protocol):
    """What most lists are ordered by."""

    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


class Logged(Protocol):
    """A row of a session's log: lists of what was said, or decided, are ordered by it."""

    @property
    def at(self) -> datetime: ...

    @property
    def session_id(self) -> str: ...

    @property
    def seq(self) -> int: ...


T = TypeVar("T")
D = TypeVar("D", bound=Dated)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list as one caller asks for a page of it. Its cursors are of no use anywhere else."""

    caller: Caller
    name: tuple[object, ...]
    """Its own, and its filters."""
    limit: int
    cursor: str | None
    order: Order = "desc"

    @property
    def most(self) -> int:
        """How many rows to look for: one beyond the page says that there are more."""
        return self.limit + 1

    @property
    def keyset(self) -> Keyset:
        """What to look for. Raises `CursorInvalid` for a cursor of another list, order or filter."""
        return Keyset(self.most, self._after(), is_descending=self.order == "desc")

    @property
    def after_row(self) -> tuple[datetime, str, int] | None:
        """The row of a log that the page begins beyond: when, whose, its seq. Raises `CursorInvalid`."""
        after = self._after()
        return None if after is None else (after[0], *_place_of(after[1]))

    def page(self, rows: Sequence[D]) -> tuple[Sequence[D], str | None]:
        """Give a page of the rows that were found, and its next cursor."""
        return self._page(rows, lambda row: (row.created_at, row.id))

    def page_of_log(
        self, rows: Sequence[T], entry: Callable[[T], Logged]
    ) -> tuple[Sequence[T], str | None]:
        """Give a page of what was found in logs, and its next cursor."""

        def key(row: T) -> tuple[datetime, str]:
            found = entry(row)
            return found.at, f"{found.session_id}/{found.seq}"

        return self._page(rows, key)

    def _page(
        self, rows: Sequence[T], key: Callable[[T], tuple[datetime, str]]
    ) -> tuple[Sequence[T], str | None]:
        page = rows[: self.limit]
        return page, self._cursor(*key(page[-1])) if len(rows) > self.limit else None

    @property
    def _tag(self) -> str:
        named = orjson.dumps([self.caller.tenant_id, self.order, *self.name], default=str)
        return hashlib.blake2b(named, digest_size=9).hexdigest()

    def _cursor(self, at: datetime, item_id: str) -> str:
        raw = orjson.dumps([at.isoformat(), item_id, self._tag])
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    def _after(self) -> tuple[datetime, str] | None:
        if self.cursor is None:
            return None
        try:
            padded = self.cursor + "=" * (-len(self.cursor) % 4)
            at, item_id, its_tag = orjson.loads(base64.urlsafe_b64decode(padded))
            position = datetime.fromisoformat(at).astimezone(UTC), str(item_id)
            is_sane = position[1].isascii() and position[1].isprintable()
        except (ValueError, TypeError, OverflowError):
            raise CursorInvalid("The cursor is not one of ours.") from None
        if its_tag != self._tag or not is_sane:
            raise CursorInvalid("The cursor belongs to another list, order or filter.")
        return position


def _place_of(text: str) -> tuple[str, int]:
    session_id, _, seq = text.partition("/")
    if not seq.isdecimal() or len(seq) > 18:
        raise CursorInvalid("The cursor is not one of ours.")
    return session_id, int(seq)
