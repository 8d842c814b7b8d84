"""Readers that follow a session across hosts, are cut, and come back with their cursor."""

import asyncio
import hashlib
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import orjson

from tests.hosts import KEY

SILENCE_S = 4
"""A host sends a heartbeat each second: one that says nothing for so long is frozen or cut off."""


def fingerprint(kind: str, data: bytes) -> bytes:
    """Stand for the exact bytes of an event; a long run has many."""
    return hashlib.sha256(kind.encode() + b"\0" + data).digest()[:16]


@dataclass(slots=True)
class Reader:
    """Reads one session to the end of the runs that it is told of."""

    session_id: str
    http: aiohttp.ClientSession
    url: Callable[[], str | None]
    dice: random.Random
    seen: list[tuple[int, bytes]] = field(default_factory=list)
    """Seq and fingerprint of each event."""
    finished: set[str] = field(default_factory=set)
    waits_for: set[str] = field(default_factory=set)
    is_last: bool = False
    """Set when no more runs will be named."""
    connections: int = 0
    flaws: list[str] = field(default_factory=list)
    cursor: int = 0
    """Seq of the newest. Asides, which are not sent, leave gaps."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_done(self) -> bool:
        return self.is_last and self.waits_for <= self.finished

    async def read(self) -> None:
        """Read until done."""
        while not self.is_done:
            url = self.url()
            if url is not None:
                with suppress(aiohttp.ClientError, TimeoutError, OSError):
                    await self._read_once(url)
            await asyncio.sleep(self.dice.uniform(0.02, 0.2))

    async def until_finished(self, run_id: str, *, within_s: float) -> bool:
        """Wait until a run's last event was read."""
        try:
            async with asyncio.timeout(within_s):
                while run_id not in self.finished:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    async def _read_once(self, url: str) -> None:
        self.connections += 1
        left = self.dice.randint(3, 80)
        headers = {"x-api-key": KEY, "accept": "text/event-stream"}
        if self.seen:
            headers["last-event-id"] = str(self.cursor)
        limit = aiohttp.ClientTimeout(total=None, sock_connect=2, sock_read=SILENCE_S)
        address = f"{url}/v1/sessions/{self.session_id}/stream"
        async with self.http.get(address, headers=headers, timeout=limit) as answer:
            if answer.status != 200:
                if answer.status not in {429, 502, 503}:
                    self.flaws.append(f"{answer.status} {await answer.text()}")
                    await asyncio.sleep(0.5)
                return
            rest = b""
            async for data in answer.content.iter_any():
                *frames, rest = (rest + data).split(b"\n\n")
                for frame in frames:
                    left -= self._take(frame)
                if left <= 0 or self.is_done:
                    return

    def _take(self, frame: bytes) -> bool:
        """Keep a durable event; comments, previews and the end are passed over."""
        lines = dict(line.partition(b": ")[::2] for line in frame.split(b"\n"))
        if b"id" not in lines:
            return False
        seq, kind, data = int(lines[b"id"]), lines[b"event"].decode(), lines[b"data"]
        if seq <= self.cursor:
            self.flaws.append(f"event {seq} came after event {self.cursor}")
            return False
        self.cursor = seq
        self.seen.append((seq, fingerprint(kind, data)))
        if kind == "service" and (event := orjson.loads(data))["type"] == "run.finished":
            self.finished.add(event["run_id"])
            self.changed.set()
        return True
