"""Live reading: rows to many readers, read once, framed once.

Theory of operation. Rows in the journal are the truth; everything here only says when to look. A
*topic* is a session that somebody on this host reads. Its rows arrive in three ways: from a writer
on this host (the very bytes it committed), after a word from another host, or by the poll that
heals lost words; the pump reads them once for all readers. A *reader* registers first, replays
from its cursor, then follows its buffer. It insists that sequence numbers are dense: whatever is
missing (a word that overtook another, a buffer that overflowed) sends it back to the journal. So
no order of events can lose or double a row, and a slow reader costs no memory.

Pieces of messages that are on their way (previews) come from the run itself when this host drives
it, else from `Elsewhere`. A reader begins to get them when its replay is done, with what came of
the open message so far: both in one step, so that nothing is missing between the two.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.runs.items import End, Framed, Item, Piece
from app.runs.reader import Bounds, Reader
from app.runs.topic import Audience, Elsewhere, Key, Source, Topic, frame
from app.store import journal
from app.store.bus import Bus
from app.store.engine import GONE, TROUBLE, Database, gone
from app.store.replay import read_page
from app.store.rows import Row
from app.store.words import RowsWritten, Word

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Hub:
    """All topics of this host. `pump_forever` and `poll_forever` run as tasks of the service."""

    database: Database
    bus: Bus
    poll_s: float
    buffer_frames: int
    buffer_bytes: int = 4_000_000
    coalesce_s: float = 0.0
    audience: Audience | None = None
    elsewhere: Elsewhere | None = None
    relayed: dict[Key, Reader] = field(default_factory=dict)
    """Readers of pieces that stand for readers on other hosts."""
    _topics: dict[Key, Topic] = field(default_factory=dict)
    _sources: dict[Key, Source] = field(default_factory=dict)
    _behind: set[Key] = field(default_factory=set)
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
            self._deliver(topic, rows)
        else:
            self._look(topic)

    def grew(self, tenant_id: str, session_id: str, seq: int) -> None:
        """Tell readers here and hosts elsewhere that a journal has grown to `seq`."""
        word = RowsWritten(tenant_id, session_id, seq)
        self.bus.say(word)
        self.heard(word)

    def _deliver(self, topic: Topic, rows: Sequence[Row]) -> None:
        topic.deliver(rows)
        if topic.watchers and self.elsewhere is not None and topic.key not in self._sources:
            self.elsewhere.delivered(topic.key, rows)

    # -- pieces ---------------------------------------------------------------------------

    @contextmanager
    def driving(self, source: Source) -> Iterator[None]:
        """Take a run's pieces from here while it is driven on this host."""
        key = (source.tenant_id, source.session_id)
        self._sources[key] = source
        if self.elsewhere is not None:
            self.elsewhere.left(key)
        if self.audience is not None:
            self.audience.began(source)
        try:
            yield
        finally:
            if self.audience is not None:
                self.audience.ended(source)
            if self._sources.get(key) is source:  # a newer attempt may have begun here
                del self._sources[key]

    def source(self, key: Key) -> Source | None:
        """Give the run of a session that this host drives."""
        return self._sources.get(key)

    def message_completed(self, source: Source) -> None:
        """Let the last pieces of a message go out before its rows do."""
        if self.audience is not None and self.relayed:
            self.audience.flush(source)

    def wants_previews(self, tenant_id: str, session_id: str) -> bool:
        """Whether anybody would see a preview of this session."""
        key = (tenant_id, session_id)
        topic = self._topics.get(key)
        return (topic is not None and bool(topic.watchers)) or key in self.relayed

    def preview(self, tenant_id: str, session_id: str, piece: Piece) -> None:
        """Hand a preview to the readers that want it."""
        key = (tenant_id, session_id)
        if topic := self._topics.get(key):
            for reader in topic.watchers:
                reader.put(piece)
        if (relayed := self.relayed.get(key)) is not None:
            relayed.put(piece)

    def watched_elsewhere(self) -> list[Key]:
        """Give the sessions whose readers want pieces that may come from another host."""
        return [
            key
            for key, topic in self._topics.items()
            if topic.watchers and not topic.is_idle and key not in self._sources
        ]

    def watchers(self, key: Key) -> Sequence[Reader]:
        """Give the readers here that want pieces of a session that another host drives."""
        topic = self._topics.get(key)
        return () if topic is None or key in self._sources else tuple(topic.watchers)

    def _watch(self, topic: Topic, reader: Reader) -> None:
        """Give a reader that has replayed all pieces from now on, and those it missed."""
        topic.watchers.add(reader)
        if (source := self._sources.get(topic.key)) is not None:
            reader.join(source.snapshot())
        elif self.elsewhere is not None and not topic.is_idle:
            reader.join(self.elsewhere.joined(topic.key))

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
            page = await read_page(self.database, topic.tenant_id, topic.session_id, after=start)
            # A writer on this host may have delivered some of them meanwhile.
            self._deliver(topic, [row for row in page.rows if row.seq > (topic.cursor or 0)])
            if not page.has_more:
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
        self,
        tenant_id: str,
        session_id: str,
        *,
        after: int,
        previews: bool,
        known: Sequence[Row] = (),
    ) -> AsyncGenerator[list[Item]]:
        """Give everything beyond `after`, then what comes, until an `End`.

        Rows come in order, without gap or repetition; previews in between. Lists are what is
        ready together: write them in one go. Rows beyond `after` that are `known` are not given;
        they are taken for all that there are, unless more was heard of. If there were more, that
        shows with the next row, or at the next poll. Raises `Unavailable` when the database is gone.
        """
        sent = known[-1].seq if known else after
        with self._subscription(tenant_id, session_id) as (topic, reader):
            topic.note(known)
            has_more = not known or max(topic.cursor or 0, topic.newest) > sent
            while True:
                while has_more:
                    rows, has_more = await self._page(tenant_id, session_id, sent)
                    if rows:
                        topic.note(rows)
                        yield [Framed(row, frame(row)) for row in rows]
                        sent = rows[-1].seq
                if self._is_closed:
                    yield [End("server_shutdown")]
                    return
                if topic.cursor is None:
                    topic.cursor = sent
                    self._look_if_behind(topic)
                if previews:
                    self._watch(topic, reader)
                is_whole = True
                while is_whole:
                    ready, sent, is_whole = _in_order(await reader.take(), sent)
                    if ready:
                        yield ready
                        if isinstance(ready[-1], End):
                            return
                has_more = True

    async def _page(self, tenant_id: str, session_id: str, after: int) -> tuple[list[Row], bool]:
        try:
            page = await read_page(self.database, tenant_id, session_id, after=after)
        except GONE as error:
            raise gone(error) from error
        return page.rows, page.has_more

    @contextmanager
    def _subscription(self, tenant_id: str, session_id: str) -> Iterator[tuple[Topic, Reader]]:
        key = (tenant_id, session_id)
        topic = self._topics.setdefault(key, Topic(tenant_id, session_id))
        reader = Reader(Bounds(self.buffer_frames, self.buffer_bytes, self.coalesce_s))
        topic.readers.add(reader)
        try:
            yield topic, reader
        finally:
            reader.close()
            topic.readers.discard(reader)
            topic.watchers.discard(reader)
            if not topic.watchers and self.elsewhere is not None:
                self.elsewhere.left(key)
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
