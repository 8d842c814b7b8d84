"""The body of a hostile answer: decoded piece by piece, bounded in bytes and in time."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

import httpx

from app.errors import AnswerTooLarge

_PIECE_BYTES = 64 * 1024
"""The most that one step of decompression makes."""
_GZIP = 16 + zlib.MAX_WBITS
_CODINGS = {"": "identity", "identity": "identity", "gzip": "gzip", "x-gzip": "gzip"}

Coding = Literal["identity", "gzip"]


@dataclass(frozen=True, slots=True)
class Caps:
    """Bounds of one request. None: without bound (a stream that stays open)."""

    body_bytes: int | None = 5_000_000
    """Of the answer's body, both as it is sent and as it is decoded."""
    total_s: float | None = 30.0
    """From the start of the request to the end of the body."""
    connect_s: float = 10.0
    """Name lookup, TCP and TLS together."""
    idle_s: float = 20.0
    """Between two pieces."""


def coding_of(headers: httpx.Headers) -> Coding:
    """Give the one coding of a body. Raises `httpx.DecodingError` for others, and for several."""
    named = headers.get("content-encoding", "").strip().lower()
    coding = _CODINGS.get(named)
    if coding is None:
        raise httpx.DecodingError(f"The answer's content encoding {named[:40]!r} is not read.")
    return "gzip" if coding == "gzip" else "identity"


class BoundedBody(httpx.AsyncByteStream):
    """Gives the decoded body; holds at most a piece of it."""

    def __init__(
        self,
        sent: AsyncIterator[bytes],
        close: httpx.AsyncByteStream,
        coding: Coding,
        caps: Caps,
        deadline: float | None,
    ) -> None:
        """`deadline` is in the loop's time. `close` is closed at the end."""
        self._sent = sent
        self._close = close
        self._coding = coding
        self._caps = caps
        self._deadline = deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sent_bytes = decoded_bytes = 0
        gunzip = _Gunzip() if self._coding == "gzip" else None
        while (piece := await self._next()) is not None:
            sent_bytes += len(piece)
            self._check(sent_bytes)
            for decoded in gunzip.decoded(piece) if gunzip else (piece,):
                decoded_bytes += len(decoded)
                self._check(decoded_bytes)
                yield decoded
        if gunzip:
            gunzip.check_end()

    async def aclose(self) -> None:
        await self._close.aclose()

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await anext(self._sent, None)
        except TimeoutError:
            raise out_of_time(self._caps) from None

    def _check(self, count: int) -> None:
        limit = self._caps.body_bytes
        if limit is not None and count > limit:
            raise AnswerTooLarge(f"The answer is larger than {limit} bytes.")


def out_of_time(caps: Caps) -> httpx.ReadTimeout:
    """Give the error of an answer that took too long as a whole."""
    return httpx.ReadTimeout(f"The answer took longer than {caps.total_s:g} seconds.")


class _Gunzip:
    """Takes gzip apart, member by member, in small pieces."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._began = False

    def decoded(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member.eof:
                    self._member = zlib.decompressobj(_GZIP)
                self._began = True
                yield self._member.decompress(data, _PIECE_BYTES)
                data = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise httpx.DecodingError(f"The answer's gzip is damaged ({error}).") from None

    def check_end(self) -> None:
        """Raise `httpx.DecodingError` if the last member is not complete."""
        if self._began and not self._member.eof:
            raise httpx.DecodingError("The answer's gzip is cut off.")
