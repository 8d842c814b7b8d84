"""The wire between one host and Postgres, which can be cut: the stand-in for `wire.Wire`.

A small TCP proxy. `drop` resets what is open and refuses what is new. `hole` keeps everything and
passes nothing on, which is what a lost route looks like: no error, only silence.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Literal, cast

Mode = Literal["open", "drop", "hole"]


@dataclass(slots=True)
class Link:
    """Listens on `port`; made by `open_link`."""

    target: int
    port: int = 0
    mode: Mode = "open"
    pairs: set["_End"] = field(default_factory=set)
    dialling: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where the host finds Postgres."""
        return "127.0.0.1", self.port

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def set(self, mode: Mode) -> None:
        """Cut the wire, or mend it."""
        self.mode = mode
        for end in list(self.pairs):
            end.apply(mode)

    async def close(self) -> None:
        """Stop listening and drop what is open."""
        if self._server is not None:
            self._server.close()
        for end in list(self.pairs):
            end.abort()
        for task in list(self.dialling):
            task.cancel()
        await asyncio.gather(*self.dialling, return_exceptions=True)


class _End(asyncio.Protocol):
    """One end of a connection; `peer` is the other."""

    def __init__(self, link: Link, peer: "_End | None" = None) -> None:
        self.link = link
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        self.early: list[bytes] = []
        """What came before the other end was there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports fit the interface without inheriting it.
        self.transport = cast("asyncio.Transport", transport)
        self.link.pairs.add(self)
        if self.peer is None:
            task = asyncio.get_running_loop().create_task(self._dial())
            self.link.dialling.add(task)
            task.add_done_callback(self.link.dialling.discard)
        self.apply(self.link.mode)

    async def _dial(self) -> None:
        while self.link.mode == "hole":  # noqa: ASYNC110 - the mode has no event, and need not have
            await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        try:
            _, other = await loop.create_connection(
                lambda: _End(self.link, self), "127.0.0.1", self.link.target
            )
        except OSError:
            self.abort()
            return
        self.peer = other
        for data in self.early:
            other.write(data)
        if self.transport is None or self.transport.is_closing():
            other.abort()

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self.early.append(data)
        else:
            self.peer.write(data)

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.link.pairs.discard(self)
        if self.peer is not None:
            self.peer.close()

    def apply(self, mode: Mode) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if mode == "drop":
            self.abort()
        elif mode == "hole" and self.transport.is_reading():
            self.transport.pause_reading()
        elif mode == "open" and not self.transport.is_reading():
            self.transport.resume_reading()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
