"""A reader of streams, as clients are: frames in, a cursor kept."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from app.store.engine import Database


@dataclass(frozen=True, slots=True)
class Frame:
    event: str
    data: str
    id: int | None = None

    @property
    def body(self) -> dict[str, Any]:
        decoded: dict[str, Any] = orjson.loads(self.data)
        return decoded


NOTHING_MORE = Frame("nothing-more", "")
"""What a stream gives that answered 204."""


async def frames(
    client: httpx.AsyncClient, path: str, *, last_event_id: int | None = None, **query: str | int
) -> AsyncGenerator[Frame]:
    """Give the frames of a stream as they come; `NOTHING_MORE` for a 204. Closing it hangs up."""
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    async with client.stream("GET", path, headers=headers, params=query) as answer:
        if answer.status_code == 204:
            yield NOTHING_MORE
            return
        assert answer.status_code == 200, (await answer.aread()).decode()
        fields: dict[str, str] = {}
        async for line in _lines(answer):
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            if "data" in fields:
                seq = int(fields["id"]) if "id" in fields else None
                yield Frame(fields["event"], fields["data"], seq)
            fields = {}


async def _lines(answer: httpx.Response) -> AsyncGenerator[str]:
    """Part what comes at line feeds alone; httpx parts it at all that Unicode takes for a line's end."""
    left = b""
    async for piece in answer.aiter_bytes():
        *lines, left = (left + piece).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()


async def read_to_end(
    client: httpx.AsyncClient, path: str, *, last_event_id: int | None = None, **query: str | int
) -> list[Frame]:
    """Give all frames up to the `end`, or to the stream's own end."""
    found: list[Frame] = []
    async with aclosing(frames(client, path, last_event_id=last_event_id, **query)) as stream:
        async for frame in stream:
            found.append(frame)
            if frame.event == "end":
                break
    return found


async def journal_of(database: Database, session_id: str, run_id: str | None = None) -> list[Frame]:
    """Give the durable frames of a session, or of one run of it, as the tables have them."""
    stored = await database.raw.fetch(
        "SELECT seq, kind, body FROM journal WHERE session_id = $1"
        " AND ($2::text IS NULL OR run_id = $2) ORDER BY seq",
        session_id,
        run_id,
    )
    return [
        Frame("message", row["body"], row["seq"])
        if row["kind"] == "message"
        else Frame("service", f'{{"seq":{row["seq"]},{row["body"][1:]}', row["seq"])
        for row in stored
    ]
