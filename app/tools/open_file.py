"""An open regular file, and reading it without taking more than was bargained for."""

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

from app.domain.value import value

_CHUNK_BYTES = 1024 * 1024
_AT_ONCE_BYTES = 64 * 1024
"""Files and texts up to this size are read, compared and searched on the event loop: in a millisecond or two, in ten
if every character is a line."""

T = TypeVar("T")


@value
class Version:
    """Which state of a file something was computed from."""

    inode: int
    mtime_ns: int
    size_bytes: int

    @staticmethod
    def of(status: os.stat_result) -> "Version":
        return Version(status.st_ino, status.st_mtime_ns, status.st_size)


@value
class OpenFile:
    """A descriptor of a regular file and what `fstat` said when it was opened.

    Whoever has it closes it, or uses `with`.
    """

    fd: int
    version: Version

    @property
    def size_bytes(self) -> int:
        return self.version.size_bytes

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def head(self, size_bytes: int) -> bytes:
        """Look at the first bytes without reading on."""
        return os.pread(self.fd, size_bytes, 0)

    def more(self, most_bytes: int) -> bytes:
        """Read on; nothing at the end."""
        return os.read(self.fd, most_bytes)

    def chunks(self, limit_bytes: int) -> Iterator[bytes]:
        """Read from the start, at most `limit_bytes`: a file may grow while it is read."""
        position = 0
        while position < limit_bytes:
            chunk = os.pread(self.fd, min(limit_bytes - position, _CHUNK_BYTES), position)
            if not chunk:
                return
            position += len(chunk)
            yield chunk

    def content(self, limit_bytes: int) -> bytes:
        """Read the whole file, cut at `limit_bytes`."""
        if self.size_bytes < _CHUNK_BYTES:
            limit_bytes = min(limit_bytes, self.size_bytes)
            data = self.head(limit_bytes)
            if len(data) == limit_bytes:
                return data
        return b"".join(self.chunks(limit_bytes))


async def compute(work: Callable[[], T], *, size_bytes: int) -> T:
    """Do what takes as long as `size_bytes` of text take: at once, or in a thread.

    `work` touches nothing: a cancelled caller does not wait for it.
    """
    return work() if size_bytes <= _AT_ONCE_BYTES else await asyncio.to_thread(work)


async def use(file: OpenFile, work: Callable[[OpenFile], T]) -> T:
    """Do `work` on the file and close it: at once for a small file, else in a thread.

    A cancelled caller waits for the thread, since the descriptor's number may be given to
    somebody else as soon as it is closed.
    """
    if file.size_bytes <= _AT_ONCE_BYTES:
        with file:
            return work(file)

    def owned() -> T:
        with file:
            return work(file)

    return await in_thread(owned)


async def in_thread(work: Callable[[], T]) -> T:
    """Do `work` in a thread; a cancelled caller waits for its end."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.exception()  # nobody else asks for it
        raise
