"""A reader of a session's stream, previews included."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

import httpx

from tests.runs.sse import frames
from tests.store.seeds import until
from tests.traces.previews import Json


@dataclass(slots=True)
class Watch:
    """Reads a session's stream from its first row on."""

    client: httpx.AsyncClient
    session_id: str
    messages: list[Json] = field(default_factory=list)
    """Messages and previews, in the order of the stream."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        """Read until cancelled."""
        path = f"/v1/sessions/{self.session_id}/stream"
        async with aclosing(frames(self.client, path, previews="all")) as stream:
            async for frame in stream:
                self.is_open.set()  # the row that created the session has come
                if frame.event in {"message", "preview"}:
                    self.messages.append(frame.body)

    async def previewed(self, chars: int) -> None:
        """Wait until so much of an answer has come."""

        async def has_come() -> bool:
            deltas = (m["event"].get("delta", {}) for m in self.messages if "event" in m)
            texts = (delta.get("text", delta.get("partial_json", "")) for delta in deltas)
            return sum(map(len, texts)) >= chars

        await until(has_come)

    async def has_all(self, journal: list[Json]) -> None:
        """Wait until the newest message of the journal has come."""

        async def has_come() -> bool:
            return any(m.get("uuid") == journal[-1]["uuid"] for m in self.messages)

        await until(has_come)
