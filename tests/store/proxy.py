"""A wire to Postgres that can be cut."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from app.store.postgres_cluster import PORT


class Proxy:
    """Listens on loopback and passes everything on to the server behind a DSN. A context manager.

    `cut` is what a client sees of a dead server: open connections are reset, new ones refused.
    `freeze` is what it sees of one that is stopped: connections stay, and nothing comes.
    """

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        (folder,) = parse_qs(parts.query)["host"]
        self._socket = f"{folder}/.s.PGSQL.{PORT}"
        self._user, self._database = parts.username, parts.path
        self._port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._pipes: set[asyncio.Task[None]] = set()
        self._called = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self._port}{self._database}?sslmode=disable"

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.cut()
        if self._server is not None:
            self._server.close()

    async def is_called(self) -> None:
        """Wait until somebody tries to connect while the wire is cut."""
        async with asyncio.timeout(10):
            await self._called.wait()

    async def mend(self) -> None:
        """Let connections through."""
        self._flows.set()
        await self._serve(self._pass_on)

    async def cut(self) -> None:
        """End all connections and take no new ones."""
        self._called.clear()
        await self._serve(self._hang_up)
        for writer in list(self._open):
            writer.transport.abort()
        for pipe in list(self._pipes):
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    def freeze(self) -> None:
        """Pass nothing on, until it is mended."""
        self._flows.clear()

    async def _serve(self, answer: "asyncio.streams._ClientConnectedCallback") -> None:
        if self._server is not None:
            self._server.close()
        self._server = await asyncio.start_server(answer, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _hang_up(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._called.set()
        writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._socket)
        self._open |= {writer, back}
        pipes = [
            asyncio.create_task(self._pipe(reader, back)),
            asyncio.create_task(self._pipe(there, writer)),
        ]
        self._pipes |= set(pipes)
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pipe in pipes:
                pipe.cancel()
            for end in (writer, back):
                end.transport.abort()
            self._open -= {writer, back}
            self._pipes -= set(pipes)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
