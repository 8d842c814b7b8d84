"""A run whose client hangs up on the stream that it was started with (`on_disconnect`)."""

from collections.abc import Awaitable, Callable

import anyio
from fastapi import Response
from starlette.types import Message, Receive, Scope, Send

_ENDS = (b"event: end\n", b'{"event":"end"')
"""How the last frame of a stream begins; neither can stand inside another frame's JSON."""


class TiedStream(Response):
    """A stream that calls `on_hang_up` when the client ends it before the service does."""

    def __init__(self, stream: Response, on_hang_up: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._stream = stream
        self._on_hang_up = on_hang_up

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        has_ended = has_hung_up = False

        async def noted_receive() -> Message:
            nonlocal has_hung_up
            message = await receive()
            has_hung_up |= message["type"] == "http.disconnect"
            return message

        async def noted_send(message: Message) -> None:
            nonlocal has_ended
            body = message.get("body", b"")
            has_ended |= any(end in body for end in _ENDS)
            await send(message)

        try:
            await self._stream(scope, noted_receive, noted_send)
        finally:
            if has_hung_up and not has_ended:
                with anyio.CancelScope(shield=True):
                    await self._on_hang_up()
