"""Pages of lists and their cursors."""

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import orjson

from app.errors import CursorInvalid
from app.runs.callers import Caller


class Dated(Protocol):
    """What lists are ordered by."""

    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


T = TypeVar("T", bound=Dated)


def page_of(rows: Sequence[T], limit: int, tag: str) -> tuple[Sequence[T], str | None]:
    """Give a page of rows, one more than `limit` of which were asked for, and its next cursor."""
    page = rows[:limit]
    if len(rows) <= limit:
        return page, None
    return page, encode_cursor(page[-1].created_at, page[-1].id, tag)


def list_tag(caller: Caller, order: str, *filters: object) -> str:
    """Name a list as one caller sees it, for its cursors: they are of no use anywhere else."""
    named = orjson.dumps([caller.tenant_id, order, *filters], default=str)
    return hashlib.blake2b(named, digest_size=9).hexdigest()


def encode_cursor(at: datetime, item_id: str, tag: str) -> str:
    """Give the opaque cursor of a list position."""
    raw = orjson.dumps([at.isoformat(), item_id, tag])
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_cursor(cursor: str | None, tag: str) -> tuple[datetime, str] | None:
    """Read a cursor. Raises `CursorInvalid` for one of another list, order or filter."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, item_id, its_tag = orjson.loads(base64.urlsafe_b64decode(padded))
        position = datetime.fromisoformat(at).astimezone(UTC), str(item_id)
        is_sane = position[1].isascii() and position[1].isprintable()
    except (ValueError, TypeError, OverflowError):
        raise CursorInvalid("The cursor is not one of ours.") from None
    if its_tag != tag or not is_sane:
        raise CursorInvalid("The cursor belongs to another list, order or filter.")
    return position


def place_of(text: str) -> tuple[str, int]:
    """Read the place of a row in a session's log, as a cursor names it. Raises `CursorInvalid`."""
    session_id, _, seq = text.partition("/")
    if not seq.isdecimal() or len(seq) > 18:
        raise CursorInvalid("The cursor is not one of ours.")
    return session_id, int(seq)
