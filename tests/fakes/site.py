"""A web site on loopback that answers as it is told, well or badly, and records what it is asked."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

Page = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]
"""A whole answer, or what writes one."""


@dataclass(slots=True)
class Asked:
    """One request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Site:
    """`pages` by path; anything else is a 404."""

    pages: dict[str, Page] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    address: str = "127.0.0.1"
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    _server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, self.address, self.port, ssl=self.tls, limit=1024 * 1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._answer(reader, writer)
        finally:
            writer.transport.abort() if task.cancelling() else writer.close()
            self._serving.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(Asked(method, target, headers, body))
            page = self.pages.get(target.partition("?")[0], answer(b"nothing here", 404))
            if isinstance(page, bytes):
                writer.write(page)
            else:
                await page(writer)
            await writer.drain()


def answer(body: bytes = b"", status: int = 200, kind: str = "text/plain", **headers: str) -> bytes:
    """Give a whole answer; `headers` are written with `_` for `-`."""
    given = {"content_type": kind, "content_length": str(len(body)), "connection": "close"}
    lines = [f"{k.replace('_', '-')}: {v}" for k, v in {**given, **headers}.items()]
    return "\r\n".join([f"HTTP/1.1 {status} Status", *lines, "", ""]).encode() + body
