"""Servers over HTTP: the package's transports, on our guarded one.

The package speaks httpx2, our guard httpx: requests and answers are carried over here.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from app.domain.mcp_options import HttpServer, SseServer
from app.errors import EgressError, ToolFailed
from app.mcp.ending import Ending, Link
from app.mcp.variables import HeaderVariables
from app.sandbox.bounded_body import Caps
from app.sandbox.guarded_http import Guard

_CONNECT_S = 10.0
_OPEN_S = 86_400.0
"""How long a stream that a server keeps open may be silent."""


def web_link(
    server: HttpServer | SseServer,
    guard: Guard,
    variables: HeaderVariables,
    *,
    max_message_bytes: int,
    answer_s: float,
) -> Link:
    """Give what connects to the server. `answer_s`: longest silence before an answer."""

    def link(ending: Ending) -> AbstractAsyncContextManager[TransportStreams]:
        if refusal := variables.refusal(server):  # the operator may have changed his mind
            raise ToolFailed(refusal[1])
        try:
            headers = server.filled_headers(variables.values)
        except KeyError as error:
            raise ToolFailed(
                f"the variable {error.args[0]} of its headers is not set on this host"
            ) from None
        return http_transport(
            server,
            headers,
            guard,
            max_message_bytes=max_message_bytes,
            answer_s=answer_s,
            ending=ending,
        )

    return link


@asynccontextmanager
async def http_transport(
    server: HttpServer | SseServer,
    headers: Mapping[str, str],
    guard: Guard,
    *,
    max_message_bytes: int,
    answer_s: float,
    ending: Ending,
) -> AsyncIterator[TransportStreams]:
    """Connect; close every connection in the end."""
    caps = Caps(max_message_bytes, total_s=None, connect_s=_CONNECT_S, idle_s=answer_s)
    stream_caps = Caps(None, total_s=None, connect_s=_CONNECT_S, idle_s=_OPEN_S)

    def client(**_: object) -> httpx2.AsyncClient:
        # What the package would set (time-outs above all) is ours to set.
        transport = _Carried(guard.transport(caps), guard.transport(stream_caps), ending)
        return httpx2.AsyncClient(
            transport=transport, headers=dict(headers), timeout=None, trust_env=False
        )

    async with _connected(server, client, max_message_bytes) as streams:
        yield streams


@asynccontextmanager
async def _connected(
    server: HttpServer | SseServer,
    client: Callable[..., httpx2.AsyncClient],
    max_message_bytes: int,
) -> AsyncIterator[TransportStreams]:
    if isinstance(server, SseServer):
        async with sse_client(server.url, httpx_client_factory=client) as streams:
            yield streams
        return
    async with (
        client() as http,
        streamable_http_client(
            server.url, http_client=http, max_sse_event_size=max_message_bytes
        ) as streams,
    ):
        yield streams


class _Carried(httpx2.AsyncBaseTransport):
    """Hands requests to the guarded transport; one for answers, one for streams that stay open."""

    def __init__(
        self,
        answers: httpx.AsyncBaseTransport,
        streams: httpx.AsyncBaseTransport,
        ending: Ending,
    ) -> None:
        self._answers = answers
        self._streams = streams
        self._ending = ending

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        asked = httpx.Request(
            request.method, str(request.url), headers=request.headers.raw, content=content
        )
        inner = self._streams if request.method == "GET" else self._answers
        try:
            answer = await inner.handle_async_request(asked)
        except (EgressError, httpx.HTTPError) as error:
            self._ending.why = _plain(error)
            raise httpx2.ConnectError(_plain(error), request=request) from None
        if answer.status_code in {401, 403}:
            self._ending.why = f"it asks for authorization (HTTP {answer.status_code})"
            self._ending.needs_auth = True
        elif answer.status_code >= 400:
            self._ending.why = f"it answered with HTTP {answer.status_code}"
        body = answer.stream
        if not isinstance(body, httpx.AsyncByteStream):
            raise TypeError("an answer of an asynchronous transport has an asynchronous body")
        return httpx2.Response(
            answer.status_code, headers=answer.headers.raw, stream=_Body(body, self._ending)
        )

    async def aclose(self) -> None:
        await self._answers.aclose()
        await self._streams.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, ending: Ending) -> None:
        self._inner = inner
        self._ending = ending

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                yield piece
        except (EgressError, httpx.HTTPError) as error:
            self._ending.why = _plain(error)
            raise httpx2.ReadError(_plain(error)) from None

    async def aclose(self) -> None:
        await self._inner.aclose()


def _plain(error: Exception) -> str:
    return str(error)[:300] or type(error).__name__
