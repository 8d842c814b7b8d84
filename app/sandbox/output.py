"""What a command prints: drained without ever blocking, the head and the tail kept."""

import asyncio
import os
from collections.abc import Callable

_CHUNK_BYTES = 64 * 1024
_REST_BYTES = 4 * 1024 * 1024
"""More than a pipe can hold: what is read at most after the last writer is gone."""


class HeadTail:
    """Bytes of which the middle is dropped past `keep_bytes`. Memory stays bounded."""

    def __init__(self, keep_bytes: int) -> None:
        self._half = max(keep_bytes // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def kept(self) -> tuple[bytes, int]:
        """Give head and tail joined, and how many bytes between them are missing."""
        kept = bytes(self._head + self._tail[-self._half :])
        return kept, self.total - len(kept)


class Drain:
    """Reads a pipe on the event loop. Owns the descriptor; `close` must be called."""

    def __init__(
        self, fd: int, *, keep_bytes: int, max_bytes: int, on_flood: Callable[[], None]
    ) -> None:
        self._fd = fd
        self._max_bytes = max_bytes
        self._on_flood = on_flood
        self._loop = asyncio.get_running_loop()
        self.kept = HeadTail(keep_bytes)
        self.flooded = False
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        """Read once; true when there may be more."""
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._fd)
            return False
        self.kept.add(data)
        if self.kept.total > self._max_bytes and not self.flooded:
            self.flooded = True
            self._on_flood()
        return True

    def close(self) -> None:
        """Take what the pipe still holds, then close it. The writers should be gone by now."""
        self._loop.remove_reader(self._fd)
        rest_end = self.kept.total + _REST_BYTES
        while self._read() and self.kept.total < rest_end:
            continue
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
