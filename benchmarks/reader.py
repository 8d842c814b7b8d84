"""A reader of a run's stream that is cut again and again and comes back with its cursor."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from benchmarks.client import Peer

_MOST_FRAMES = 60
_REFUSED_WAIT_S = 0.2
_LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Delivered:
    """One durable frame as it came."""

    seq: int
    kind: str
    data: bytes
    received_s: float
    """Wall clock."""
    connected_s: float
    """When the head of the answer that brought it came: older events are replays."""


@dataclass(slots=True)
class Reader:
    run_id: str
    peers: Sequence[Peer]
    dice: random.Random
    delivered: list[Delivered] = field(default_factory=list)
    cuts: int = 0
    refused: int = 0
    """Answers 429: the server had not yet noticed that the last connection was gone."""

    async def read(self, http: aiohttp.ClientSession) -> None:
        """Read to the end of the run, each time from a replica chosen by dice."""
        async with asyncio.timeout(_LIMIT_S):
            while not await self._read_until_cut(http):
                self.cuts += 1

    async def _read_until_cut(self, http: aiohttp.ClientSession) -> bool:
        """True when the stream said that it is over, or that nothing follows the cursor."""
        peer = self.dice.choice(self.peers)
        headers = {"authorization": f"Bearer {peer.key}"}
        if self.delivered:
            headers["last-event-id"] = str(self.delivered[-1].seq)
        frames_left = self.dice.randint(0, _MOST_FRAMES)
        async with http.get(f"{peer.url}/v1/runs/{self.run_id}/stream", headers=headers) as answer:
            if answer.status == 204:
                return True
            if answer.status == 429:
                self.refused += 1
                await asyncio.sleep(_REFUSED_WAIT_S)
                return False
            answer.raise_for_status()
            connected_s, rest = time.time(), b""
            async for data in answer.content.iter_any():
                *frames, rest = (rest + data).split(b"\n\n")
                for frame in frames:
                    if frame.startswith(b"event: end") or b"\nevent: end" in frame:
                        return True
                    if frames_left == 0:
                        answer.close()
                        return False
                    frames_left -= self._take(frame, connected_s)
        return False

    def _take(self, frame: bytes, connected_s: float) -> bool:
        """Keep a durable frame; comments and previews are passed over."""
        lines = dict(line.partition(b": ")[::2] for line in frame.split(b"\n"))
        if b"id" not in lines:
            return False
        kind, data = lines.get(b"event", b"message").decode(), lines[b"data"]
        seq = int(lines[b"id"])
        self.delivered.append(Delivered(seq, kind, data, time.time(), connected_s))
        return True
