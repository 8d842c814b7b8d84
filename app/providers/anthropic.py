"""The Messages API as a `Model`: one streaming POST a response.

A stream is read in raw chunks, cut into frames, decoded, and passed on event by event; beside
that the response is put together. It counts only when it ended properly. Everything else is a
`ModelError` that says what the broken part has cost.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any

import aiohttp

from app.domain.model import ModelRequest, ModelResponse, StreamPart
from app.errors import ModelError, ModelUnreachable
from app.providers.endpoint import headers_for, messages_url, request_headers, secrets_of
from app.providers.failures import failure_of_answer, failure_of_event, request_id_of
from app.providers.frames import FrameSplitter, frame_data
from app.providers.outages import broken, timed_out, too_large, unreachable
from app.providers.rate_limits import NEAR, rate_limit_of
from app.providers.repair import loads_repaired
from app.providers.request_body import encode_request
from app.providers.response import MalformedEvent, ResponseBuilder

_MAX_FRAME_BYTES = 64 * 1024 * 1024
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BODY_BYTES = 64 * 1024
_READ_BYTES = 16 * 1024
"""The most that is taken in at once; the bounds of a stream are exact to it."""
_AT_ONCE_BYTES = 256 * 1024
"""A larger request is written in pieces, so that others get their turn in between."""
_LINGER_S = 0.05
"""How long we wait for the end of a body whose message is complete, to keep its connection."""
_NETWORK_ERRORS = (aiohttp.ClientError, OSError)
"""Time-outs are among them."""


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
        transport: aiohttp.ClientSession,
        base_url: str,
        api_key: str | None = None,
        auth_token: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        near_limit: float = NEAR,
        max_frame_bytes: int = _MAX_FRAME_BYTES,
        max_response_bytes: int = _MAX_RESPONSE_BYTES,
    ) -> None:
        """Bind the parts. `transport` comes from `model_transport` and is closed by its maker.

        `near_limit` is the share of a rate limit at which it counts as near. Raises `ConfigError` for a URL or a header that cannot be sent.
        """
        self._transport = transport
        self._url = str(messages_url(base_url))
        self._headers = dict(request_headers(api_key, auth_token, extra_headers or {}).items())
        self._secrets = secrets_of(self._headers)
        self._timeouts = timeouts or Timeouts()
        connect_s = self._timeouts.connect_s
        self._limits = aiohttp.ClientTimeout(connect=connect_s, sock_connect=connect_s)
        self._near_limit = near_limit
        self._max_frame_bytes = max_frame_bytes
        self._max_response_bytes = max_response_bytes

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart | ModelResponse]:
        started = monotonic()
        answer = await self._open(encode_request(request), headers_for(request, self._headers))
        try:
            request_id = request_id_of(answer.headers)
            builder = ResponseBuilder()
            ttft_ms: int | None = None
            splitter = FrameSplitter()
            wait_s = started + self._timeouts.first_byte_s - monotonic()
            room = self._max_response_bytes
            while not builder.is_complete:
                chunk = await self._read(answer.content, wait_s, request_id, builder)
                wait_s = self._timeouts.idle_s
                room -= len(chunk)
                frames = splitter.feed(chunk)
                if room < 0 or splitter.pending_bytes > self._max_frame_bytes:
                    raise too_large(request_id, builder)
                for event in self._taken(frames, request_id, builder):
                    message_id = builder.message_id or ""
                    if ttft_ms is None:
                        ttft_ms = int((monotonic() - started) * 1000)
                        yield StreamPart(event, message_id, ttft_ms)
                    else:
                        yield StreamPart(event, message_id)
            await _drain(answer.content)
            try:
                response = builder.response(
                    request_id=request_id,
                    ttft_ms=ttft_ms or 0,
                    duration_ms=int((monotonic() - started) * 1000),
                    rate_limit=rate_limit_of(
                        answer.headers, was_refused=False, near=self._near_limit
                    ),
                )
            except MalformedEvent as error:
                raise broken(str(error), request_id, builder) from error
            yield response
        finally:
            answer.close()  # a connection whose answer was read to its end is given back already

    async def _open(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """Send the request; give an answer that is an event stream, or raise."""
        at_once = len(body) <= _AT_ONCE_BYTES
        try:
            async with asyncio.timeout(self._timeouts.first_byte_s):
                answer = await self._transport.post(
                    self._url,
                    headers=headers if at_once else {**headers, "content-length": str(len(body))},
                    data=body if at_once else _pieces(body),
                    timeout=self._limits,
                    allow_redirects=False,
                    auto_decompress=False,
                )
        except aiohttp.ClientError as error:  # before the next: of connecting, it is both
            raise unreachable(error, None, None) from error
        except TimeoutError as error:
            raise timed_out("no answer", self._timeouts.first_byte_s) from error
        except OSError as error:
            raise unreachable(error, None, None) from error
        if answer.status == 200 and _is_event_stream(answer.headers):
            return answer
        try:
            failure = await self._failure(answer)
        finally:
            answer.close()
        raise failure

    async def _failure(self, answer: aiohttp.ClientResponse) -> ModelError:
        body = b""
        try:
            async with asyncio.timeout(self._timeouts.idle_s):
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > _MAX_ERROR_BODY_BYTES:
                        break
        except _NETWORK_ERRORS:
            body = b""  # the status alone says enough
        if answer.status != 200:
            failure = failure_of_answer(answer.status, answer.headers, body, self._secrets)
            was_refused = answer.status == HTTPStatus.TOO_MANY_REQUESTS
            failure.rate_limit = rate_limit_of(
                answer.headers, was_refused=was_refused, near=self._near_limit
            )
            return failure
        return ModelUnreachable(
            "The model's server did not answer with an event stream.",
            category="unknown",
            request_id=request_id_of(answer.headers),
        )

    def _taken(
        self, frames: Iterable[bytes], request_id: str | None, builder: ResponseBuilder
    ) -> Iterator[dict[str, Any]]:
        """Yield the events of frames, each already taken by `builder`, until it is complete."""
        for frame in frames:
            event = self._event(frame, request_id, builder)
            if event is not None:
                yield event
            if builder.is_complete:
                return

    async def _read(
        self,
        content: aiohttp.StreamReader,
        wait_s: float,
        request_id: str | None,
        builder: ResponseBuilder,
    ) -> bytes:
        try:
            chunk = content.read_nowait(_READ_BYTES)  # mostly there is some: no time-out then
            if not chunk:
                async with asyncio.timeout(wait_s):
                    chunk = await content.read(_READ_BYTES)
        except aiohttp.ClientError as error:
            raise unreachable(error, request_id, builder) from error
        except TimeoutError as error:
            what, limit_s = "silence", self._timeouts.idle_s
            if builder.message_id is None:
                what, limit_s = "no answer", self._timeouts.first_byte_s
            raise timed_out(what, limit_s, request_id, builder) from error
        except OSError as error:
            raise unreachable(error, request_id, builder) from error
        if not chunk:
            what = "The stream ended early." if builder.message_id else "The stream was empty."
            raise broken(what, request_id, builder)
        return chunk

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
            raise broken("The stream is malformed.", request_id, builder) from error
        return event


async def _pieces(body: bytes) -> AsyncGenerator[bytes]:
    for at in range(0, len(body), _AT_ONCE_BYTES):
        yield body[at : at + _AT_ONCE_BYTES]


async def _drain(content: aiohttp.StreamReader) -> None:
    # A body read to its end gives its connection back; a lingering one is not worth waiting for.
    if content.at_eof():
        return
    with suppress(*_NETWORK_ERRORS):
        async with asyncio.timeout(_LINGER_S):
            await content.readany()


def _is_event_stream(headers: Mapping[str, str]) -> bool:
    is_plain = headers.get("content-encoding", "identity") == "identity"
    return is_plain and headers.get("content-type", "").startswith("text/event-stream")
