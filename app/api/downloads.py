"""Files that are made while they are sent: bounded in memory, in time, and in number."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from app.runs.outages import GONE

log = logging.getLogger(__name__)

SLICE_BYTES = 64 * 1024
"""What a slow client must take in time."""


class Download(StreamingResponse):
    """Sends a file's pieces. One that is cut has no proper end, so that clients notice."""

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        name: str,
        media_type: str,
        *,
        send_timeout_s: float,
        slot: Callable[[], AbstractContextManager[None]],
    ) -> None:
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        }
        super().__init__(_slices(chunks), headers=headers, media_type=media_type)
        self._send_timeout_s, self._slot = send_timeout_s, slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; give up on a client that takes nothing, and when the database goes."""

        async def timed(message: Message) -> None:
            async with asyncio.timeout(self._send_timeout_s):
                await send(message)

        with self._slot():
            try:
                await super().__call__(scope, receive, timed)
            except GONE as error:  # TimeoutError is one of them
                log.warning("A download was cut: %s", type(error).__name__)


async def _slices(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            for start in range(0, len(chunk), SLICE_BYTES):
                yield chunk[start : start + SLICE_BYTES]
