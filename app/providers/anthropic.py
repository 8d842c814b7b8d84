"""The Messages API as a `Model`: one streaming POST a response.

A stream is read in raw chunks, cut into frames, decoded, and told event by event; beside that the
response is put together. It counts only when it ended properly. Everything else is a
`ModelError` that says what the broken part has cost.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any, cast

import aiohttp
import httpx

from app.domain.model import Hear, ModelRequest, ModelResponse, StreamPart, unheard
from app.errors import ModelError, ModelUnreachable
from app.providers.endpoint import headers_for, messages_url, request_headers, secrets_of
from app.providers.failures import failure_of_answer, failure_of_event, request_id_of
from app.providers.frames import FrameSplitter, frame_data
from app.providers.outages import broken, timed_out, too_large, unreachable
from app.providers.rate_limits import NEAR, rate_limit_of
from app.providers.repair import loads_repaired
from app.providers.request_body import encode_request
from app.providers.response import MalformedEvent, ResponseBuilder
from app.within import within

_MAX_FRAME_BYTES = 64 * 1024 * 1024
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BODY_BYTES = 64 * 1024
_AT_ONCE_BYTES = 256 * 1024
"""A larger request is written in pieces, so that others get their turn in between."""
_LINGER_S = 0.05
"""How long we wait for the end of a body whose message is complete, to keep its connection."""
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
        transport: httpx.AsyncBaseTransport,
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
        self._url = messages_url(base_url)
        self._headers = request_headers(api_key, auth_token, extra_headers or {})
        self._secrets = secrets_of(self._headers)
        self._timeouts = timeouts or Timeouts()
        self._near_limit = near_limit
        self._max_frame_bytes = max_frame_bytes
        self._max_response_bytes = max_response_bytes

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        started = monotonic()
        body, headers = encode_request(request), headers_for(request, self._headers)
        answer, told = await self._open(body, headers)
        try:
            request_id = request_id_of(told)
            builder = ResponseBuilder()
            ttft_ms: int | None = None
            splitter = FrameSplitter()
            wait_s = started + self._timeouts.first_byte_s - monotonic()
            room = self._max_response_bytes
            # Declared an iterator, it is a generator, and must be closed to free the socket.
            chunks = cast(
                "AsyncGenerator[bytes]", aiter(cast("httpx.AsyncByteStream", answer.stream))
            )
            async with aclosing(chunks):
                while not builder.is_complete:
                    chunk = await self._read(chunks, wait_s, request_id, builder)
                    wait_s = self._timeouts.idle_s
                    room -= len(chunk)
                    frames = splitter.feed(chunk)
                    if room < 0 or splitter.pending_bytes > self._max_frame_bytes:
                        raise too_large(request_id, builder)
                    for event in self._taken(frames, request_id, builder):
                        message_id = builder.message_id or ""
                        if ttft_ms is None:
                            ttft_ms = int((monotonic() - started) * 1000)
                            hear(StreamPart(event, message_id, ttft_ms))
                        else:
                            hear(StreamPart(event, message_id))
                await _drain(chunks)
            try:
                return builder.response(
                    request_id=request_id,
                    ttft_ms=ttft_ms or 0,
                    duration_ms=int((monotonic() - started) * 1000),
                    rate_limit=rate_limit_of(told, was_refused=False, near=self._near_limit),
                )
            except MalformedEvent as error:
                raise broken(str(error), request_id, builder) from error
        finally:
            await answer.aclose()

    async def _open(
        self, body: bytes, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, Mapping[str, str]]:
        """Send the request; give an answer that is an event stream, and its headers; or raise."""
        # Over the transport itself: what a client adds (cookies, redirects, credentials of the
        # URL) is not wanted here, and looking for it costs as much as sending does.
        connect_s = self._timeouts.connect_s
        limits = {"connect": connect_s, "pool": connect_s, "read": None, "write": None}
        request = _request(self._url, headers, body, {"timeout": limits})
        try:
            async with asyncio.timeout(self._timeouts.first_byte_s):
                answer = await self._transport.handle_async_request(request)
        except TimeoutError as error:
            raise timed_out("no answer", self._timeouts.first_byte_s) from error
        except _NETWORK_ERRORS as error:
            raise unreachable(error, None, None) from error
        # By their names in lower case: httpx looks through all of them for each that is wanted.
        told = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in answer.headers.raw
        }
        if answer.status_code == 200 and _is_event_stream(told):
            return answer, told
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
            failure = failure_of_answer(answer.status_code, answer.headers, body, self._secrets)
            was_refused = answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
            failure.rate_limit = rate_limit_of(
                answer.headers, was_refused=was_refused, near=self._near_limit
            )
            return failure
        return ModelUnreachable(
            "The model's server did not answer with an event stream.",
            category="unknown",
            request_id=request_id_of(answer.headers),
        )

    async def _read(
        self,
        chunks: AsyncGenerator[bytes],
        wait_s: float,
        request_id: str | None,
        builder: ResponseBuilder,
    ) -> bytes:
        try:
            return await within(wait_s, anext(chunks))
        except StopAsyncIteration:
            what = "The stream ended early." if builder.message_id else "The stream was empty."
            raise broken(what, request_id, builder) from None
        except TimeoutError as error:
            what, limit_s = "silence", self._timeouts.idle_s
            if builder.message_id is None:
                what, limit_s = "no answer", self._timeouts.first_byte_s
            raise timed_out(what, limit_s, request_id, builder) from error
        except _NETWORK_ERRORS as error:
            raise unreachable(error, request_id, builder) from error

    def _taken(
        self, frames: Iterable[bytes], request_id: str | None, builder: ResponseBuilder
    ) -> Iterator[dict[str, Any]]:
        """Yield the events of frames, each already taken by `builder`, until it is complete."""
        for frame in frames:
            data = frame_data(frame)
            if data is None:
                continue
            try:
                event = loads_repaired(data)
                if not isinstance(event, dict):
                    raise MalformedEvent("an event that is no object")
                kind = event.get("type")
                if kind == "ping":
                    continue
                if kind == "error":
                    raise failure_of_event(event, self._secrets, request_id, builder.billed())
                builder.take(event)
            except ValueError as error:
                raise broken("The stream is malformed.", request_id, builder) from error
            yield event
            if builder.is_complete:
                return


def _request(
    url: httpx.URL, headers: Mapping[str, str], body: bytes, extensions: Mapping[str, Any]
) -> httpx.Request:
    if len(body) > _AT_ONCE_BYTES:
        sized = {**headers, "content-length": str(len(body))}
        return httpx.Request(
            "POST", url, headers=sized, content=_pieces(body), extensions=extensions
        )
    # Of a body that is given as a stream httpx works out no headers: the transport knows them too.
    stream = httpx.ByteStream(body)
    request = httpx.Request("POST", url, headers=headers, stream=stream, extensions=extensions)
    request.read()
    return request


async def _pieces(body: bytes) -> AsyncGenerator[bytes]:
    for at in range(0, len(body), _AT_ONCE_BYTES):
        yield body[at : at + _AT_ONCE_BYTES]


async def _drain(chunks: AsyncGenerator[bytes]) -> None:
    # A body read to its end gives its connection back; a lingering one is not worth waiting for.
    with suppress(StopAsyncIteration, TimeoutError, *_NETWORK_ERRORS):
        await within(_LINGER_S, anext(chunks))


def _is_event_stream(headers: Mapping[str, str]) -> bool:
    is_plain = headers.get("content-encoding", "identity") == "identity"
    return is_plain and headers.get("content-type", "").startswith("text/event-stream")
