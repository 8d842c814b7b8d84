"""Commands without walls: what `TREADLE_SANDBOX=none` means. Never a fallback.

A command sees the host. Kept are a clean environment, limits, and that the whole tree ends with
the command. The tree is known by a mark in its environment, since a daemon leaves its session and
its parent; only a process that also wipes its environment escapes.
"""

import asyncio
import os
import secrets
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from app.errors import ToolFailed
from app.sandbox.driver import Channel, Limits, Sandbox, SessionDirs, Spool
from app.sandbox.process import Child, Spawn, memory_file
from app.sandbox.programs import SYSTEM_PATH, Programs
from app.sandbox.walls import limited

_MARK = "TREADLE_COMMAND"
_LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class Unsandboxed(Sandbox):
    """The driver of one session. Here the agent's paths are the host's."""

    dirs: SessionDirs
    programs: Programs
    uid: int | None = None
    """Whom commands run as; None: as the service."""
    gid: int | None = None
    """Their only group; None: the number of the uid."""

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
    ) -> "MarkedChild":
        if any("\0" in word for word in (*argv, cwd)):
            raise ToolFailed("A command cannot hold a NUL character.")
        with ExitStack() as ours:
            passed = () if script is None else (memory_file(script, ours),)
            spawn = Spawn(
                Path("prlimit"),
                limited([*argv, *(f"/dev/fd/{fd}" for fd in passed)], limits, processes=None),
                env={**self._environment(), _MARK: (mark := secrets.token_hex(16))},
                cwd=cwd,
                limits=limits,
                merge_stderr=merge_stderr,
                stdin=subprocess.DEVNULL if channel is None else channel.fd,
                stdout=None if channel is None else channel.fd,
                pass_fds=passed,
                uid=self.uid,
                gid=self.gid,
                spool=spool,
            )
            try:
                return MarkedChild(spawn, mark)
            except OSError as error:
                raise ToolFailed(
                    f"The command was not run: {error.filename}: {error.strerror}."
                ) from error

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.programs.bin}:{SYSTEM_PATH}",
            "HOME": str(self.dirs.home),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.dirs.tmp),
            "TERM": "dumb",
            "USER": "agent",
            # In the walls /etc/gitconfig says so.
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.bareRepository",
            "GIT_CONFIG_VALUE_0": "explicit",
        }


class MarkedChild(Child):
    """A process group, and whatever left it but still carries the mark."""

    def __init__(self, spawn: Spawn, mark: str) -> None:
        super().__init__(spawn)
        self._mark = f"{_MARK}={mark}".encode()

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # not reaped yet, so the id is still ours
        super().kill()

    async def gone(self) -> None:
        await self.exited()
        while await asyncio.to_thread(_kill_marked, self._mark):  # noqa: ASYNC110 -- no event tells
            await asyncio.sleep(_LOOK_AGAIN_S)


def _kill_marked(mark: bytes) -> bool:
    """Kill each process that carries the mark; true if there was one."""
    found = False
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and _has_mark(entry, mark):
            found = True
            with suppress(ProcessLookupError, PermissionError):
                _kill_if_marked(entry, mark)
    return found


def _kill_if_marked(entry: Path, mark: bytes) -> None:
    """Look again with the process held: the number may be another's by now."""
    pidfd = os.pidfd_open(int(entry.name))
    try:
        if _has_mark(entry, mark):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    finally:
        os.close(pidfd)


def _has_mark(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes()
    except OSError:  # another user's, or gone
        return False
