"""The response that streams: what readers of a run or a session are sent.

The first bytes go out before the log is read. After the first byte there is no status left:
trouble is a `problem`, and a stream that ends without an `end` is broken. One task sends, another
one watches: for the client's hanging up, for silence that a heartbeat has to break (long queries
too), for a client that takes nothing, and for the stream's age. The slot is held by the call that
serves, so a response that is never served holds none.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.entries import end_json
from app.api.forms import Form
from app.api.problems import problem_json, problem_response
from app.errors import RateLimited, RequestError
from app.runs.items import End, EndReason, Framed, Item
from app.runs.outages import GONE, gone

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


class StreamResponse(Response):
    """Sends lists of items in a form."""

    def __init__(
        self,
        lists: AsyncGenerator[list[Item]],
        subject: Subject,
        *,
        form: Form,
        pace: Pace,
        slot: Callable[[], AbstractContextManager[None]],
    ) -> None:
        # There is no body yet, so the parent's constructor, which writes a length, is of no use.
        self.status_code = 200
        self.background = None
        self.media_type = None
        self._lists, self._subject, self._form = lists, subject, form
        self._pace, self._slot = pace, slot
        headers = HEADERS | {"Content-Type": form.media_type}
        self.init_headers(headers | ({"X-Run-Id": subject.run_id} if subject.run_id else {}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse when no slot is free."""
        async with aclosing(self._lists):
            try:
                slot = self._slot()
                with slot:
                    await self._serve(receive, send)
            except RateLimited as error:
                await problem_response(Request(scope), error)(scope, receive, send)

    async def _serve(self, receive: Receive, send: Send) -> None:
        link = _Link(send, self._form, self._pace, self._subject.after)
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        sending = asyncio.create_task(self._send(link))
        watching = asyncio.create_task(link.watch(receive))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = [task for task in (sending, watching) if task.cancel()]
            if tasks:
                await asyncio.wait(tasks)
        if not watching.cancelled() and (reason := watching.result()) is not None:
            await self._cut(link, reason)
        elif not sending.cancelled():
            sending.result()

    async def _send(self, link: "_Link") -> None:
        await link.send(self._form.opening(str(self._subject)))
        try:
            async for items in self._lists:
                await self._send_items(link, items)
        except RequestError as error:
            await self._send_problem(link, error)
        except GONE as error:
            await self._send_problem(link, gone(error))
        await link.finish()

    async def _send_items(self, link: "_Link", items: list[Item]) -> None:
        ready: list[bytes] = []
        size, last_seq = 0, link.last_seq
        for item in items:
            if isinstance(item, End):
                ready.append(self._end(item, last_seq))
                continue
            if isinstance(item, Framed):
                last_seq = item.row.seq
            ready.append(self._form.item(item))
            size += len(ready[-1])
            if size >= SLICE_BYTES:
                await link.send(b"".join(ready), last_seq)
                ready, size = [], 0
        if ready:
            await link.send(b"".join(ready), last_seq)

    def _end(self, end: End, last_seq: int) -> bytes:
        body = end_json(end, run_id=self._subject.run_id, last_seq=last_seq)
        return self._form.told("end", body)

    async def _send_problem(self, link: "_Link", error: RequestError) -> None:
        where = f"/v1/sessions/{self._subject.session_id}"
        body = problem_json(error, instance=where, request_id="")
        await link.send(self._form.told("problem", body))

    async def _cut(self, link: "_Link", reason: EndReason) -> None:
        log.info(
            "A stream is ended: %s",
            reason,
            extra={"action": "stream_ended", "session_id": self._subject.session_id},
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_S):
                await link.send(self._end(End(reason), link.last_seq))
                await link.finish()


@dataclass(slots=True)
class _Link:
    """One connection: what was sent last, and when."""

    _send: Send
    form: Form
    pace: Pace
    last_seq: int
    """Of the last row that was sent."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _sent_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    _sending_since_s: float | None = None

    async def send(self, data: bytes, last_seq: int | None = None) -> None:
        """Send whole frames; waits while the client takes nothing."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            self._sending_since_s = loop.time()
            try:
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
            finally:
                self._sending_since_s = None
        self._sent_s = loop.time()
        if last_seq is not None:
            self.last_seq = last_seq

    async def finish(self) -> None:
        """End the response."""
        async with self._lock:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def watch(self, receive: Receive) -> EndReason | None:
        """Give why the stream has to be cut; None when the client has hung up."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self.pace.max_age_s
        while True:
            if await _hangs_up(receive, before_s=min(ends_s, self._due_s(loop.time()))):
                return None
            now = loop.time()
            if self._is_stuck(now):
                return "slow_reader"
            if now >= ends_s:
                return "max_age"
            if self._sending_since_s is None and now >= self._sent_s + self.pace.heartbeat_s:
                try:
                    async with asyncio.timeout(self.pace.send_timeout_s):
                        await self.send(self.form.heartbeat)
                except TimeoutError:
                    return "slow_reader"

    def _due_s(self, now: float) -> float:
        """Give when to look again."""
        if self._sending_since_s is not None:
            return self._sending_since_s + self.pace.send_timeout_s
        return min(self._sent_s + self.pace.heartbeat_s, now + self.pace.send_timeout_s)

    def _is_stuck(self, now: float) -> bool:
        since_s = self._sending_since_s
        return since_s is not None and now >= since_s + self.pace.send_timeout_s


async def _hangs_up(receive: Receive, *, before_s: float) -> bool:
    """Wait for the client to hang up; False when it has not by then."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(before_s):
            while (await receive())["type"] != "http.disconnect":
                pass
            return True
    return False
