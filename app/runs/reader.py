"""What waits for one connection: rows, pieces of messages, the end. Bounded in frames and bytes.

Rows that do not fit are dropped together with all that waits, and the reader is sent back to the
journal. Pieces that do not fit are dropped for good, and with them the rest of their message: so
per block a reader always holds a prefix of the final text, never a text with a hole.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.runs.items import Comment, Delta, Framed, Item, Piece, Preview

TAKE_BYTES = 256 * 1024
"""About so much is given at a time: what is joined for a socket is a copy."""
_OVERHEAD_BYTES = 300
"""What an item weighs beside its text."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much waits for a reader, and for how long."""

    frames: int
    bytes: int
    coalesce_s: float = 0.0
    """Shortest time between two takes of pieces; they are joined meanwhile. 0: each for itself."""


@dataclass(slots=True, eq=False)
class Reader:
    """One connection's buffer. `close` it when nobody takes any more."""

    bounds: Bounds
    _items: deque[Item] = field(default_factory=deque)
    _joined: list[str] = field(default_factory=list)
    """Texts to be joined to the last item, a delta."""
    _bytes: int = 0
    _is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    _has_overflowed: bool = False
    _message_id: str | None = None
    """The message whose pieces it has had from the first on."""
    _lost_id: str | None = None
    """The message that it misses pieces of: the others are useless to it."""
    _taken_s: float = -math.inf
    _timer: asyncio.TimerHandle | None = None

    def put(self, item: Item) -> None:
        """Buffer an item. Never blocks, never raises."""
        if isinstance(item, (Delta, Preview)):
            self._put_piece(item)
            return
        if isinstance(item, Framed):
            if self._has_overflowed:
                return  # it will be read again
            if not self._has_room(len(item.frame)):
                self._overflow()
                return
        self._append(item)
        self._is_ready.set()

    def join(self, snapshot: Sequence[Piece]) -> None:
        """Begin with a message in its middle; nothing happens when the reader knows it already."""
        if not snapshot or snapshot[0].message_id in {self._message_id, self._lost_id}:
            return
        self._append(Comment(snapshot[0].run_id, "snapshot"))
        for piece in snapshot:
            self._put_piece(piece)

    def shed(self) -> None:
        """Give up the message that is on its way: pieces of it were lost."""
        if self._message_id is not None:
            self._lost_id, self._message_id = self._message_id, None

    async def take(self) -> list[Item] | None:
        """Wait for items and give those there are; None when rows were lost to the bound."""
        await self._is_ready.wait()
        return self.take_now()

    def take_now(self) -> list[Item] | None:
        """Give the items there are, `TAKE_BYTES` or a little more at the most."""
        self._is_ready.clear()
        self._stop_timer()
        if self._has_overflowed:
            self._has_overflowed = False
            self._wake_if_filled()
            return None
        self._seal()
        items: list[Item] = []
        weight = 0
        while self._items and weight < TAKE_BYTES:
            item = self._items.popleft()
            weight += _weight(item)
            items.append(item)
        self._bytes = self._bytes - weight if self._items else 0
        self._wake_if_filled()
        if items and isinstance(items[-1], Delta) and self.bounds.coalesce_s:
            self._taken_s = asyncio.get_running_loop().time()
        return items

    def wake(self) -> None:
        """Let whoever waits go on, with nothing perhaps."""
        self._is_ready.set()

    def close(self) -> None:
        """Leave nothing behind."""
        self._stop_timer()

    def _put_piece(self, piece: Piece) -> None:
        if self._has_overflowed or not self._is_next(piece):
            return
        is_joinable = isinstance(piece, Delta) and self.bounds.coalesce_s > 0
        if isinstance(piece, Delta) and is_joinable and self._continues(piece):
            self._join_to_last(piece)
        elif not self._has_room(_weight(piece)):
            self.shed()
        else:
            self._append(piece)
            if is_joinable:
                self._ring_when_due()
            else:
                self._is_ready.set()

    def _continues(self, piece: Delta) -> bool:
        return bool(self._items) and piece.continues(self._items[-1])

    def _join_to_last(self, piece: Delta) -> None:
        if self._has_room(len(piece.text), frames=0):
            self._joined.append(piece.text)
            self._bytes += len(piece.text)
        else:
            self.shed()

    def _is_next(self, piece: Piece) -> bool:
        """Whether a piece follows on what the reader had of its message."""
        message_id = piece.message_id
        if message_id is None or message_id == self._message_id:
            if piece.aborts:
                self.shed()
            return True
        if message_id == self._lost_id:
            return piece.aborts is not None
        if piece.begins:
            self._message_id = message_id
        return piece.begins

    def _has_room(self, weight: int, *, frames: int = 1) -> bool:
        # What is too large for the bound alone still has to pass.
        return not self._items or (
            len(self._items) + frames <= self.bounds.frames
            and self._bytes + weight <= self.bounds.bytes
        )

    def _append(self, item: Item) -> None:
        self._seal()
        self._items.append(item)
        self._bytes += _weight(item)

    def _seal(self) -> None:
        if self._joined:
            last = self._items[-1]
            if isinstance(last, Delta):
                text = "".join((last.text, *self._joined))
                self._items[-1] = replace(last, text=text, _data=None)
            self._joined.clear()

    def _overflow(self) -> None:
        self._has_overflowed = True
        self._items.clear()
        self._joined.clear()
        self._bytes = 0
        self.shed()
        self._is_ready.set()

    def _wake_if_filled(self) -> None:
        if self._items:
            self._is_ready.set()

    def _ring_when_due(self) -> None:
        if self._timer is not None or self._is_ready.is_set():
            return
        loop = asyncio.get_running_loop()
        due_s = self._taken_s + self.bounds.coalesce_s
        if loop.time() >= due_s:
            self._is_ready.set()
        else:
            self._timer = loop.call_at(due_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._is_ready.set()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _weight(item: Item) -> int:
    match item:
        case Framed():
            return len(item.frame)
        case Delta():
            return len(item.text) + _OVERHEAD_BYTES
        case Preview():
            return len(item.data) + _OVERHEAD_BYTES
        case _:
            return 0
