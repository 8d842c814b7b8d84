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
        answers, streams = guard.transport(caps), guard.transport(stream_caps)
        by_stream = isinstance(server, SseServer)
        transport = _Carried(answers, streams, ending, answers_by_stream=by_stream)
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
        *,
        answers_by_stream: bool,
    ) -> None:
        """`answers_by_stream`: answers come by the open stream alone, not by what a request gets.

        The package notes a request that failed then, and whoever waits for its answer would wait on.
        So the stream ends with it.
        """
        self._answers = answers
        self._streams = streams
        self._ending = ending
        self._answers_by_stream = answers_by_stream
        self._stream: _Body | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        asked = httpx.Request(
            request.method, str(request.url), headers=request.headers.raw, content=content
        )
        is_stream = request.method == "GET"
        inner = self._streams if is_stream else self._answers
        try:
            answer = await inner.handle_async_request(asked)
        except (EgressError, httpx.HTTPError) as error:
            await self._fail(_plain(error), is_stream=is_stream)
            raise httpx2.ConnectError(_plain(error), request=request) from None
        if answer.status_code in {401, 403}:
            self._ending.needs_auth = True
            await self._fail(
                f"it asks for authorization (HTTP {answer.status_code})", is_stream=is_stream
            )
        elif answer.status_code >= 400 or (
            self._answers_by_stream and _leads_away(asked.url, answer)
        ):
            await self._fail(f"it answered with HTTP {answer.status_code}", is_stream=is_stream)
        body = answer.stream
        if not isinstance(body, httpx.AsyncByteStream):
            raise TypeError("an answer of an asynchronous transport has an asynchronous body")
        carried = _Body(body, self._ending)
        if is_stream:
            self._stream = carried
        return httpx2.Response(answer.status_code, headers=answer.headers.raw, stream=carried)

    async def aclose(self) -> None:
        await self._answers.aclose()
        await self._streams.aclose()

    async def _fail(self, why: str, *, is_stream: bool) -> None:
        self._ending.why = why
        if self._answers_by_stream and not is_stream and self._stream is not None:
            await self._stream.cut()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, ending: Ending) -> None:
        self._inner = inner
        self._ending = ending
        self._is_cut = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                yield piece
        except (EgressError, httpx.HTTPError) as error:
            if not self._is_cut:
                self._ending.why = _plain(error)
            raise httpx2.ReadError(_plain(error)) from None

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def cut(self) -> None:
        """End it for whoever reads it; why has been said."""
        self._is_cut = True
        await self._inner.aclose()


def _leads_away(asked: httpx.URL, answer: httpx.Response) -> bool:
    """Say whether it is a redirect to another place: the package follows none of these."""
    if not answer.has_redirect_location:
        return False
    try:
        further = asked.join(answer.headers["location"])
    except (httpx.InvalidURL, ValueError):
        return True
    return (further.scheme, further.netloc) != (asked.scheme, asked.netloc)


def _plain(error: Exception) -> str:
    return str(error)[:300] or type(error).__name__
