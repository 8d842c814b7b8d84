"""The demo model's server: the Messages API on loopback, answered by rules.

It exists so that the service can be tried without a key. The real client talks to it over HTTP,
so nothing is simulated but the model. It answers by `demo_rules`, or plays a script that stands
in a user prompt (`script`), never one in a tool result.
"""

import asyncio
import hmac
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.providers.answer import answer_frames, error_body, error_frame
from app.providers.demo_rules import answer_blocks
from app.providers.script import ScriptError, Step, Tries, scripted_step

_log = logging.getLogger(__name__)
_CHUNK_CHARS = 24
_CHARS_A_TOKEN = 4
_MAX_DELAY_S = 60.0
_STOP_S = 1


@dataclass(frozen=True, slots=True)
class DemoEndpoint:
    """Where the demo model listens, and the token that it wants."""

    base_url: str
    auth_token: str


@asynccontextmanager
async def demo_model_server() -> AsyncGenerator[DemoEndpoint]:
    """Serve the demo model on a free loopback port while the context is open."""
    token = secrets.token_urlsafe(32)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    config = _Config(
        _DemoApp(token),
        http=_Protocol,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_STOP_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="demo-model")
    try:
        ready = asyncio.create_task(server.ready.wait(), name="demo-model-ready")
        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            await task  # raises what kept it from starting
        _log.info("The demo model is listening.", extra={"action": "demo_model_started"})
        yield DemoEndpoint(f"http://127.0.0.1:{port}", token)
    finally:
        server.should_exit = True
        await asyncio.shield(task)


class _Config(uvicorn.Config):
    """A configuration that leaves the process's logging alone: it belongs to the service."""

    def configure_logging(self) -> None:
        """Set nothing up."""


class _Protocol(HttpToolsProtocol):
    """HTTP without an access log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed on unseen
        super().__init__(*args, **kwargs)
        self.access_log = False


class _Server(uvicorn.Server):
    """A server inside a process that has its own signal handlers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _DemoApp:
    """The application. Plain ASGI, so that a scripted cut can leave an answer unfinished."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}"
        self._tries = Tries()
        self._numbers = count(1)
        self._run = secrets.token_hex(4)
        """Keeps message ids of two server processes apart."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        number = next(self._numbers)
        reply = _Reply(receive, send, f"req_demo_{self._run}_{number}")
        if (request.method, request.url.path) != ("POST", "/v1/messages"):
            await reply.error(404, "not_found_error", "There is only POST /v1/messages here.")
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), self._wanted.encode()):
            await reply.error(401, "authentication_error", "The demo model wants its token.")
            return
        try:
            body = orjson.loads(await request.body())
            step = self._tries.settle(self._step(body), body)
        except (ScriptError, ValueError, KeyError, TypeError, AttributeError) as error:
            await reply.error(400, "invalid_request_error", f"cannot answer this: {error}")
            return
        with suppress(ClientDisconnect):
            await reply.play(step, f"msg_demo_{self._run}_{number}", str(body.get("model")))

    def _step(self, body: Mapping[str, Any]) -> Step:
        scripted = scripted_step(body["messages"])
        if scripted is not None:
            return scripted
        blocks = answer_blocks(body)
        usage = {
            "input_tokens": len(orjson.dumps(body)) // _CHARS_A_TOKEN + 1,
            "output_tokens": len(orjson.dumps(blocks)) // _CHARS_A_TOKEN + 1,
        }
        return Step(blocks=tuple(blocks), usage=usage, chunk=_CHUNK_CHARS)


class _Reply:
    """One answer, as it goes out."""

    def __init__(self, receive: Receive, send: Send, request_id: str) -> None:
        self._receive = receive
        self._send = send
        self._request_id = request_id

    async def error(
        self, status: int, kind: str, message: str, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        body = error_body(kind, message, self._request_id)
        await self._start(status, [("content-type", "application/json"), *headers])
        await self._send({"type": "http.response.body", "body": body})

    async def play(self, step: Step, message_id: str, model: str) -> None:
        await self._pause(step.delay)
        headers = list(step.headers.items())
        if step.retry_after is not None:
            headers.append(("retry-after", str(step.retry_after)))
        if step.x_should_retry is not None:
            headers.append(("x-should-retry", str(step.x_should_retry).lower()))
        if step.http is not None:
            await self.error(step.http, step.error, step.message, headers)
        elif step.raw is not None:
            await self._start(200, [("content-type", step.content_type), *headers])
            await self._send({"type": "http.response.body", "body": step.raw.encode()})
        else:
            await self._start(200, [("content-type", "text/event-stream"), *headers])
            await self._stream(step, message_id, model)

    async def _stream(self, step: Step, message_id: str, model: str) -> None:
        frames = answer_frames(step, message_id=message_id, model=model)
        ends = [n for n in (step.cut, step.stall, step.error_after) if n is not None]
        for n, frame in enumerate(frames):
            if ends and n >= min(ends):
                break
            if step.chunk_delay and frame.startswith(b"event: content_block_delta"):
                await self._pause(step.chunk_delay)
            await self._part(frame)
        if step.error_after is not None:
            await self._part(error_frame(step.error, step.message))
        if step.stall is not None:
            await self._pause(_MAX_DELAY_S)
        if step.cut is None and step.stall is None:
            await self._send({"type": "http.response.body", "body": b""})

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than the client does. Raises `ClientDisconnect`."""
        if seconds <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _MAX_DELAY_S)):
                await self._receive()  # the body was read: the next message is the hanging up
                raise ClientDisconnect

    async def _part(self, frame: bytes) -> None:
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})

    async def _start(self, status: int, headers: list[tuple[str, str]]) -> None:
        pairs = [("request-id", self._request_id), *headers]
        raw = [(name.lower().encode(), value.encode()) for name, value in pairs]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
