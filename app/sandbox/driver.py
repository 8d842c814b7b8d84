"""The sandbox protocol: run one command behind walls."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SessionDirs:
    """A session's three folders on this host. Names carry nothing secret."""

    ws: Path
    """Bound at /workspace; what the session is about."""
    tmp: Path
    """Bound at /tmp; kept between calls on this host."""
    home: Path
    """Bound at /home/agent; kept between calls on this host."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use."""

    wall_s: float = 120.0
    """Killed after this, with its whole tree."""
    output_bytes: int = 64 * 1024 * 1024
    """Killed once it has printed more."""
    keep_bytes: int = 1024 * 1024
    """How much of the output is kept: head and tail."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended."""

    exit_code: int
    """The command's; 128+n for a signal; 137 where it was killed by a limit."""
    output: bytes
    """stdout and stderr in time order; cut in the middle past `keep_bytes`."""
    cut_bytes: int = 0
    """How many bytes of output are missing."""
    timed_out: bool = False
    flooded: bool = False
    """True when it was killed for printing more than `output_bytes`."""
    stderr: bytes = b""
    """Only when `merge_stderr` was false."""


class Sandbox(Protocol):
    """Where the commands of one session run.

    Raises `ToolFailed` when the sandbox itself cannot start: a command never runs outside.
    Cancelling kills the whole tree first.
    """

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        limits: Limits,
        script: bytes | None = None,
        merge_stderr: bool = True,
    ) -> Finished:
        """Run a command to its end.

        `cwd` and paths are in the agent's view (`/workspace/…`). `script`, if given, is put
        into a file whose path is appended to `argv` (an argument is limited to 128 kB).
        """
        ...
