"""What comes from a server, looked at before the session does: floods slowed, ballast dropped."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio
import orjson
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from app.mcp.listing import MAX_PAGE
from app.mcp.repairing import repaired

Streams: TypeAlias = AbstractAsyncContextManager[TransportStreams]

_UNREAD = frozenset(
    {"notifications/message", "notifications/progress", "notifications/resources/updated"}
)
"""Notifications that nothing here listens to."""
_LISTS = ("tools", "prompts", "resources")
"""What a result may list, by the name of its field."""
_STRICTEST = "2025-11-25"
"""The version of the protocol that wants most of an entry."""
_FREE_A_SECOND = 200
"""Messages that answer no request, before the server has to wait."""
_WAIT_EACH = 50
"""Of those that are too many, after which it waits."""
_WAIT_S = 0.02
_MOST_UNTAKEN = 20
"""Messages to a server that it does not take, before it is not listened to either."""
_UNTAKEN_S = 30.0
"""How long it may leave them, before its connection is given up."""
_MAX_QUESTION_BYTES = 200_000
"""Of what a server asks; more than that asks nothing that anybody answers."""


class Outlet:
    """The write stream of a connection; knows how many messages the server leaves waiting."""

    def __init__(self, inner: WriteStream[SessionMessage]) -> None:
        self._inner = inner
        self._waiting = 0
        self._taken = asyncio.Event()

    async def send(self, item: SessionMessage, /) -> None:
        """Send; return when the transport has taken it."""
        self._waiting += 1
        try:
            await self._inner.send(item)
        finally:
            self._waiting -= 1
            self._taken.set()

    async def has_room(self) -> None:
        """Wait while too many wait. Raises `TimeoutError` when none is taken."""
        while self._waiting >= _MOST_UNTAKEN:
            self._taken.clear()
            await asyncio.wait_for(self._taken.wait(), _UNTAKEN_S)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


class Screen:
    """The read stream of a connection."""

    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        outlet: Outlet,
        lost: Callable[[str], None],
    ) -> None:
        """`lost` is called when nothing more will come, with why if that is known here."""
        self._inner = inner
        self._outlet = outlet
        self._lost = lost
        self._second = 0.0
        self._count = 0

    @property
    def last_context(self) -> Any:  # noqa: ANN401 - whatever the transport hands on
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Give the next message that is worth it."""
        while True:
            try:
                item = await self._inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                self._lost("")
                raise
            if isinstance(item, ValidationError):
                item = repaired(item) or item
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, JSONRPCResponse):
                _keep_sound_entries(message.result)
                return item
            await self._slow_down()
            if isinstance(message, JSONRPCRequest):
                await self._make_room()
                _lighten(message)
            if isinstance(message, JSONRPCNotification) and message.method in _UNREAD:
                continue
            return item

    async def _make_room(self) -> None:
        """Take no further question of a server that takes no answers: each would be held in memory."""
        try:
            await self._outlet.has_room()
        except TimeoutError:
            self._lost("it does not read what it is answered")
            raise anyio.EndOfStream from None

    async def _slow_down(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._second >= 1:
            self._second, self._count = now, 0
        self._count += 1
        if self._count > _FREE_A_SECOND and self._count % _WAIT_EACH == 0:
            await asyncio.sleep(_WAIT_S)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


class Screened(AbstractAsyncContextManager[TransportStreams]):
    """A transport behind a `Screen`."""

    def __init__(self, transport: Streams, lost: Callable[[str], None]) -> None:
        self._transport = transport
        self._lost = lost

    async def __aenter__(self) -> tuple[Screen, Outlet]:
        read, write = await self._transport.__aenter__()
        outlet = Outlet(write)
        return Screen(read, outlet, self._lost), outlet

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


def _lighten(request: JSONRPCRequest) -> None:
    """Drop what a request holds that is too much for any that is answered here."""
    try:
        is_light = len(orjson.dumps(request.params)) <= _MAX_QUESTION_BYTES
    except TypeError:  # nests deeper, or has larger numbers, than is written
        is_light = False
    if not is_light:
        request.params = None


def _keep_sound_entries(result: dict[str, Any]) -> None:
    """Leave out what a list holds too much of, and each entry that is none.

    The package would refuse the whole list. The schemas that results would be checked against go too:
    it checks with an engine that a hostile pattern stops for ever, on the event loop.
    """
    for name in _LISTS:
        entries = result.get(name)
        if not isinstance(entries, list):
            continue
        found = [entry for entry in entries[:MAX_PAGE] if isinstance(entry, dict)]
        for entry in found:
            entry.pop("outputSchema", None)
        if not _is_sound(name, found):
            found = [entry for entry in found if _is_sound(name, [entry])]
        result[name] = found


def _is_sound(name: str, entries: list[dict[str, Any]]) -> bool:
    try:
        validate_server_result(f"{name}/list", _STRICTEST, {name: entries})
    except ValidationError:
        return False
    return True
