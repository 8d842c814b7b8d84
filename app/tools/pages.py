"""Web pages, for tools: fetched over the guarded transport, made text of, kept for a while."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from weakref import WeakValueDictionary

import httpx
from cachetools import TTLCache

from app.domain.text import printable
from app.errors import EgressError, EgressRefused, ToolFailed
from app.sandbox.bounded_body import Caps
from app.sandbox.egress import plain_host
from app.sandbox.guarded_http import Guard, send
from app.tools.decoder import Decoder

MAX_REDIRECTS = 5
_CAPS = Caps(body_bytes=10_000_000, total_s=60.0)
_AT_ONCE = 40
_AT_ONCE_OF_SESSION = 4
_KEPT_S = 15 * 60
_KEPT_CHARS = 50_000_000
"""Of all pages of a host together."""
_MAX_URL = 4_000
_MAX_PORT = 65_535
_HEAD_BYTES = 8_192
_HEADERS = {"accept": "text/markdown, text/html, */*", "user-agent": "treadle-webfetch"}
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/.*|application/(.*\+)?(json|xml|yaml)|application/"
    r"(x-)?(javascript|ndjson|jsonl|yaml|toml|sh|sql|www-form-urlencoded)"
)
_CHARSET = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-8859-\d\d?|(windows|cp)-?125\d|koi8-[ru]"
    r"|shift_jis|euc-(jp|kr)|iso-2022-jp|gb(k|2312|18030)|big5"
)
_NAMED_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


@dataclass(frozen=True, slots=True)
class Page:
    """What came of asking for a page."""

    url: str
    """As it was asked for, after the upgrade to https."""
    status: int
    reason: str
    size_bytes: int = 0
    text: str = ""
    """Markdown of HTML, other texts as they are. Empty for an answer that is no page."""
    is_cut: bool = False
    """Whether the page's text was longer."""
    moved_to: str | None = None
    """Where a redirect leads that was not followed."""
    data: bytes | None = None
    """The body of a page that is no text."""
    media_type: str = ""


@dataclass(slots=True)
class Pages:
    """Fetches pages and keeps their texts for 15 minutes. One for a host."""

    guard: Guard = field(default_factory=Guard)
    decoder: Decoder = field(default_factory=Decoder)
    clock: Callable[[], float] = monotonic
    _kept: "TTLCache[tuple[str, str], Page]" = field(init=False)
    _asked: "WeakValueDictionary[tuple[str, str], asyncio.Lock]" = field(
        default_factory=WeakValueDictionary
    )
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _turns_of: "WeakValueDictionary[str, asyncio.Semaphore]" = field(
        default_factory=WeakValueDictionary
    )

    def __post_init__(self) -> None:
        self._kept = TTLCache(
            _KEPT_CHARS, _KEPT_S, self.clock, getsizeof=lambda page: 1000 + len(page.text)
        )

    async def get(self, url: str, *, session: str) -> Page:
        """Give a page, perhaps as it was a while ago. `session`: who else may be given it.

        Raises `ToolFailed`.
        """
        address = self._address(url)
        key = (session, str(address))
        asking = self._asked.setdefault(key, asyncio.Lock())
        async with asking:  # calls made together ask the host once
            if (kept := self._kept.get(key)) is not None:
                return kept
            async with self._turn(session):
                page = await self._fetched(address)
            if page.text and page.data is None:
                self._kept[key] = page
            return page

    @asynccontextmanager
    async def _turn(self, session: str) -> AsyncIterator[None]:
        """Wait for one of a session's turns, then for one of the host's: bodies take memory."""
        own = self._turns_of.get(session) or asyncio.Semaphore(_AT_ONCE_OF_SESSION)
        self._turns_of[session] = own
        async with own, self._turns:
            yield

    def _address(self, url: str) -> httpx.URL:
        """Read a URL as a model wrote it. Raises `ToolFailed` for one that is not fetched."""
        try:
            address = httpx.URL(url if len(url) <= _MAX_URL else "")
            host = plain_host(address.raw_host.decode("ascii", "replace"))
        except (httpx.InvalidURL, EgressRefused, UnicodeError, ValueError):
            raise ToolFailed(
                "Invalid URL: give a whole one, like https://example.com/page."
            ) from None
        if address.scheme not in {"http", "https"} or address.userinfo:
            raise ToolFailed("Invalid URL: only http and https are fetched, without credentials.")
        address = address.copy_with(fragment=None)
        port = address.port or {"http": 80, "https": 443}[address.scheme]
        if port > _MAX_PORT:
            raise ToolFailed(f"Invalid URL: there is no port {port}.")
        if self.guard.rules.is_private(host, port):
            return address  # the operator's own, which may speak http alone
        if "." not in host and ":" not in host:
            raise ToolFailed(
                f"{host} is no public host. What runs inside the session is reached by curl."
            )
        return address.copy_with(scheme="https", port=None if address.port == 80 else address.port)

    async def _fetched(self, address: httpx.URL) -> Page:
        try:
            async with self.guard.client(_CAPS) as client:
                request = client.build_request("GET", address, headers=_HEADERS)
                answer = await send(client, request, redirects=MAX_REDIRECTS)
        except EgressError as error:
            raise ToolFailed(f"The page was not fetched. {error}") from error
        except httpx.HTTPError as error:
            raise ToolFailed(f"The page could not be fetched: {_why(error, address)}") from error
        reason = printable(answer.reason_phrase)[:100]
        page = Page(str(address), answer.status_code, reason, len(answer.content))
        if answer.next_request is not None:
            moved_to = printable(str(answer.next_request.url))[:_MAX_URL]
            return Page(page.url, page.status, reason, page.size_bytes, moved_to=moved_to)
        return await self._read(page, answer) if answer.is_success else page

    async def _read(self, page: Page, answer: httpx.Response) -> Page:
        data, told = answer.content, answer.headers.get("content-type", "")
        kind = told.partition(";")[0].strip().lower()
        head = data[:_HEAD_BYTES]
        is_html = kind in _HTML or (not kind and head.lstrip()[:1] == b"<")
        charset = _charset(told, head)
        is_text = is_html or (_TEXT.fullmatch(kind) is not None if kind else b"\0" not in head)
        text, is_cut = "", False
        if is_text or b"\0" not in head:
            found = await self.decoder.page(data, charset=charset, is_html=is_html)
            text, is_cut = found.get("text", ""), found.get("is_cut", False)
        return Page(
            page.url,
            page.status,
            page.reason,
            page.size_bytes,
            text,
            is_cut,
            data=None if is_text else data,
            media_type=kind,
        )


def _charset(content_type: str, head: bytes) -> str:
    """Name how a page is encoded: its mark, the server's word, its own word, or UTF-8."""
    for mark, name in _BOMS.items():
        if head.startswith(mark):
            return name
    for source in (content_type, head[:1024].decode("latin-1")):
        named = _NAMED_CHARSET.search(source)
        if named and _CHARSET.fullmatch(name := named[1].lower()):
            return name
    return "utf-8"


def _why(error: httpx.HTTPError, address: httpx.URL) -> str:
    """Say why a request failed, without the addresses that were dialled."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return printable(str(cause))[:300]
        cause = cause.__cause__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"{address.host} could not be reached."
    return printable(str(error))[:300] or type(error).__name__
