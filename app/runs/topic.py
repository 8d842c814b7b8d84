"""A session that is being read on this host, and where the pieces of its messages come from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from app.runs.items import Framed, Piece
from app.runs.reader import Reader
from app.store.rows import Row

Key: TypeAlias = tuple[str, str]
"""A session: its tenant and its id."""
RUN_BEGINS = frozenset({"run.started", "run.attempt"})
RUN_FINISHED = "run.finished"


class Source(Protocol):
    """A run that this host drives."""

    tenant_id: str
    session_id: str
    epoch: int
    """Of the lease that it is driven under."""

    def snapshot(self) -> Sequence[Piece]:
        """Give what came so far of the message that is on its way."""
        ...


class Audience(Protocol):
    """Readers on other hosts, of the runs that this host drives."""

    def began(self, source: Source) -> None:
        """Hear that this host drives a run."""
        ...

    def ended(self, source: Source) -> None:
        """Hear that it does so no more."""
        ...

    def flush(self, source: Source) -> None:
        """Send what waits, now: the message is complete, and its rows follow."""
        ...


class Elsewhere(Protocol):
    """Pieces of messages of the runs that other hosts drive."""

    def joined(self, key: Key) -> Sequence[Piece]:
        """Hear of a reader; give what came so far of the message that is on its way."""
        ...

    def left(self, key: Key) -> None:
        """Hear that nobody here looks any more."""
        ...

    def delivered(self, key: Key, rows: Sequence[Row]) -> None:
        """Hear of rows that readers here were just given."""
        ...


def frame(row: Row) -> bytes:
    """Build a row's SSE frame. The body of a service event gets its `seq` here."""
    if row.kind == "message":
        return f"id: {row.seq}\nevent: message\ndata: {row.body}\n\n".encode()
    return f"id: {row.seq}\nevent: service\ndata: {service_json(row)}\n\n".encode()


def service_json(row: Row) -> str:
    """Give a service event's JSON, with its `seq`."""
    return f'{{"seq":{row.seq},{row.body[1:]}'


@dataclass(slots=True)
class Topic:
    """A session that is being read here."""

    tenant_id: str
    session_id: str
    readers: set[Reader] = field(default_factory=set)
    watchers: set[Reader] = field(default_factory=set)
    """Those of the readers that want pieces, and have replayed."""
    cursor: int | None = None
    """Newest row that was handed to the readers; None while the first of them replays."""
    newest: int = 0
    """Newest row that was heard of."""
    is_idle: bool = False
    """Whether it is known that no run goes on."""
    _noted: int = 0
    _run_id: str | None = None

    @property
    def key(self) -> Key:
        return (self.tenant_id, self.session_id)

    def deliver(self, rows: Sequence[Row]) -> None:
        """Hand rows to every reader, framed once."""
        for row in rows:
            item = Framed(row, frame(row))
            for reader in self.readers:
                reader.put(item)
            self.cursor = row.seq
        self.note(rows)

    def note(self, rows: Sequence[Row]) -> None:
        """Learn from rows whether a run goes on. What goes on beside it does not matter."""
        for row in rows:
            if row.kind != "service" or row.seq <= self._noted or row.thread is not None:
                continue
            self._noted = row.seq
            if row.type in RUN_BEGINS:
                self._run_id, self.is_idle = row.run_id, False
            elif row.type == RUN_FINISHED and row.run_id == self._run_id:
                self.is_idle = True
