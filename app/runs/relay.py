"""Partial messages for readers on other hosts: the side of the host that drives the run.

Theory of operation. A host whose readers want a session's pieces says so over the bus, again and
again; its word holds for `KEEP_S`. Here a `Reader` stands for all of them: it joins the pieces that
come within `COALESCE_S`, and what does not fit is shed as for any reader. What it gives is cut into
numbered parts, small enough for a notification. A stream of parts begins with a snapshot, and has
another one whenever somebody asks who has nothing yet. Nobody asks: nothing is sent.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal
from uuid import uuid4

import orjson

from app.runs.items import Delta, Item, Piece, Preview
from app.runs.live import Hub
from app.runs.reader import Bounds, Reader
from app.runs.topic import Key, Source
from app.store.bus import Bus
from app.store.words import PAYLOAD_BYTES, PreviewPart, PreviewsWanted, Word

COALESCE_S = 0.04
KEEP_S = 15.0
"""How long a word of interest holds; it is repeated every few seconds."""
PAYLOADS_PER_S = 100
"""Notifications full of pieces that one host sends in a second at the most."""
PART_CHARACTERS = 1_700
"""Four bytes each at the most, and some of them escaped: fits a payload with its head."""
_HEAD_BYTES = 160
_MOST_WANTED = 100_000
_BOUNDS = Bounds(frames=1000, bytes=1_000_000, coalesce_s=COALESCE_S)


@dataclass(slots=True)
class Budget:
    """So many bytes a second, of which a tenth can be saved up."""

    bytes_per_s: float
    _left: float = 0.0
    _at_s: float = 0.0

    def take(self, size: int) -> bool:
        """Spend if there is enough."""
        now = asyncio.get_running_loop().time()
        most = max(self.bytes_per_s / 10, PAYLOAD_BYTES)
        self._left = min(most, self._left + (now - self._at_s) * self.bytes_per_s)
        self._at_s = now
        if size > self._left:
            return False
        self._left -= size
        return True


@dataclass(slots=True, eq=False)
class Outgoing:
    """What is sent of one run while somebody elsewhere reads it."""

    source: Source
    until_s: float
    stream: str = field(default_factory=lambda: uuid4().hex[:12])
    reader: Reader = field(default_factory=lambda: Reader(_BOUNDS))
    parts: deque[tuple[Literal["snapshot", "events", "more"], bool, str]] = field(
        default_factory=deque
    )
    n: int = 0

    @property
    def key(self) -> Key:
        return (self.source.tenant_id, self.source.session_id)

    def add_snapshot(self) -> None:
        """Add what came of the open message; pieces that wait are part of it."""
        self.gather(self.reader.take_now())
        snapshot = self.source.snapshot()
        self.reader.join(snapshot)
        self.reader.take_now()
        runs = [*_bundles(snapshot)] or [{"run": "", "message": None, "events": []}]
        self.parts += _cut("snapshot", runs[0])

    def gather(self, items: Sequence[Item] | None) -> None:
        """Add pieces that the reader gave."""
        for bundle in _bundles(items or ()):
            self.parts += _cut("events", bundle)

    def next_part(self) -> PreviewPart:
        """Number the next part."""
        kind, is_last, text = self.parts.popleft()
        part = PreviewPart(*self.key, self.source.epoch, self.stream, self.n, kind, is_last, text)
        self.n += 1
        return part


@dataclass(slots=True)
class Relay:
    """Sends pieces of the runs of this host to hosts that asked. Made by `open_relay`."""

    hub: Hub
    bus: Bus
    budget: Budget
    _tasks: asyncio.TaskGroup
    _wanted: dict[Key, float] = field(default_factory=dict)
    """Until when somebody elsewhere reads a session's pieces, whoever drives it."""
    _outgoing: dict[Key, tuple[Outgoing, asyncio.Task[None]]] = field(default_factory=dict)

    # -- words ----------------------------------------------------------------------------

    def heard(self, word: Word) -> None:
        """Take a word of another host."""
        if not isinstance(word, PreviewsWanted):
            return
        key = (word.tenant_id, word.session_id)
        until_s = asyncio.get_running_loop().time() + KEEP_S
        self._remember(key, until_s)
        if key not in self._outgoing:
            self._start_if_wanted(self.hub.source(key))
            return
        outgoing, _ = self._outgoing[key]
        outgoing.until_s = until_s
        if word.is_fresh:
            outgoing.add_snapshot()
            self._send(outgoing)

    def _remember(self, key: Key, until_s: float) -> None:
        if len(self._wanted) >= _MOST_WANTED:
            now = asyncio.get_running_loop().time()
            self._wanted = {k: until for k, until in self._wanted.items() if until > now}
        if len(self._wanted) < _MOST_WANTED:
            self._wanted[key] = until_s

    # -- runs of this host ----------------------------------------------------------------

    def began(self, source: Source) -> None:
        """Hear that this host drives a run."""
        self._stop((source.tenant_id, source.session_id))  # an older attempt's
        self._start_if_wanted(source)

    def ended(self, source: Source) -> None:
        """Hear that it does so no more."""
        key = (source.tenant_id, source.session_id)
        found = self._outgoing.get(key)
        if found is not None and found[0].source is source:
            self.flush(source)
            self._stop(key)

    def flush(self, source: Source) -> None:
        """Send what waits, now, or never: its message is complete."""
        found = self._outgoing.get((source.tenant_id, source.session_id))
        if found is not None and found[0].source is source:
            outgoing, _ = found
            outgoing.gather(outgoing.reader.take_now())
            self._send(outgoing)
            outgoing.parts.clear()

    def close(self) -> None:
        """Send nothing more."""
        for key in list(self._outgoing):
            self._stop(key)

    # -- sending --------------------------------------------------------------------------

    def _start_if_wanted(self, source: Source | None) -> None:
        if source is None:
            return
        key = (source.tenant_id, source.session_id)
        until_s = self._wanted.get(key, 0.0)
        if until_s <= asyncio.get_running_loop().time():
            return
        outgoing = Outgoing(source, until_s)
        self.hub.relayed[key] = outgoing.reader
        outgoing.add_snapshot()
        self._outgoing[key] = (outgoing, self._tasks.create_task(self._send_on(outgoing)))

    def _stop(self, key: Key) -> None:
        found = self._outgoing.pop(key, None)
        if found is not None:
            outgoing, task = found
            self.hub.relayed.pop(key, None)
            outgoing.reader.close()
            task.cancel()

    async def _send_on(self, outgoing: Outgoing) -> None:
        """Send what comes, as fast as the budget allows, while somebody wants it."""
        loop = asyncio.get_running_loop()
        while outgoing.until_s > loop.time():
            if not self._send(outgoing):
                await asyncio.sleep(COALESCE_S)
                continue
            try:
                async with asyncio.timeout_at(outgoing.until_s):
                    outgoing.gather(await outgoing.reader.take())
            except TimeoutError:
                continue  # the time may have been prolonged
        self._stop(outgoing.key)

    def _send(self, outgoing: Outgoing) -> bool:
        """Say parts while there is a budget; give whether all are said."""
        while outgoing.parts:
            if not self.budget.take(len(outgoing.parts[0][2].encode()) + _HEAD_BYTES):
                outgoing.reader.wake()
                return False
            self.bus.say(outgoing.next_part())
        return True


@asynccontextmanager
async def open_relay(
    hub: Hub, bus: Bus, *, payloads_per_s: int = PAYLOADS_PER_S
) -> AsyncIterator[Relay]:
    """Send pieces to hosts that ask, until the block ends."""
    async with asyncio.TaskGroup() as tasks:
        relay = Relay(hub, bus, Budget(payloads_per_s * PAYLOAD_BYTES), tasks)
        bus.on_word(relay.heard)
        hub.audience = relay
        try:
            yield relay
        finally:
            hub.audience = None
            relay.close()


def _bundles(items: Sequence[Item] | Sequence[Piece]) -> Iterator[dict[str, Any]]:
    """Give what goes together: the events of one message in a row, an abort, or whole messages."""
    pieces = [item for item in items if isinstance(item, (Preview, Delta))]
    for (run_id, message_id, reason), group in groupby(
        pieces, lambda piece: (piece.run_id, piece.message_id, piece.aborts)
    ):
        together = list(group)
        parts = [piece.part for piece in together if piece.part is not None]
        bundle: dict[str, Any] = {
            "run": run_id,
            "message": message_id,
            "events": [part.event for part in parts],
        }
        if parts and parts[0].ttft_ms is not None:
            bundle["ttft_ms"] = parts[0].ttft_ms
        if reason is not None:
            bundle["aborted"] = reason
        if message_id is None:
            bundle["notes"] = [orjson.Fragment(piece.data) for piece in together]
        yield bundle


def _cut(
    kind: Literal["snapshot", "events"], bundle: dict[str, Any]
) -> Iterator[tuple[Literal["snapshot", "events", "more"], bool, str]]:
    """Cut a bundle's JSON between characters."""
    text = orjson.dumps(bundle).decode()
    for start in range(0, len(text), PART_CHARACTERS):
        end = start + PART_CHARACTERS
        yield kind if start == 0 else "more", end >= len(text), text[start:end]
