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
from typing import Any

import asyncpg

from app.store.engine import TROUBLE, Database
from app.store.words import Here, PreviewPart, RowsWritten, Word, pack, unpack

log = logging.getLogger(__name__)

CHANNEL = "treadle"
GATHER_S = 0.025
"""Words are gathered for so long before they are sent: at most 40 sends a second a host."""
HERE_EVERY_S = 10.0
COMPANY_S = 30.0
"""A host counts as there for so long after it was last heard."""
MOST_PARTS = 2000
"""Parts of messages that wait to be sent; more are dropped."""


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
            if not self.has_company:
                return
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
            rows = [RowsWritten(t, s, q) for (t, s), q in self._rows.items()]
            words: list[Word] = [*self._parts, *self._others, *rows]
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
