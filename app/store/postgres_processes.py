"""Tells whether server processes of an embedded cluster live, and ends those left behind.

PostgreSQL decides by pids, and pids deceive: one may belong to another process by now (a container
that comes back with the same pids), to a zombie that nobody reaps, or to a server in another
container on the same volume. So the launcher opens and locks `server.lock` and lets the
postmaster and all its children inherit it: it is held as long as any of them lives, by nobody else.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A living server, as its `postmaster.pid` tells it."""

    pid: int
    socket_dir: Path
    port: int
    is_ready: bool

    @property
    def socket(self) -> Path:
        return self.socket_dir / f".s.PGSQL.{self.port}"


def find_postmaster(pgdata: Path) -> Postmaster | None:
    """The server that runs on these data, ready or not; None when there is none."""
    try:
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 5 or not lines[0].isdigit():
        return None  # being written: the next look sees it whole
    if not works_in(int(lines[0]), pgdata):
        return None
    is_ready = len(lines) > 7 and lines[7].strip() == "ready"
    return Postmaster(int(lines[0]), Path(lines[4]), int(lines[3]), is_ready)


def works_in(pid: int, pgdata: Path) -> bool:
    """Whether `pid` is a living server process of these data."""
    try:
        if sys.platform != "linux":
            os.kill(pid, 0)
            return True
        return _folder_of(pid) == str(pgdata.resolve())
    except (FileNotFoundError, ProcessLookupError):
        return False
    except PermissionError:
        # Another user's process (we are root without CAP_SYS_PTRACE): name and lock must do.
        return sys.platform != "linux" or (_is_postgres(pid) and is_held(server_lock(pgdata)))


def end_leftovers(pgdata: Path) -> None:
    """Kill server processes without a postmaster, also those whose folder was deleted under them.

    PostgreSQL's own advice; the next start recovers as after any crash. The caller holds the right
    to start, so none of them is just being started.
    """
    if sys.platform != "linux" or find_postmaster(pgdata) is not None:
        return
    folders = (str(pgdata.resolve()), f"{pgdata.resolve()} (deleted)")
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(entry.name)
            if _is_postgres(pid) and _folder_of(pid) in folders:
                os.kill(pid, signal.SIGKILL)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A lock file's descriptor; closing it lets go, unless a child has inherited it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def server_lock(pgdata: Path) -> Path:
    """Inherited and held by the server's processes."""
    return pgdata.with_name("server.lock")


def is_held(path: Path) -> bool:
    """Whether another open file has this lock now."""
    with opened(path) as fd:
        return not try_lock(fd)


def try_lock(fd: int) -> bool:
    """Take the lock unless another open file has it. Never waits."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_postgres(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("postgres")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _folder_of(pid: int) -> str:
    """Server processes work in their data. A zombie works nowhere: FileNotFoundError."""
    return str(Path(f"/proc/{pid}/cwd").readlink())
