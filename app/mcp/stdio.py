"""A server that is a program in the sandbox: one JSON message a line, over a socket pair."""

import asyncio
import shlex
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from app.domain.mcp_options import MASK, StdioServer
from app.domain.text import printable
from app.errors import ToolFailed
from app.mcp.ending import Ending, Link
from app.sandbox.driver import Command, Finished
from app.sandbox.process import uninterrupted

Launch = Callable[[bytes, int], Command]
"""Starts a script of bash with a descriptor as its standard input and output."""

_ENDS_WITHIN_S = 0.5
"""What a server may still do when its input has ended; then it is killed."""
_MAX_WORDS = 500
_LEAST_SECRET = 6
"""Characters: what is shorter says too little, and stands in too many words."""


def script_of(server: StdioServer) -> bytes:
    """Give the script that becomes the server, with its environment.

    A file, since the command line of a process can be read by others; and after the limits of the
    sandbox, which a variable like PATH must not get around.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in server.env.items()]
    words = " ".join(map(shlex.quote, (server.command, *server.args)))
    return "\n".join((*lines, f"exec -- {words}", "")).encode(errors="surrogateescape")


def stdio_link(
    server: StdioServer,
    launch: Launch,
    prepare: Callable[[], Awaitable[None]],
    max_message_bytes: int,
) -> Link:
    """Give what starts the server; `prepare` is awaited before."""

    @asynccontextmanager
    async def started(ending: Ending) -> AsyncIterator[TransportStreams]:
        await prepare()
        async with stdio_transport(
            server, launch, max_message_bytes=max_message_bytes, ending=ending
        ) as streams:
            yield streams

    return started


@asynccontextmanager
async def stdio_transport(
    server: StdioServer, launch: Launch, *, max_message_bytes: int, ending: Ending
) -> AsyncIterator[TransportStreams]:
    """Start the program; when this ends, nothing of it is left. Raises `ToolFailed`, `OSError`."""
    ours, theirs = socket.socketpair()
    try:
        command = launch(script_of(server), theirs.fileno())
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    over = asyncio.Event()
    try:
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=max_message_bytes)
        incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, reader, incoming, ending, over)
                tasks.start_soon(_write, writer, outgoing, incoming, over)
                try:
                    yield received, sent
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            writer.close()  # the program reads the end of its input
            for stream in (incoming, received, sent, outgoing):
                stream.close()
    finally:
        await uninterrupted(_end(command, ending, server, is_over=over.is_set()))


async def _end(command: Command, ending: Ending, server: StdioServer, *, is_over: bool) -> None:
    """End the program; say why it is over, if that was its own doing."""
    await command.ended(_ENDS_WITHIN_S)
    try:
        finished = await command.finish()
    except ToolFailed as error:
        ending.why = error.message
        return
    if is_over:
        ending.why = ending.why or _words(finished, server)


def _words(finished: Finished, server: StdioServer) -> str:
    """Say how it ended, with its last words; what it was given as a secret is masked in them."""
    said = printable(finished.output[-4 * _MAX_WORDS :].decode(errors="replace")).strip()
    for value in sorted(server.env.values(), key=len, reverse=True):
        if len(value) >= _LEAST_SECRET:
            said = said.replace(value, MASK)
    how = f"the program ended with exit code {finished.exit_code}"
    return f"{how}: {said[-_MAX_WORDS:]}" if said else how


async def _read(
    reader: asyncio.StreamReader,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ending: Ending,
    over: asyncio.Event,
) -> None:
    """Hand on what comes; `over` is set when nothing more will, by the program's own doing."""
    async with incoming:
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # its limit: what follows cannot be told apart any more
                ending.why = "it sent a message that is larger than is taken"
                return
            except ConnectionError:
                line = b""
            if not line.endswith(b"\n"):
                over.set()
                return
            item: SessionMessage | Exception
            try:
                item = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError as error:
                item = error
            try:
                await incoming.send(item)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


async def _write(
    writer: asyncio.StreamWriter,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    over: asyncio.Event,
) -> None:
    with suppress(ConnectionError):
        async with outgoing:
            async for item in outgoing:
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(data.encode() + b"\n")
                await writer.drain()
        return
    over.set()
    await incoming.aclose()  # the session must not wait for answers
