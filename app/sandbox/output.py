"""What a command prints: drained without ever blocking, the head and the tail kept."""

import asyncio
import logging
import os
from collections.abc import Callable

from app.errors import ToolFailed
from app.sandbox.driver import Spool

logger = logging.getLogger(__name__)

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

    def drop(self) -> None:
        """Keep nothing of what came so far."""
        self._head.clear()
        self._tail.clear()


class SpoolFile:
    """The whole output of a command in a file, from the moment when it is asked for."""

    def __init__(self, spool: Spool) -> None:
        self.after_bytes = spool.after_bytes
        self._open = spool.open
        self._fd = -1
        self.is_whole = False
        self.refusal: OSError | ToolFailed | None = None
        """Why there is no file, or no whole one."""

    def begin(self, so_far: bytes) -> None:
        """Make the file. Raises what the spool's `open` raises, and why a file is not whole."""
        if self.refusal is not None:
            raise self.refusal
        if self.is_whole:
            return
        try:
            self._fd = self._open()
        except (OSError, ToolFailed) as refusal:
            self.refusal = refusal
            raise
        self.is_whole = True
        self.add(so_far)

    def add(self, data: bytes) -> None:
        """Write, once the file is there. A write that fails ends it: half a file says so."""
        rest = memoryview(data if self._fd >= 0 else b"")
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            logger.warning("A command's output cannot be stored: %s", error.strerror)
            self.is_whole = False
            self.refusal = ToolFailed(f"The command's output cannot be stored: {error.strerror}.")
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Drain:
    """Reads a pipe on the event loop. Owns the descriptor; `close` must be called."""

    def __init__(
        self,
        fd: int,
        *,
        keep_bytes: int,
        max_bytes: int,
        on_flood: Callable[[], None],
        spool: Spool | None = None,
    ) -> None:
        self._fd = fd
        self._file = None if spool is None else SpoolFile(spool)
        self._is_kept = True
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
        self._spool(data)
        self.kept.add(data)
        if not self._is_kept:
            self.kept.drop()
        if self.kept.total > self._max_bytes and not self.flooded:
            self.flooded = True
            self._on_flood()
        return True

    @property
    def is_spooled(self) -> bool:
        return self._file is not None and self._file.is_whole

    def make_spool(self) -> None:
        """Make the spool's file, unless it is there. Raises as `SpoolFile.begin` does."""
        if self._file is not None:
            self._file.begin(self.kept.kept()[0])

    def spool_all(self) -> None:
        """Keep all in the spool's file, and nothing here. Raises as `make_spool` does."""
        if self._file is not None:
            self.make_spool()
            self._is_kept = False
            self.kept.drop()

    def _spool(self, data: bytes) -> None:
        file = self._file
        if file is None:
            return
        if file.refusal is None and self.kept.total + len(data) > file.after_bytes:
            try:
                file.begin(self.kept.kept()[0])  # nothing is cut yet
            except (OSError, ToolFailed) as error:
                logger.warning("No file can be made for a command's output: %s", error)
        file.add(data)

    def close(self, last_words: bytes = b"") -> None:
        """Take what the pipe still holds, then close it. The writers should be gone by now."""
        self._loop.remove_reader(self._fd)
        rest_end = self.kept.total + _REST_BYTES
        while self._read() and self.kept.total < rest_end:
            continue
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        if self._file is not None:
            self._file.add(last_words)
            self._file.close()
