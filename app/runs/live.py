"""Live reading: rows to many readers, read once, framed once.

Theory of operation. Rows in the journal are the truth; everything here only says when to look. A
*topic* is a session that somebody on this host reads. Its rows arrive in three ways: from a writer
on this host (the very bytes it committed), after a word from another host, or by the poll that
heals lost words; the pump reads them once for all readers. A *reader* registers first, replays
from its cursor, then follows its buffer. It insists that sequence numbers are dense: whatever is
missing (a word that overtook another, a buffer that overflowed) sends it back to the journal. So
no order of events can lose or double a row, and a slow reader costs no memory.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app.store import journal
from app.store.bus import Bus, RowsWritten, Word
from app.store.engine import GONE, TROUBLE, Database, gone
from app.store.journal import PAGE
from app.store.journal import Row as Row

log = logging.getLogger(__name__)

EndReason = Literal["run_finished", "server_shutdown"]


@dataclass(frozen=True, slots=True)
class Framed:
    """A durable row with its SSE frame."""

    row: Row
    frame: bytes


@dataclass(frozen=True, slots=True)
class Preview:
    """A partial message: best effort, no id."""

    run_id: str
    frame: bytes
    is_text: bool = False
    """Whether it is a piece of the answer's text: all that `previews=text` shows."""


@dataclass(frozen=True, slots=True)
class End:
    """Nothing more comes on this connection."""

    reason: EndReason


Item: TypeAlias = Framed | Preview | End


def frame(row: Row) -> bytes:
    """Build a row's SSE frame. The body of a service event gets its `seq` here."""
    if row.kind == "message":
        return f"id: {row.seq}\nevent: message\ndata: {row.body}\n\n".encode()
    return f"id: {row.seq}\nevent: service\ndata: {service_json(row)}\n\n".encode()


def service_json(row: Row) -> str:
    """Give a service event's JSON, with its `seq`."""
    return f'{{"seq":{row.seq},{row.body[1:]}'


@dataclass(slots=True, eq=False)
class Reader:
    """One connection's buffer, bounded in frames."""

    wants_previews: bool
    size: int
    _items: deque[Item] = field(default_factory=deque)
    _has_items: asyncio.Event = field(default_factory=asyncio.Event)
    _has_overflowed: bool = False

    def put(self, item: Item) -> None:
        """Buffer an item. Past the bound previews are dropped first, then rows are re-read."""
        if len(self._items) >= self.size:
            if isinstance(item, Preview):
                return
            if isinstance(item, Framed):
                self._has_overflowed = True
                self._items.clear()
                self._has_items.set()
                return
        self._items.append(item)
        self._has_items.set()

    async def take(self) -> list[Item] | None:
        """Wait for items and give all there are; None when some were lost to the bound."""
        await self._has_items.wait()
        self._has_items.clear()
        if self._has_overflowed:
            self._has_overflowed = False
            kept = [item for item in self._items if isinstance(item, End)]
            self._items = deque(kept)
            if kept:
                self._has_items.set()
            return None
        items = list(self._items)
        self._items.clear()
        return items


@dataclass(slots=True)
class Topic:
    """A session that is being read here."""

    tenant_id: str
    session_id: str
    readers: set[Reader] = field(default_factory=set)
    cursor: int | None = None
    """Newest row that was handed to the readers; None while the first of them replays."""
    newest: int = 0
    """Newest row that was heard of."""

    def deliver(self, rows: Sequence[Row]) -> None:
        """Hand rows to every reader, framed once."""
        for row in rows:
            item = Framed(row, frame(row))
            for reader in self.readers:
                reader.put(item)
            self.cursor = row.seq


@dataclass(slots=True)
class Hub:
    """All topics of this host. `pump_forever` and `poll_forever` run as tasks of the service."""

    database: Database
    bus: Bus
    poll_s: float
    buffer_frames: int
    _topics: dict[tuple[str, str], Topic] = field(default_factory=dict)
    _behind: set[tuple[str, str]] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _is_closed: bool = False

    # -- writing --------------------------------------------------------------------------

    def wrote(self, tenant_id: str, session_id: str, rows: Sequence[Row]) -> None:
        """Tell readers here and hosts elsewhere of rows that were just committed."""
        if not rows:
            return
        self.bus.say(RowsWritten(tenant_id, session_id, rows[-1].seq))
        topic = self._topics.get((tenant_id, session_id))
        if topic is None:
            return
        if topic.cursor is None or topic.cursor + 1 == rows[0].seq:
            topic.deliver(rows)
        else:
            self._look(topic)

    def grew(self, tenant_id: str, session_id: str, seq: int) -> None:
        """Tell readers here and hosts elsewhere that a journal has grown to `seq`."""
        word = RowsWritten(tenant_id, session_id, seq)
        self.bus.say(word)
        self.heard(word)

    def wants_previews(self, tenant_id: str, session_id: str) -> bool:
        """Whether anybody here would see a preview of this session."""
        topic = self._topics.get((tenant_id, session_id))
        return topic is not None and any(reader.wants_previews for reader in topic.readers)

    def preview(self, tenant_id: str, session_id: str, item: Preview) -> None:
        """Hand a preview to the readers here that want it."""
        if topic := self._topics.get((tenant_id, session_id)):
            for reader in topic.readers:
                if reader.wants_previews:
                    reader.put(item)

    # -- hearing --------------------------------------------------------------------------

    def heard(self, word: Word) -> None:
        """Take a word: look at the session when somebody here reads it."""
        if isinstance(word, RowsWritten):
            topic = self._topics.get((word.tenant_id, word.session_id))
            if topic is not None:
                topic.newest = max(topic.newest, word.seq)
                self._look_if_behind(topic)

    def look_everywhere(self) -> None:
        """Look at every session that is read here: words may have been missed."""
        for topic in self._topics.values():
            self._look(topic)

    def _look_if_behind(self, topic: Topic) -> None:
        if topic.cursor is not None and topic.cursor < topic.newest:
            self._look(topic)

    def _look(self, topic: Topic) -> None:
        self._behind.add((topic.tenant_id, topic.session_id))
        self._wake.set()

    async def pump_forever(self) -> None:
        """Read what topics are behind on, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._behind:
                topic = self._topics.get(self._behind.pop())
                if topic is not None and topic.cursor is not None:
                    with contextlib.suppress(*TROUBLE):  # the poll comes back to it
                        await self._catch_up(topic)

    async def _catch_up(self, topic: Topic) -> None:
        while True:
            start = topic.cursor or 0
            rows = await journal.read(self.database, topic.tenant_id, topic.session_id, after=start)
            # A writer on this host may have delivered some of them meanwhile.
            topic.deliver([row for row in rows if row.seq > (topic.cursor or 0)])
            if len(rows) < PAGE:
                return

    async def poll_forever(self) -> None:
        """Heal lost words: look for growth of watched sessions, until cancelled."""
        while True:
            await asyncio.sleep(self.poll_s)
            watched = list(self._topics)
            if not watched:
                continue
            try:
                newest = await journal.last_seqs(self.database, watched)
            except TROUBLE:
                continue
            for (tenant_id, session_id), seq in newest.items():
                self.heard(RowsWritten(tenant_id, session_id, seq))

    # -- reading --------------------------------------------------------------------------

    async def follow(
        self, tenant_id: str, session_id: str, *, after: int, previews: bool
    ) -> AsyncGenerator[list[Item]]:
        """Give everything beyond `after`, then what comes, until an `End`.

        Rows come in order, without gap or repetition; previews in between. Lists are what is
        ready together: write them in one go. Raises `Unavailable` when the database is gone.
        """
        sent = after
        with self._subscription(tenant_id, session_id, wants_previews=previews) as (topic, reader):
            while True:
                while True:
                    rows = await self._page(tenant_id, session_id, sent)
                    if rows:
                        yield [Framed(row, frame(row)) for row in rows]
                        sent = rows[-1].seq
                    if len(rows) < PAGE:
                        break
                if self._is_closed:
                    yield [End("server_shutdown")]
                    return
                if topic.cursor is None:
                    topic.cursor = sent
                    self._look_if_behind(topic)
                is_whole = True
                while is_whole:
                    ready, sent, is_whole = _in_order(await reader.take(), sent)
                    if ready:
                        yield ready
                        if isinstance(ready[-1], End):
                            return

    async def _page(self, tenant_id: str, session_id: str, after: int) -> list[Row]:
        try:
            return await journal.read(self.database, tenant_id, session_id, after=after)
        except GONE as error:
            raise gone(error) from error

    @contextmanager
    def _subscription(
        self, tenant_id: str, session_id: str, *, wants_previews: bool
    ) -> Iterator[tuple[Topic, Reader]]:
        key = (tenant_id, session_id)
        topic = self._topics.setdefault(key, Topic(tenant_id, session_id))
        reader = Reader(wants_previews, self.buffer_frames)
        topic.readers.add(reader)
        try:
            yield topic, reader
        finally:
            topic.readers.discard(reader)
            if not topic.readers:
                self._topics.pop(key, None)

    def close(self) -> None:
        """End every stream, those of the future too: this host is going."""
        self._is_closed = True
        for topic in self._topics.values():
            for reader in topic.readers:
                reader.put(End("server_shutdown"))


def _in_order(items: list[Item] | None, sent: int) -> tuple[list[Item], int, bool]:
    """Give the items that follow `sent` densely, the new cursor, and whether nothing is missing."""
    ready: list[Item] = []
    for item in items or ():
        if isinstance(item, Framed):
            if item.row.seq <= sent:
                continue
            if item.row.seq != sent + 1:
                return ready, sent, False
            sent = item.row.seq
        ready.append(item)
    return ready, sent, items is not None
