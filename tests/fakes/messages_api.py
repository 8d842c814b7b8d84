"""A scripted Messages API over HTTP/1.1, for tests and benchmarks.

Prompts say what it answers and how it misbehaves (`app/providers/script.py`). It records every
request. Raw asyncio, so that it can cut, reset and stall connections, and costs little.

In a test:    async with MessagesApi() as api: … api.base_url … api.requests …
As a program: python -m tests.fakes.messages_api --port 0    (prints {"base_url": …})
"""

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from http import HTTPStatus
from itertools import count
from time import monotonic
from types import TracebackType
from typing import Any, Self, cast

import orjson
import uvloop

from app.providers.answer import answer_frames, error_body, error_frame
from app.providers.script import ScriptError, Step, Tries, prompt_texts, scripted_step

_MESSAGE_ID = "msg_000000000000"
"""Stands in prepared frames where the id of the response goes; the same length."""
_MODEL = "model-000000000000"
_SLICE_BYTES = 256 * 1024
_MAX_RECORDS = 10_000
_OK = Step(blocks=({"text": "ok"},))


@dataclass(slots=True)
class Recorded:
    """One request as it was seen. Times are monotonic seconds."""

    n: int
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)
    started: float = 0.0
    """When the last byte of the request had come."""
    ended: float | None = None
    """When the last byte of the answer was written, or the client had gone."""
    status: int | None = None
    disconnected: bool = False
    """Whether the client hung up before the answer was complete."""
    connection: int = 0
    """Number of the connection that carried it."""


class MessagesApi:
    """The server. An async context manager; `base_url` is known inside."""

    def __init__(
        self,
        *,
        port: int = 0,
        record: bool = True,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        summaries: Sequence[tuple[str, Step]] = (),
        windows: Mapping[str, int] | None = None,
    ) -> None:
        """Set it up.

        `api_key`: anything else is answered by 401. `summaries`: pairs (words, step): a request
        whose last user message holds the words is answered by the step, whatever the script says
        (compaction requests are no part of the script). `windows`: the models that the models
        endpoint knows, with their sizes.
        """
        self.requests: deque[Recorded] = deque(maxlen=_MAX_RECORDS)
        self.base_url = ""
        self.disconnected = 0
        """How many requests the client hung up on."""
        self.api_key = api_key
        self.summaries = summaries
        self.windows = windows or {}
        self.tries = Tries()
        self.connections: set[_Connection] = set()
        self.connection_numbers = count(1)
        self._port, self._record, self._tls = port, record, tls
        self._request_numbers = count(1)
        self._changed = asyncio.Event()
        self.hurried = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self._port, ssl=self._tls, backlog=1024
        )
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        tasks = [c.task for c in self.connections if c.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def seen(self, method: str, path: str, headers: dict[str, str]) -> Recorded:
        """Number a request, and keep it if requests are recorded."""
        recorded = Recorded(next(self._request_numbers), method, path, headers)
        if self._record and not path.startswith(("/_", "/v1/models/")):
            self.requests.append(recorded)
        return recorded

    def hurry(self) -> None:
        """Begin each answer without delay: those that are waited for, and all that come."""
        self.hurried.set()

    def changed(self) -> None:
        """Wake those who wait for a condition."""
        self._changed.set()

    async def until(self, condition: Callable[[], bool], *, within_s: float = 30.0) -> None:
        """Wait until a condition on the records holds. Raises `TimeoutError`."""
        async with asyncio.timeout(within_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def bodies(self) -> list[dict[str, Any]]:
        """Give the bodies of the model requests, oldest first."""
        return [recorded.body for recorded in self.requests]

    def step_for(self, body: dict[str, Any]) -> Step:
        """Choose the answer. Raises `ScriptError`."""
        messages = body["messages"]
        last = "\n".join(prompt_texts(messages[-1])) if self.summaries else ""
        for words, step in self.summaries:
            if words in last:
                return step
        return self.tries.settle(scripted_step(messages) or _OK, body)


class _Connection(asyncio.Protocol):
    """One connection: requests one after the other, each answered by a task of ours."""

    transport: asyncio.Transport

    def __init__(self, api: MessagesApi) -> None:
        self.api = api
        self.task: asyncio.Task[None] | None = None
        self.number = next(api.connection_numbers)
        self._buffer = bytearray()
        self._head: tuple[Recorded, int, int] | None = None
        self._recorded: Recorded | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports fit the interface without inheriting it.
        self.transport = cast("asyncio.Transport", transport)
        self.api.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._writable.set()
        self.api.connections.discard(self)
        if self.task is not None:
            self.task.cancel()
            self.api.connections.add(self)  # until its task is over
        self.api.changed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self.task is None:
            self._next()

    def _next(self) -> None:
        """Start on the next request if it is complete."""
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = self._parsed(bytes(self._buffer[:end]), end + 4)
        recorded, begin, end = self._head
        if len(self._buffer) < end:
            return
        body = bytes(self._buffer[begin:end])
        del self._buffer[:end]
        self._head = None
        self._recorded = recorded
        recorded.started = monotonic()
        self.task = asyncio.get_running_loop().create_task(self._answered(recorded, body))

    def _parsed(self, head: bytes, begin: int) -> tuple[Recorded, int, int]:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        recorded = self.api.seen(method, path, headers)
        recorded.connection = self.number
        return recorded, begin, begin + int(headers.get("content-length", 0))

    async def _answered(self, recorded: Recorded, body: bytes) -> None:
        try:
            await self._answer(recorded, body)
        except asyncio.CancelledError:
            recorded.disconnected = True
            self.api.disconnected += 1
        finally:
            recorded.ended = monotonic()
            self.task = None
            self.api.changed()
            if self.transport.is_closing():
                self.api.connections.discard(self)
            else:
                self._next()

    async def _answer(self, recorded: Recorded, body: bytes) -> None:
        if (recorded.method, recorded.path) == ("GET", "/_requests"):
            everything = [asdict(each) for each in self.api.requests]
            self._plain(recorded, 200, orjson.dumps(everything))
        elif (recorded.method, recorded.path) == ("GET", "/_disconnected"):
            self._plain(recorded, 200, b"%d" % self.api.disconnected)
        elif (model := recorded.path.removeprefix("/v1/models/")) in self.api.windows:
            told = {"type": "model", "id": model, "max_input_tokens": self.api.windows[model]}
            self._plain(recorded, 200, orjson.dumps(told))
        elif (recorded.method, recorded.path.partition("?")[0]) != ("POST", "/v1/messages"):
            self._error(recorded, 404, "not_found_error", "no such path")
        elif self.api.api_key not in (None, recorded.headers.get("x-api-key")):
            self._error(recorded, 401, "authentication_error", "invalid x-api-key")
        else:
            try:
                recorded.body = orjson.loads(body)
                step = self.api.step_for(recorded.body)
            except (ValueError, KeyError, TypeError, ScriptError) as error:
                self._error(recorded, 400, "invalid_request_error", f"cannot play this: {error}")
            else:
                self.api.changed()
                await self._play(recorded, step)

    def _error(self, recorded: Recorded, status: int, kind: str, message: str) -> None:
        self._plain(recorded, status, error_body(kind, message, f"req_{recorded.n}"))

    def _plain(
        self,
        recorded: Recorded,
        status: int,
        body: bytes,
        headers: Iterable[tuple[str, str]] = (("content-type", "application/json"),),
    ) -> None:
        lines = [*headers, ("content-length", str(len(body)))]
        self._head_out(recorded, status, lines)
        self.transport.write(body)

    def _head_out(
        self, recorded: Recorded, status: int, headers: Iterable[tuple[str, str]]
    ) -> None:
        recorded.status = status
        known = {each.value for each in HTTPStatus}
        phrase = HTTPStatus(status).phrase if status in known else "Unknown"
        lines = [f"HTTP/1.1 {status} {phrase}", f"request-id: req_{recorded.n}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self.transport.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def _play(self, recorded: Recorded, step: Step) -> None:
        if step.delay:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(step.delay):
                    await self.api.hurried.wait()
        extra = list(step.headers.items())
        if step.retry_after is not None:
            extra.append(("retry-after", str(step.retry_after)))
        if step.x_should_retry is not None:
            extra.append(("x-should-retry", str(step.x_should_retry).lower()))
        if step.raw is not None:
            extra.append(("content-type", step.content_type))
            self._plain(recorded, step.http or 200, step.raw.encode(), extra)
        elif step.http is not None:
            body = error_body(step.error, step.message, f"req_{recorded.n}")
            extra.append(("content-type", "application/json"))
            self._plain(recorded, step.http, body, extra)
        else:
            extra += [("content-type", step.content_type), ("transfer-encoding", "chunked")]
            self._head_out(recorded, 200, extra)
            await self._stream(recorded, step)

    async def _stream(self, recorded: Recorded, step: Step) -> None:
        frames = self._frames(recorded, step)
        ends = [n for n in (step.cut, step.stall, step.error_after) if n is not None]
        for frame in frames[: min(ends)] if ends else frames:
            if step.chunk_delay and b"_delta" in frame[:30]:
                await asyncio.sleep(step.chunk_delay)
            await self._write(frame)
        if step.error_after is not None:
            await self._write(error_frame(step.error, step.message))
        if step.stall is not None:
            await asyncio.get_running_loop().create_future()
        if step.cut is not None:
            await self._cut(reset=step.reset)
        else:
            self.transport.write(b"0\r\n\r\n")

    def _frames(self, recorded: Recorded, step: Step) -> list[bytes]:
        """Give the frames with this response's ids; one piece if nobody looks at the parts."""
        ends = (step.cut, step.stall, step.error_after)
        in_parts = bool(step.chunk_delay) or ends != (None,) * 3
        frames = _prepared(_Key(step), in_parts)
        message_id = f"msg_{recorded.n:012d}".encode()
        model = orjson.dumps(recorded.body.get("model", ""))[1:-1]
        return [
            frame.replace(_MESSAGE_ID.encode(), message_id)
            .replace(_MESSAGE_ID[4:].encode() + b"_", message_id[4:] + b"_")
            .replace(_MODEL.encode(), model)
            for frame in frames
        ]

    async def _write(self, data: bytes) -> None:
        for at in range(0, len(data), _SLICE_BYTES):
            part = data[at : at + _SLICE_BYTES]
            await self._writable.wait()
            self.transport.write(b"%x\r\n%b\r\n" % (len(part), part))

    async def _cut(self, *, reset: bool) -> None:
        if reset:
            await asyncio.sleep(0.01)  # let the client have what was sent: a reset drops it
            raw: socket.socket = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self.transport.close()


class _Key:
    """A step as a key of the cache: the same object is the same step (scripts are cached)."""

    __slots__ = ("step",)

    def __init__(self, step: Step) -> None:
        self.step = step

    def __hash__(self) -> int:
        return id(self.step)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.step is other.step


@lru_cache(maxsize=256)
def _prepared(key: _Key, in_parts: bool) -> tuple[bytes, ...]:
    step = key.step
    frames = answer_frames(step, message_id=_MESSAGE_ID, model=_MODEL)
    if step.crlf:
        frames = (frame.replace(b"\n", b"\r\n") for frame in frames)
    return tuple(frames) if in_parts else (b"".join(frames),)


async def _serve(arguments: argparse.Namespace) -> None:
    tls = None
    if arguments.cert:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(arguments.cert, arguments.key)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    record = arguments.record == "true"
    async with MessagesApi(port=arguments.port, record=record, tls=tls) as api:
        sys.stdout.write(json.dumps({"base_url": api.base_url}) + "\n")
        sys.stdout.flush()
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted Messages API on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", choices=("true", "false"), default="true")
    parser.add_argument("--cert", help="PEM certificate; with it the server speaks TLS")
    parser.add_argument("--key", help="PEM key of the certificate")
    uvloop.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
