"""Word between hosts, over LISTEN and NOTIFY.

Words only say that there is something to read; what counts is in the tables. So a lost word costs
time (a poll finds it), never data. Words are sent after the commit they speak of, on a connection
of their own, packed, at most 40 times a second: a NOTIFY inside a transaction would serialise
the commits of the whole database.

Words on rows are many and of use to other hosts alone, so a host that hears of none does not send
them. Each host says again and again that it is here, and at once when it begins to listen; one
that has just come is greeted in return.

Pieces of messages for readers elsewhere are the exception: they are in no table. They go only where
somebody asked for them, ahead of the words that would make them stale, and are dropped under
pressure; whoever misses one sees that by its number.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import asyncpg
import orjson

from app.store.engine import TROUBLE, Database

log = logging.getLogger(__name__)

CHANNEL = "treadle"
GATHER_S = 0.025
"""Words are gathered for so long before they are sent: at most 40 sends a second a host."""
PAYLOAD_BYTES = 7900
"""Postgres takes payloads below 8,000 bytes."""
HERE_EVERY_S = 10.0
COMPANY_S = 30.0
"""A host counts as there for so long after it was last heard."""
MOST_PARTS = 2000
"""Parts of messages that wait to be sent; more are dropped."""


@dataclass(frozen=True, slots=True)
class RowsWritten:
    """A session's journal has grown to `seq`."""

    tenant_id: str
    session_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class WorkWaiting:
    """A run became claimable."""


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A run's cancel is asked for."""

    run_id: str


@dataclass(frozen=True, slots=True)
class MailArrived:
    """A prompt was sent into a run."""

    run_id: str


@dataclass(frozen=True, slots=True)
class TaskStopAsked:
    """A command in the background is to be stopped, by the host that runs it."""

    tenant_id: str
    session_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class TaskStopped:
    """It is stopped."""

    session_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class ServerAsked:
    """An MCP server is to be connected anew, by the host that drives the session."""

    tenant_id: str
    session_id: str
    server: str


@dataclass(frozen=True, slots=True)
class ServerReached:
    """It is on its way."""

    session_id: str
    server: str


@dataclass(frozen=True, slots=True)
class PreviewsWanted:
    """Somebody on the sender's host reads a session's partial messages. Holds for a while."""

    tenant_id: str
    session_id: str
    is_fresh: bool
    """Whether it has nothing yet of the message that is on its way."""


@dataclass(frozen=True, slots=True)
class PreviewPart:
    """A part of what a session's run sends; it follows on the part before it, or is of no use."""

    tenant_id: str
    session_id: str
    epoch: int
    """Of the lease that the run is driven under: a higher one is newer."""
    stream: str
    n: int
    """Its number in the stream."""
    kind: Literal["snapshot", "events", "more"]
    """What begins with it; `more` goes on with the last."""
    is_last: bool
    text: str
    """A part of JSON, which is whole with the last one."""


@dataclass(frozen=True, slots=True)
class Here:
    """The sender is there. Between buses alone: `on_word` is not told."""

    is_new: bool
    """It has just begun to listen, and knows of nobody yet."""


Word: TypeAlias = (
    RowsWritten
    | WorkWaiting
    | CancelAsked
    | MailArrived
    | TaskStopAsked
    | TaskStopped
    | ServerAsked
    | ServerReached
    | PreviewsWanted
    | PreviewPart
    | Here
)


@dataclass(slots=True)
class Bus:
    """Sends and hears words. Made by `open_bus`, which owns its tasks and connections."""

    database: Database
    host_id: str
    _hear: list[Callable[[Word], None]] = field(default_factory=list)
    _reconnected: list[Callable[[], None]] = field(default_factory=list)
    _rows: dict[tuple[str, str], int] = field(default_factory=dict)
    _others: set[Word] = field(default_factory=set)
    _parts: list[PreviewPart] = field(default_factory=list)
    _has_words: asyncio.Event = field(default_factory=asyncio.Event)
    _company_until_s: float = 0.0
    """Monotonic."""

    def say(self, word: Word) -> None:
        """Send a word to the other hosts, soon. Never blocks, never raises."""
        if isinstance(word, RowsWritten):
            key = (word.tenant_id, word.session_id)
            self._rows[key] = max(word.seq, self._rows.get(key, 0))
        elif isinstance(word, PreviewPart):
            if len(self._parts) < MOST_PARTS:
                self._parts.append(word)
        else:
            self._others.add(word)
        self._has_words.set()

    def on_word(self, hear: Callable[[Word], None]) -> None:
        """Call `hear` with each word of another host."""
        self._hear.append(hear)

    def on_reconnect(self, call: Callable[[], None]) -> None:
        """Call back when words may have been missed."""
        self._reconnected.append(call)

    async def send_forever(self) -> None:
        """Send what is said, packed, until cancelled."""
        while True:
            await self._has_words.wait()
            await asyncio.sleep(GATHER_S)
            self._has_words.clear()
            words: list[Word] = [*self._parts, *self._others]
            if self.has_company:
                words += [RowsWritten(t, s, q) for (t, s), q in self._rows.items()]
            self._rows.clear()
            self._others.clear()
            self._parts.clear()
            try:
                for payload in pack(self.host_id, words):
                    await self.database.raw.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
            except TROUBLE as error:
                # Readers poll; nothing is lost but time.
                log.warning("Could not notify other hosts: %s", type(error).__name__)
                await asyncio.sleep(1.0)

    @property
    def has_company(self) -> bool:
        """Whether another host was heard of late."""
        return time.monotonic() < self._company_until_s

    async def greet_forever(self) -> None:
        """Say that this host is here, until cancelled."""
        while True:
            await asyncio.sleep(HERE_EVERY_S)
            self.say(Here(is_new=False))

    async def listen_forever(self) -> None:
        """Hear words until cancelled; come back after a lost connection."""
        while True:
            try:
                await self._listen()
            except TROUBLE as error:
                log.warning("The listener lost its connection: %s", type(error).__name__)
            await asyncio.sleep(0.5)

    async def _listen(self) -> None:
        lost = asyncio.Event()
        connection = await asyncpg.connect(self.database.dsn, timeout=10)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._heard)
            self.say(Here(is_new=True))
            for call in self._reconnected:
                call()
            while not lost.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), 30)
                if not lost.is_set():
                    await connection.execute("SELECT 1", timeout=10)
        finally:
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:  # noqa: ANN401 - asyncpg's callback
        for word in unpack(self.host_id, str(payload)):
            self._company_until_s = time.monotonic() + COMPANY_S
            if isinstance(word, Here):
                if word.is_new:
                    self.say(Here(is_new=False))
                continue
            for hear in self._hear:
                hear(word)


@asynccontextmanager
async def open_bus(database: Database, host_id: str) -> AsyncIterator[Bus]:
    """Start sending and hearing."""
    bus = Bus(database, host_id)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(bus.send_forever()),
            tasks.create_task(bus.listen_forever()),
            tasks.create_task(bus.greet_forever()),
        ]
        try:
            yield bus
        finally:
            for task in running:
                task.cancel()


def pack(host_id: str, words: list[Word]) -> list[str]:
    """Give payloads that hold all words, each small enough."""
    payloads: list[str] = []
    pending: list[list[object]] = []
    size = 0
    for word in words:
        item = _item(word)
        item_size = len(orjson.dumps(item)) + 1
        if pending and size + item_size > PAYLOAD_BYTES - 100:
            payloads.append(orjson.dumps([host_id, pending]).decode())
            pending, size = [], 0
        pending.append(item)
        size += item_size
    if pending:
        payloads.append(orjson.dumps([host_id, pending]).decode())
    return payloads


def unpack(host_id: str, payload: str) -> list[Word]:
    """Read a payload; words of one's own are left out, as are those of a newer program."""
    try:
        sender, items = orjson.loads(payload)
    except (ValueError, TypeError):
        return []
    if sender == host_id or not isinstance(items, list):
        return []
    return [word for item in items if (word := _word(item)) is not None]


def _item(word: Word) -> list[object]:  # noqa: C901 - a table
    match word:
        case RowsWritten(tenant, session, seq):
            return ["rows", tenant, session, seq]
        case WorkWaiting():
            return ["work"]
        case CancelAsked(run):
            return ["cancel", run]
        case MailArrived(run):
            return ["mail", run]
        case TaskStopAsked(tenant, session, task):
            return ["stop", tenant, session, task]
        case TaskStopped(session, task):
            return ["stopped", session, task]
        case ServerAsked(tenant, session, server):
            return ["server", tenant, session, server]
        case ServerReached(session, server):
            return ["reached", session, server]
        case Here(is_new):
            return ["here", is_new]
        case PreviewsWanted(tenant, session, is_fresh):
            return ["want", tenant, session, is_fresh]
        case PreviewPart(tenant, session, epoch, stream, n, kind, is_last, text):
            return ["part", tenant, session, epoch, stream, n, kind, is_last, text]


def _word(item: object) -> Word | None:  # noqa: C901 - a table
    match item:
        case ["rows", str(tenant), str(session), int(seq)]:
            return RowsWritten(tenant, session, seq)
        case ["work"]:
            return WorkWaiting()
        case ["cancel", str(run)]:
            return CancelAsked(run)
        case ["mail", str(run)]:
            return MailArrived(run)
        case ["stop", str(tenant), str(session), str(task)]:
            return TaskStopAsked(tenant, session, task)
        case ["stopped", str(session), str(task)]:
            return TaskStopped(session, task)
        case ["server", str(tenant), str(session), str(server)]:
            return ServerAsked(tenant, session, server)
        case ["reached", str(session), str(server)]:
            return ServerReached(session, server)
        case ["here", bool(is_new)]:
            return Here(is_new)
        case ["want", str(tenant), str(session), bool(is_fresh)]:
            return PreviewsWanted(tenant, session, is_fresh)
        case [
            "part",
            str(tenant),
            str(session),
            int(epoch),
            str(stream),
            int(n),
            "snapshot" | "events" | "more" as kind,
            bool(is_last),
            str(text),
        ]:
            return PreviewPart(tenant, session, epoch, stream, n, kind, is_last, text)
        case _:
            return None
