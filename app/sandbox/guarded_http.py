"""HTTP to places that strangers name: WebFetch, MCP servers, hooks, webhooks.

A name is looked up once for each connection, every address of the answer is checked, and one of
the checked addresses is dialled; TLS and `Host` keep the name. So a name that resolves to
something else a moment later gains nothing. A redirect is a new request, and is checked like one.
The parts are aiohttp's public seams (resolver, socket factory) under httpx: nothing private of a
library is touched.

    guard = Guard(EgressRules(private_hosts=("mcp.internal",)))
    async with guard.client(Caps(body_bytes=1_000_000, total_s=10)) as client:
        answer = await send(client, client.build_request("GET", url), redirects=5)

Errors of a request: `EgressRefused` (nothing was sent there), `AnswerTooLarge`, `httpx.HTTPError`.
A client is for one tenant's use: it keeps cookies and connections.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from httpx_aiohttp import AiohttpTransport

from app.errors import EgressRefused
from app.sandbox.addresses import address_kind
from app.sandbox.bounded_body import BoundedBody, Caps, coding_of, out_of_time
from app.sandbox.egress import EgressRules, plain_host

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Gives the addresses of a name, as text. Raises `OSError`."""

_LOOKUPS_AT_ONCE = 16
"""Lookups block a thread each, and strangers name the names: they get threads of their own."""
_MAX_REDIRECTS = 5
_DECODED = ("content-encoding", "content-length", "transfer-encoding")
"""Headers that are not true of a body that was decoded."""


class Guard:
    """Rules, resolver and trusted certificates; makes clients that keep to them. One a host."""

    def __init__(
        self,
        rules: EgressRules | None = None,
        *,
        resolve: Resolve | None = None,
        ca_file: str | None = None,
    ) -> None:
        """`ca_file`: PEM certificates to trust beside the bundled ones."""
        self.rules = rules or EgressRules()
        self._resolver = _CheckedResolver(self.rules, resolve or system_lookup())
        self._tls = _trusting(ca_file)

    def client(self, caps: Caps | None = None) -> httpx.AsyncClient:
        """Make a client; close it after use.

        Nothing comes from the environment: no proxies, no `.netrc`, no certificates.
        """
        return httpx.AsyncClient(transport=self.transport(caps), trust_env=False)

    def transport(self, caps: Caps | None = None) -> httpx.AsyncBaseTransport:
        """Make a transport, for libraries that make their own httpx client of it."""
        return _GuardedTransport(self.rules, self._session, self._tls, caps or Caps())

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=self._tls,
            resolver=self._resolver,
            use_dns_cache=False,
            socket_factory=_checked_socket,
        )
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )


async def send(
    client: httpx.AsyncClient, request: httpx.Request, *, redirects: int = 0
) -> httpx.Response:
    """Send a request and read the whole answer.

    Redirects that stay on the host are followed, `redirects` at the most (0: none; more is
    `httpx.TooManyRedirects`). An answer that points to another host, or from https to http, is
    given as it is, with the new request in `next_request`.
    """
    followed = 0
    while True:
        try:
            answer = await client.send(request, follow_redirects=False)
        except httpx.InvalidURL as error:  # of a `Location`, which httpx reads in any case
            raise httpx.RemoteProtocolError(f"The redirect leads nowhere ({error}).") from error
        further = answer.next_request
        if further is None or redirects == 0 or not _stays(further.url, request.url):
            return answer
        followed += 1
        if followed > min(redirects, _MAX_REDIRECTS):
            raise httpx.TooManyRedirects("The page redirects too often.", request=request)
        request = further


def _stays(further: httpx.URL, asked: httpx.URL) -> bool:
    """Say whether a redirect stays on its host, and does not leave TLS."""
    is_safe = further.scheme == "https" or further.scheme == asked.scheme == "http"
    return is_safe and further.raw_host.lower() == asked.raw_host.lower()


class _GuardedTransport(httpx.AsyncBaseTransport):
    """Checks each request, bounds each answer."""

    def __init__(
        self,
        rules: EgressRules,
        session: Callable[[], aiohttp.ClientSession],
        tls: ssl.SSLContext,
        caps: Caps,
    ) -> None:
        self._rules = rules
        self._caps = caps
        # The session is made at the first request, inside the loop that it belongs to.
        self._inner = AiohttpTransport(verify=tls, trust_env=False, client=session)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._rules.check_url(request.url)
        caps = self._caps
        request.headers["accept-encoding"] = "gzip"
        request.extensions = {
            "timeout": {"connect": caps.connect_s, "pool": caps.connect_s, "read": caps.idle_s}
        }
        loop_time = asyncio.get_running_loop().time()
        deadline = None if caps.total_s is None else loop_time + caps.total_s
        try:
            async with asyncio.timeout_at(deadline) as limit:
                answer = await self._inner.handle_async_request(request)
        except TimeoutError as error:
            if limit.expired():
                raise out_of_time(caps) from None
            raise httpx.ConnectTimeout("No connection in time.") from error
        except httpx.ConnectTimeout as error:  # its name for any failure of a connection
            if isinstance(error.__cause__, TimeoutError):
                raise
            raise httpx.ConnectError(str(error)) from error
        except aiohttp.ClientError as error:  # those that httpx_aiohttp has no name for
            raise httpx.RemoteProtocolError(str(error)[:300]) from error
        return await _bounded(answer, caps, deadline)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bounded(answer: httpx.Response, caps: Caps, deadline: float | None) -> httpx.Response:
    stream = answer.stream
    if not isinstance(stream, httpx.AsyncByteStream):
        raise TypeError("an answer of an asynchronous transport has an asynchronous body")
    try:
        coding = coding_of(answer.headers)
    except httpx.DecodingError:
        await stream.aclose()
        raise
    headers = [pair for pair in answer.headers.raw if pair[0].lower().decode() not in _DECODED]
    body = BoundedBody(aiter(stream), stream, coding, caps, deadline)
    return httpx.Response(
        answer.status_code, headers=headers, stream=body, extensions=answer.extensions
    )


class _CheckedResolver(AbstractResolver):
    """Looks a name up and gives its addresses only if all of them may be dialled."""

    def __init__(self, rules: EgressRules, resolve: Resolve) -> None:
        self._rules = rules
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        del family
        name = plain_host(host)
        addresses = list(dict.fromkeys(await self._resolve(name)))
        self._rules.check_addresses(name, port, addresses)
        if not addresses:
            raise OSError(f"{name} has no address")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Own nothing."""


def _checked_socket(info: tuple[Any, ...]) -> socket.socket:
    """Make the socket of a connection: the last place that sees its address, whatever led to it."""
    family, kind, protocol, _, address = info
    if address_kind(str(address[0])) == "forbidden":
        raise EgressRefused("The address is not reached from here.")
    return socket.socket(family, kind, protocol)


@cache
def _trusting(ca_file: str | None) -> ssl.SSLContext:
    """Give what is trusted. Reading the bundled certificates takes a twentieth of a second."""
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


def system_lookup() -> Resolve:
    """Give the system's resolver, on threads of its own."""
    threads = ThreadPoolExecutor(_LOOKUPS_AT_ONCE, thread_name_prefix="lookup")

    def look_up(host: str) -> Sequence[str]:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return [str(entry[4][0]) for entry in found]

    async def resolve(host: str) -> Sequence[str]:
        return await asyncio.get_running_loop().run_in_executor(threads, look_up, host)

    return resolve
