"""The response that streams: what readers of a run or a session are sent.

The first bytes go out before the log is read, in one write with the rows that are known then. After
the first byte there is no status left: trouble is a `problem`, and a stream that ends without an
`end` is broken. sse-starlette beats, hears the client hang up, and gives up on one that takes no
heartbeat; this sends, in two forms, and adds the stream's age, its slot, and the last word. The slot
is held by the call that serves, so a response that is never served holds none.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from typing import cast

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from app.api.entries import end_json
from app.api.forms import Form
from app.api.problems import problem_json, problem_response
from app.errors import RateLimited, RequestError
from app.runs.items import End, Framed, Item
from app.runs.outages import GONE, gone
from app.within import within

log = logging.getLogger(__name__)

HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Vary": "Authorization",
}
SLICE_BYTES = 64 * 1024
"""Whole frames are sent together until they are so large: what a slow reader must take in time."""
LAST_WORD_S = 1.0
"""How long a reader that is cut may take for the `end`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a stream may be silent, stuck and alive, in seconds."""

    heartbeat_s: float
    send_timeout_s: float
    max_age_s: float


@dataclass(frozen=True, slots=True)
class Subject:
    """What is streamed, and from where."""

    session_id: str
    run_id: str | None
    after: int

    def __str__(self) -> str:
        run = f" run={self.run_id}" if self.run_id else ""
        return f"session={self.session_id}{run} from={self.after}"


class StreamResponse(EventSourceResponse):
    """Sends lists of items in a form."""

    def __init__(
        self,
        lists: AsyncGenerator[list[Item]],
        subject: Subject,
        *,
        form: Form,
        pace: Pace,
        slot: Callable[[], AbstractContextManager[None]],
        known: Sequence[Framed] = (),
    ) -> None:
        """`lists` give what comes behind the rows that are `known` already."""
        self._lists, self._subject, self._form, self._known = lists, subject, form, known
        self._max_age_s, self._slot = pace.max_age_s, slot
        self._last_seq = subject.after
        self._send_timeout_s = pace.send_timeout_s
        super().__init__(
            lists,
            headers=HEADERS | ({"X-Run-Id": subject.run_id} if subject.run_id else {}),
            media_type=form.media_type,
            sep="\n",
            ping=pace.heartbeat_s,
            # Bytes go through as they are, though only events are declared.
            ping_message_factory=lambda: cast("ServerSentEvent", form.heartbeat),
            send_timeout=pace.send_timeout_s,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse when no slot is free."""
        async with aclosing(self._lists):
            try:
                with self._slot():
                    await self._serve(scope, receive, send)
            except RateLimited as error:
                await problem_response(Request(scope), error)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # In this very step: tasks that were made meanwhile begin behind it, the run's among them.
            await self._begin(send)
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            log.info(
                "A slow reader is cut; its cursor goes on working",
                extra={"action": "stream_cut", "session_id": self._subject.session_id},
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    last_word = self._end(End("slow_reader"), self._last_seq)
                    body = {"type": "http.response.body", "body": last_word, "more_body": True}
                    await send(body)
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self, send: Send) -> None:
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        opening = self._form.opening(str(self._subject))
        await self._put(b"".join((opening, *map(self._form.item, self._known))), send)
        if self._known:
            self._last_seq = self._known[-1].row.seq

    async def _stream_response(self, send: Send) -> None:
        """Send what follows, in place of what the base makes of chunks.

        What is last goes out in one write with the response's end.
        """
        last = b""
        try:
            async with asyncio.timeout(self._max_age_s) as age:
                async for items in self._lists:
                    chunks = self._joined(items)
                    if items and isinstance(items[-1], End):
                        *before, (last, _) = chunks
                        await self._put_each(before, send)
                        break
                    await self._put_each(chunks, send)
        except SendTimeoutError:
            raise
        except RequestError as error:
            last = self._problem(error)
        except GONE as error:  # a time-out is one of them
            if age.expired():
                last = self._end(End("max_age"), self._last_seq)
            else:
                last = self._problem(gone(error))
        async with self._send_lock:
            self.active = False
            await self._put(last, send, is_last=True)

    async def _put_each(self, chunks: Iterable[tuple[bytes, int]], send: Send) -> None:
        for chunk, last_seq in chunks:
            await self._put(chunk, send)
            self._last_seq = last_seq  # it was taken

    async def _put(self, chunk: bytes, send: Send, *, is_last: bool = False) -> None:
        """Send a chunk. Raises `SendTimeoutError`."""
        message = {"type": "http.response.body", "body": chunk, "more_body": not is_last}
        try:
            await within(self._send_timeout_s, send(message))
        except TimeoutError as error:
            raise SendTimeoutError from error

    def _joined(self, items: list[Item]) -> Iterator[tuple[bytes, int]]:
        """Give whole frames together, up to a size that a slow reader can take in time.

        With each the seq of the last row in it, or before it.
        """
        ready: list[bytes] = []
        size, last_seq = 0, self._last_seq
        for item in items:
            if isinstance(item, End):
                ready.append(self._end(item, last_seq))
                continue
            if isinstance(item, Framed):
                last_seq = item.row.seq
            ready.append(self._form.item(item))
            size += len(ready[-1])
            if size >= SLICE_BYTES:
                yield b"".join(ready), last_seq
                ready, size = [], 0
        if ready:
            yield b"".join(ready), last_seq

    def _end(self, end: End, last_seq: int) -> bytes:
        body = end_json(end, run_id=self._subject.run_id, last_seq=last_seq)
        return self._form.told("end", body)

    def _problem(self, error: RequestError) -> bytes:
        where = f"/v1/sessions/{self._subject.session_id}"
        return self._form.told("problem", problem_json(error, instance=where, request_id=""))
