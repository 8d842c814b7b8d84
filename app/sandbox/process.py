"""A child process that ends together with everything it started.

Spawned by `subprocess.Popen` on the event loop's own thread and watched by a pidfd, not by the
loop's subprocess support: a sandbox dies with the *thread* that spawned it, uvloop cannot drop
the uid, and a pidfd names a process for ever, which a pid does not.
"""

import asyncio
import functools
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.sandbox.driver import Finished, Limits, Spool
from app.sandbox.output import Drain
from app.sandbox.programs import SYSTEM_PATH

logger = logging.getLogger(__name__)

_GONE_WITHIN_S = 5.0
"""After SIGKILL. Only a process stuck in the kernel takes longer, and nothing can end that."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """What to start, and how."""

    program: Path
    argv: Sequence[str]
    """With the name that the program is told, first; the command may see it."""
    env: Mapping[str, str]
    """The whole environment; nothing is inherited."""
    cwd: str
    """On the host."""
    limits: Limits
    merge_stderr: bool = True
    stdin: int = subprocess.DEVNULL
    """A descriptor to read from; without one it is empty."""
    stdout: int | None = None
    """A descriptor to write to; then stderr alone is the output that is kept."""
    pass_fds: Sequence[int] = ()
    """The only descriptors that stay open, besides 0, 1 and 2."""
    uid: int | None = None
    """Whom to become first; None: stay who we are."""
    gid: int | None = None
    """The only group then; None: the number of the uid."""
    spool: Spool | None = None


class Child:
    """A running command: fits `driver.Command`."""

    def __init__(self, spawn: Spawn) -> None:
        """Spawn it; raises `OSError` when the program cannot be run."""
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = (-1, -1) if spawn.merge_stderr else os.pipe2(os.O_CLOEXEC)
        try:
            self._popen, self._pidfd = _start(spawn, out_write, err_write)
        except BaseException:
            _close(out_read, err_read)
            raise
        finally:
            _close(out_write, err_write)
        self.pid = self._popen.pid
        self._out = self._drain(out_read, spawn.limits, spawn.spool)
        self._err = None if spawn.merge_stderr else self._drain(err_read, spawn.limits)

    def _drain(self, fd: int, limits: Limits, spool: Spool | None = None) -> Drain:
        return Drain(
            fd,
            keep_bytes=limits.keep_bytes,
            max_bytes=limits.output_bytes,
            on_flood=self.kill,
            spool=spool,
        )

    async def ended(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self.exited()
        except TimeoutError:
            return False
        return True

    async def exited(self) -> None:
        """Wait until the first process has ended."""
        await readable(self._pidfd)

    def kill(self) -> None:
        # SIGKILL to everything that is known; may be called again.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait, after `kill`, until nothing of the tree is left."""
        await self.exited()

    def make_spool(self) -> None:
        self._out.make_spool()

    def spool_all(self) -> None:
        self._out.spool_all()

    async def finish(self, *, timed_out: bool = False, last_words: bytes = b"") -> Finished:
        await uninterrupted(self._destroy(last_words))
        return self.finished(timed_out=timed_out)

    async def _destroy(self, last_words: bytes) -> None:
        """Kill what is left of the tree, wait for its end, collect output, free all."""
        try:
            async with asyncio.timeout(_GONE_WITHIN_S):
                self.kill()
                await self.gone()
                await self.exited()
        except TimeoutError:
            logger.warning(
                "A command has not ended after SIGKILL",
                extra={"action": "command_stuck", "pid": self.pid, "waited_s": _GONE_WITHIN_S},
            )
        finally:
            self.release(last_words)

    def release(self, last_words: bytes) -> None:
        self._popen.poll()
        os.close(self._pidfd)
        self._out.close(last_words)
        if self._err:
            self._err.close()

    def printed(self) -> Finished:
        output, cut_bytes = self._out.kept.kept()
        return Finished(0, output, cut_bytes, is_spooled=self._out.is_spooled)

    def finished(self, *, timed_out: bool) -> Finished:
        """Say how it ended; only when nothing of it is left."""
        output, cut_bytes = self._out.kept.kept()
        status: int | None = self._popen.returncode
        flooded = self._out.flooded or bool(self._err and self._err.flooded)
        if timed_out or flooded or status is None:
            status = -signal.SIGKILL
        return Finished(
            exit_code=status if status >= 0 else 128 - status,
            output=output,
            cut_bytes=cut_bytes,
            timed_out=timed_out,
            flooded=flooded,
            stderr=self._err.kept.kept()[0] if self._err else b"",
            is_spooled=self._out.is_spooled,
        )


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Await to the end even when cancelled; then pass the cancellation on."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


async def readable(fd: int) -> None:
    """Wait until a descriptor can be read; for a pidfd: until its process has ended."""
    loop = asyncio.get_running_loop()
    seen = asyncio.Event()
    loop.add_reader(fd, seen.set)
    try:
        await seen.wait()
    finally:
        loop.remove_reader(fd)


def memory_file(content: bytes, owner: ExitStack) -> int:
    """Give a descriptor from which a child can read `content`; `owner` closes it."""
    fd = os.memfd_create("treadle", os.MFD_CLOEXEC)
    owner.callback(os.close, fd)
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _start(spawn: Spawn, out: int, err: int) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process and hold it; it does not run on unheld."""
    popen = _popen(spawn, out, err)
    try:
        return popen, os.pidfd_open(popen.pid)
    except OSError:  # no descriptor is left
        popen.kill()
        popen.wait()
        raise


def _popen(spawn: Spawn, out: int, err: int) -> subprocess.Popen[bytes]:
    if (argv := _argv_as_user(spawn)) is None:
        owner: dict[str, Any] = {} if spawn.uid is None else _owner(spawn)
        return _opened(spawn, spawn.argv, spawn.program, out, err, owner)
    return _opened(spawn, argv, Path(argv[0]), out, err, {})


def _opened(
    spawn: Spawn, argv: Sequence[str], program: Path, out: int, err: int, owner: dict[str, Any]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        executable=program,
        stdin=spawn.stdin,
        stdout=out if spawn.stdout is None else spawn.stdout,
        stderr=_stderr(spawn, out, err),
        env=spawn.env,
        cwd=spawn.cwd,
        pass_fds=spawn.pass_fds,
        start_new_session=True,
        **owner,
    )


def _owner(spawn: Spawn) -> dict[str, Any]:
    return {"user": spawn.uid, "group": _group(spawn), "extra_groups": ()}


def _group(spawn: Spawn) -> int | None:
    return spawn.uid if spawn.gid is None else spawn.gid


def _argv_as_user(spawn: Spawn) -> list[str] | None:
    """Let `setpriv` become the user, where it can: for such a child Python need not fork.

    A fork copies the service's page tables: 5 to 40 ms in which the event loop stands still. Without
    a change of the user Python uses vfork, which takes less than one. The program is run by a path
    that begins at its own folder, since what it runs may see the path.
    """
    setpriv = _setpriv()
    if spawn.uid is None or setpriv is None or str(spawn.program.parent) != spawn.cwd:
        return None
    user = [f"--reuid={spawn.uid}", f"--regid={_group(spawn)}", "--clear-groups"]
    return [setpriv, *user, "--", f"./{spawn.program.name}", *spawn.argv[1:]]


@functools.cache
def _setpriv() -> str | None:
    return shutil.which("setpriv", path=SYSTEM_PATH)


def _stderr(spawn: Spawn, out: int, err: int) -> int:
    if spawn.stdout is not None:
        return out
    return subprocess.STDOUT if err < 0 else err


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)
