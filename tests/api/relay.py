"""A way to Postgres that a test can cut."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_SOCKET = ".s.PGSQL.5432"


class Relay:
    """Passes connections on to the server's socket until it is cut."""

    def __init__(self, dsn: str, folder: Path) -> None:
        parts = urlsplit(dsn)
        self._server_socket = str(Path(parse_qs(parts.query)["host"][0]) / _SOCKET)
        self._socket = folder / _SOCKET
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.dsn = dsn.partition("?")[0] + f"?host={folder}"

    async def mend(self) -> None:
        """Let connections through."""
        self._server = await asyncio.start_unix_server(self._serve, self._socket)

    async def cut(self) -> None:
        """Take the server away: no new connections, the old ones end."""
        if self._server is not None:
            self._server.close()
        self._socket.unlink(missing_ok=True)
        for writer in self._writers:
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection is served by a task")
        self._tasks.add(task)
        there_reader, there = await asyncio.open_unix_connection(self._server_socket)
        self._writers |= {writer, there}
        try:
            await asyncio.gather(_pass_on(reader, there), _pass_on(there_reader, writer))
        finally:
            self._writers -= {writer, there}
            self._tasks.discard(task)
            for end in (writer, there):
                end.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def relay(dsn: str, scratch: Path) -> AsyncIterator[Relay]:
    """Stand between a host and its database."""
    with tempfile.TemporaryDirectory(prefix="r-", dir=scratch) as folder:
        between = Relay(dsn, Path(folder))
        await between.mend()
        try:
            yield between
        finally:
            await between.cut()
