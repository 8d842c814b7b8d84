"""The Messages API as a `Model`: one streaming POST a response.

A stream is read in raw chunks, cut into frames, decoded, and passed on event by event; beside
that the response is put together. It counts only when it ended properly. Everything else is a
`ModelError` that says what the broken part has cost.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import aiohttp
import httpx

from app.domain.model import ModelRequest, ModelResponse, StreamPart
from app.errors import ConfigError, ModelError, ModelRejected, ModelUnreachable
from app.providers.failures import failure_of_answer, failure_of_event
from app.providers.frames import FrameSplitter, frame_data
from app.providers.repair import loads_repaired
from app.providers.request_body import encode_request
from app.providers.response import MalformedEvent, ResponseBuilder

_API_VERSION = "2023-06-01"
_MAX_FRAME_BYTES = 64 * 1024 * 1024
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BODY_BYTES = 64 * 1024
_LINGER_S = 0.05
"""How long we wait for the end of a body whose message is complete, to keep its connection."""
_OWN_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
)
_NETWORK_ERRORS = (httpx.HTTPError, httpx.StreamError, aiohttp.ClientError, OSError)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the provider may be silent."""

    connect_s: float = 10.0
    """Name lookup, TCP and TLS together."""
    first_byte_s: float = 300.0
    """From sending the request to the first byte of its stream."""
    idle_s: float = 120.0
    """Between two reads of a stream (the API sends pings)."""


class AnthropicModel:
    """The Messages API at one base URL with one credential. Keeps no state between calls."""

    def __init__(
        self,
        *,
        client: httpx.AsyncClient,
        base_url: str,
        api_key: str | None = None,
        auth_token: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        max_frame_bytes: int = _MAX_FRAME_BYTES,
        max_response_bytes: int = _MAX_RESPONSE_BYTES,
    ) -> None:
        """Bind the parts. `client` comes from `model_http_client` and is closed by its maker.

        Raises `ConfigError` for a URL or a header that cannot be sent.
        """
        self._client = client
        self._url = _messages_url(base_url)
        self._headers = _headers(api_key, auth_token, extra_headers or {})
        self._secrets = tuple(secret for secret in (api_key, auth_token) if secret)
        self._timeouts = timeouts or Timeouts()
        self._max_frame_bytes = max_frame_bytes
        self._max_response_bytes = max_response_bytes

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart | ModelResponse]:
        started = monotonic()
        answer = await self._open(encode_request(request))
        try:
            request_id = answer.headers.get("request-id")
            builder = ResponseBuilder()
            ttft_ms: int | None = None
            events = self._events(answer, builder, started + self._timeouts.first_byte_s)
            async with aclosing(events):
                async for event in events:
                    message_id = builder.message_id or ""
                    if ttft_ms is None:
                        ttft_ms = int((monotonic() - started) * 1000)
                        yield StreamPart(event, message_id, ttft_ms)
                    else:
                        yield StreamPart(event, message_id)
            try:
                response = builder.response(
                    request_id=request_id,
                    ttft_ms=ttft_ms or 0,
                    duration_ms=int((monotonic() - started) * 1000),
                )
            except MalformedEvent as error:
                raise _broken(str(error), request_id, builder) from error
            yield response
        finally:
            await answer.aclose()

    async def _open(self, body: bytes) -> httpx.Response:
        """Send the request; give an answer that is an event stream, or raise."""
        # A request of our own, not `build_request`: that would add the client's cookies.
        connect_s = self._timeouts.connect_s
        limits = {"connect": connect_s, "pool": connect_s, "read": None, "write": None}
        request = httpx.Request(
            "POST", self._url, headers=self._headers, content=body, extensions={"timeout": limits}
        )
        try:
            async with asyncio.timeout(self._timeouts.first_byte_s):
                answer = await self._client.send(request, stream=True)
        except TimeoutError as error:
            raise _timed_out("no answer", self._timeouts.first_byte_s) from error
        except _NETWORK_ERRORS as error:
            raise _unreachable(error, None, None) from error
        if answer.status_code == 200 and _is_event_stream(answer):
            return answer
        try:
            failure = await self._failure(answer)
        finally:
            await answer.aclose()
        raise failure

    async def _failure(self, answer: httpx.Response) -> ModelError:
        body = b""
        try:
            async with asyncio.timeout(self._timeouts.idle_s):
                async for chunk in answer.aiter_raw():
                    body += chunk
                    if len(body) > _MAX_ERROR_BODY_BYTES:
                        break
        except (TimeoutError, *_NETWORK_ERRORS):
            body = b""  # the status alone says enough
        if answer.status_code != 200:
            return failure_of_answer(answer.status_code, answer.headers, body, self._secrets)
        return ModelUnreachable(
            "The model's server did not answer with an event stream.",
            category="unknown",
            request_id=answer.headers.get("request-id"),
        )

    async def _events(
        self, answer: httpx.Response, builder: ResponseBuilder, first_byte_at: float
    ) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of a stream, each already taken by `builder`, until it is complete."""
        request_id = answer.headers.get("request-id")
        splitter = FrameSplitter()
        wait_s = first_byte_at - monotonic()
        room = self._max_response_bytes
        # httpx declares an iterator; it is a generator, and must be closed to free the socket.
        chunks = cast("AsyncGenerator[bytes]", answer.aiter_raw())
        async with aclosing(chunks):
            while not builder.is_complete:
                chunk = await self._read(chunks, wait_s, request_id, builder)
                wait_s = self._timeouts.idle_s
                room -= len(chunk)
                frames = splitter.feed(chunk)
                if room < 0 or splitter.pending_bytes > self._max_frame_bytes:
                    raise _too_large(request_id, builder)
                for frame in frames:
                    event = self._event(frame, request_id, builder)
                    if event is not None:
                        yield event
            await _drain(chunks)

    async def _read(
        self,
        chunks: AsyncGenerator[bytes],
        wait_s: float,
        request_id: str | None,
        builder: ResponseBuilder,
    ) -> bytes:
        try:
            async with asyncio.timeout(wait_s):
                return await anext(chunks)
        except StopAsyncIteration:
            what = "The stream ended early." if builder.message_id else "The stream was empty."
            raise _broken(what, request_id, builder) from None
        except TimeoutError as error:
            raise _timed_out("silence", wait_s, request_id, builder) from error
        except _NETWORK_ERRORS as error:
            raise _unreachable(error, request_id, builder) from error

    def _event(
        self, frame: bytes, request_id: str | None, builder: ResponseBuilder
    ) -> dict[str, Any] | None:
        data = frame_data(frame)
        if data is None:
            return None
        try:
            event = loads_repaired(data)
            if not isinstance(event, dict):
                raise MalformedEvent("an event that is no object")
            kind = event.get("type")
            if kind == "ping":
                return None
            if kind == "error":
                raise failure_of_event(event, self._secrets, request_id, builder.billed())
            builder.take(event)
        except ValueError as error:
            raise _broken("The stream is malformed.", request_id, builder) from error
        return event


async def _drain(chunks: AsyncGenerator[bytes]) -> None:
    # A body read to its end gives its connection back; a lingering one is not worth waiting for.
    try:
        async with asyncio.timeout(_LINGER_S):
            async for _ in chunks:
                break
    except (TimeoutError, *_NETWORK_ERRORS):
        return


def _is_event_stream(answer: httpx.Response) -> bool:
    encoding: str = answer.headers.get("content-encoding", "identity")
    kind: str = answer.headers.get("content-type", "")
    return kind.startswith("text/event-stream") and encoding == "identity"


def _broken(what: str, request_id: str | None, builder: ResponseBuilder) -> ModelUnreachable:
    return ModelUnreachable(what, category="unknown", request_id=request_id, usage=builder.billed())


def _too_large(request_id: str | None, builder: ResponseBuilder) -> ModelRejected:
    return ModelRejected(
        "The model's response is too large.",
        category="unknown",
        request_id=request_id,
        usage=builder.billed(),
    )


def _timed_out(
    what: str,
    wait_s: float,
    request_id: str | None = None,
    builder: ResponseBuilder | None = None,
) -> ModelUnreachable:
    return ModelUnreachable(
        f"The model's server timed out: {what} for {wait_s:.3g} s.",
        category="unknown",
        request_id=request_id,
        usage=builder.billed() if builder else None,
    )


def _unreachable(
    error: BaseException, request_id: str | None, builder: ResponseBuilder | None
) -> ModelUnreachable:
    if builder is not None and builder.message_id is not None:
        return _broken("The connection to the model broke off in mid-stream.", request_id, builder)
    return ModelUnreachable(
        f"The model's server cannot be reached: {_cause(error)}.",
        category="unknown",
        request_id=request_id,
    )


def _cause(error: BaseException) -> str:
    """Name a network failure in our words: texts of libraries may hold addresses."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError | aiohttp.ClientSSLError):
            return "TLS failed"
        if isinstance(seen, aiohttp.ClientConnectorDNSError):
            return "its name does not resolve"
        if isinstance(seen, aiohttp.ServerTimeoutError):
            return "connecting took too long"
        if isinstance(seen, ConnectionRefusedError):
            return "connection refused"
        seen = seen.__cause__ or seen.__context__
    return "connection lost"


def _messages_url(base_url: str) -> httpx.URL:
    wanted = "The model's base URL must be http(s)://host[:port][/path], without a password."
    try:
        url = httpx.URL(base_url.rstrip("/") + "/v1/messages")
    except httpx.InvalidURL as error:
        raise ConfigError(wanted) from error
    is_port = url.port is None or 0 < url.port < 65_536
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or not is_port:
        raise ConfigError(wanted)
    return url


def _headers(
    api_key: str | None, auth_token: str | None, extra_headers: Mapping[str, str]
) -> httpx.Headers:
    headers = httpx.Headers(
        {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "anthropic-version": _API_VERSION,
            "content-type": "application/json",
            "user-agent": "treadle",
        }
    )
    if api_key is not None:
        headers["x-api-key"] = _header_value("API key", api_key.strip())
    if auth_token is not None:
        headers["authorization"] = _header_value("auth token", f"Bearer {auth_token.strip()}")
    for name, value in extra_headers.items():
        if (
            name.lower() in _OWN_HEADERS
            or not name.isascii()
            or not name.replace("-", "").isalnum()
        ):
            raise ConfigError(f"The extra model header {name!r} cannot be set.")
        headers[name] = _header_value(name, value)
    return headers


def _header_value(name: str, value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"The model's {name} holds characters that no header can carry.")
    return value
