"""One bubblewrap sandbox per command: no network, no host files, nothing that outlives it."""

import asyncio
import json
import logging
import os
import platform
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from app.errors import ToolFailed
from app.sandbox.dirs import let_owner_in
from app.sandbox.driver import Channel, Finished, Limits, Sandbox, SessionDirs, Spool
from app.sandbox.process import Child, Spawn, memory_file, readable
from app.sandbox.programs import Programs
from app.sandbox.seccomp import seccomp_filter
from app.sandbox.walls import ETC, SCRIPT, Descriptors, bwrap_arguments, limited

logger = logging.getLogger(__name__)

_STARTED_WITHIN_S = 1.0
"""How long a kill waits for bubblewrap to name its pid 1."""


class SandboxNotStarted(ToolFailed):
    """The sandbox did not start, so the command did not run. `detail` is for the operator."""

    def __init__(self, detail: str) -> None:
        super().__init__("The sandbox did not start, so the command was not run.")
        self.detail = detail.strip()


@dataclass(frozen=True, slots=True)
class BubblewrapSandbox(Sandbox):
    """The sandbox of one session."""

    dirs: SessionDirs
    programs: Programs
    uid: int | None = None
    """Whom commands run as on the host; must be given when the service is root."""
    gid: int | None = None
    """Their only group; None: the number of the uid."""

    def __post_init__(self) -> None:
        if os.geteuid() == 0 and not self.uid:
            raise ValueError("a service that runs as root must drop to another uid")

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        limits: Limits,
        script: bytes | None = None,
        merge_stderr: bool = True,
        spool: Spool | None = None,
        channel: Channel | None = None,
    ) -> "SandboxedChild":
        if any("\0" in word for word in (*argv, cwd)):
            raise ToolFailed("A command cannot hold a NUL character.")
        try:
            return self._start(argv, cwd, limits, script, merge_stderr, spool, channel)
        except OSError as error:  # bubblewrap is gone, or no descriptors are left
            raise _not_started(str(error)) from error

    def _start(
        self,
        argv: Sequence[str],
        cwd: str,
        limits: Limits,
        script: bytes | None,
        merge_stderr: bool,
        spool: Spool | None,
        channel: Channel | None,
    ) -> "SandboxedChild":
        let_owner_in(self.dirs, uid=self.uid)
        with ExitStack() as ours:  # the child has its own copies
            status_read, status_write = os.pipe2(os.O_CLOEXEC)
            ours.callback(os.close, status_write)
            fds = Descriptors(
                etc={path: memory_file(content, ours) for path, content in ETC.items()},
                seccomp=memory_file(seccomp_filter(platform.machine()), ours),
                status=status_write,
                script=None if script is None else memory_file(script, ours),
            )
            folders = channel.folders if channel else ()
            walls = bwrap_arguments(self.dirs, self.programs, cwd, fds, folders)
            arguments = "\0".join([*walls, ""])
            # By a descriptor, since the command can read the command line of its pid 1.
            args_fd = memory_file(os.fsencode(arguments), ours)
            inner = limited([*argv, *([] if script is None else [SCRIPT])], limits)
            spawn = Spawn(
                self.programs.bwrap,
                ["bwrap", "--args", str(args_fd), "--", *inner],
                env={},  # clearing it inside is not enough: pid 1 keeps what it was given
                cwd=str(self.programs.bwrap.parent),  # so that no path need be named to run it
                limits=limits,
                merge_stderr=merge_stderr,
                stdin=subprocess.DEVNULL if channel is None else channel.fd,
                stdout=None if channel is None else channel.fd,
                pass_fds=(args_fd, *fds.all()),
                uid=self.uid,
                gid=self.gid,
                spool=spool,
            )
            try:
                return SandboxedChild(spawn, status_read)
            except BaseException:
                os.close(status_read)
                raise


class SandboxedChild(Child):
    """Bubblewrap, and inside it the pid 1 of its namespace, with which everything ends.

    Bubblewrap tells both its pid 1 and, if the command ran at all, the exit code. Killing only
    bubblewrap would leave a gap: before it is armed, `--die-with-parent` ends nothing.
    """

    def __init__(self, spawn: Spawn, status_fd: int) -> None:
        super().__init__(spawn)
        self.exit_code: int | None = None
        """The command's; None if it never ran, or did not end by itself."""
        self._status_fd = status_fd
        self._status = b""
        self._init_fd: int | None = None
        self._settled = asyncio.Event()
        self._is_dying = False
        os.set_blocking(status_fd, False)
        asyncio.get_running_loop().add_reader(status_fd, self._read_status)

    def kill(self) -> None:
        self._is_dying = True
        if self._init_fd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)
            super().kill()

    async def gone(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_STARTED_WITHIN_S):
                await self._settled.wait()
        super().kill()
        await self.exited()
        if self._init_fd is not None:
            await readable(self._init_fd)
            with suppress(ChildProcessError):  # ours to reap only where we are the host's pid 1
                _reap(self._init_fd)

    def finished(self, *, timed_out: bool) -> Finished:
        finished = super().finished(timed_out=timed_out)
        if self.exit_code is None and finished.exit_code < 128:
            raise _not_started((finished.stderr or finished.output).decode(errors="replace"))
        return finished

    def release(self, last_words: bytes) -> None:
        self._read_status()
        asyncio.get_running_loop().remove_reader(self._status_fd)
        os.close(self._status_fd)
        if self._init_fd is not None:
            os.close(self._init_fd)
        super().release(last_words)

    def _read_status(self) -> None:
        try:
            data = os.read(self._status_fd, 4096)
        except BlockingIOError:
            return
        self._status += data
        if not data:
            asyncio.get_running_loop().remove_reader(self._status_fd)
            self._settled.set()
        *lines, self._status = self._status.split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, status: dict[str, int]) -> None:
        self.exit_code = status.get("exit-code", self.exit_code)
        if "child-pid" in status:
            with suppress(ProcessLookupError):  # it has ended already
                self._init_fd = os.pidfd_open(status["child-pid"])
            self._settled.set()
            if self._is_dying:
                self.kill()


def _reap(pidfd: int) -> None:
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)


def _not_started(detail: str) -> SandboxNotStarted:
    logger.warning(
        "The sandbox did not start: %s", detail.strip(), extra={"action": "sandbox_not_started"}
    )
    return SandboxNotStarted(detail)
