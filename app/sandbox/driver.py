"""The sandbox protocol: run one command behind walls."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from app.errors import ToolFailed


@dataclass(frozen=True, slots=True)
class SessionDirs:
    """A session's three folders on this host. Names carry nothing secret."""

    ws: Path
    """Bound at /workspace; what the session is about."""
    tmp: Path
    """Bound at /tmp; kept between calls on this host."""
    home: Path
    """Bound at /home/agent; kept between calls on this host."""
    readable: Mapping[str, Path] = field(default_factory=dict)
    """Further folders, which can only be read, by where they are bound."""


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
    is_spooled: bool = False
    """Whether the spool's file holds the output, whole."""


@dataclass(frozen=True, slots=True)
class Spool:
    """A file for the whole output of a command, for when it is too long to be kept."""

    open: Callable[[], int]
    """Makes the file; gives a descriptor, which the command closes. Asked once. Raises `OSError`
    or `ToolFailed`."""
    after_bytes: int
    """It is made once so much was printed; at most the half of `keep_bytes`."""


@dataclass(frozen=True, slots=True)
class Channel:
    """How to speak with a command that serves: the caller has the other end of `fd`."""

    fd: int
    """Becomes its standard input and output. The caller closes its own copy."""
    folders: Sequence[Path] = ()
    """Folders of the host that it may read, at their own paths."""


class Command(Protocol):
    """A command that runs. Whoever started it awaits `finish`, whatever happens."""

    async def ended(self, within_s: float) -> bool:
        """Wait for its end, at most so long; what it started may live on."""
        ...

    def kill(self) -> None:
        """Begin to end it with its whole tree; does not wait."""
        ...

    def printed(self) -> Finished:
        """Give what it has printed so far; the exit code means nothing yet."""
        ...

    def make_spool(self) -> None:
        """See to it that the spool's file is there and whole.

        Raises what its `open` does, and `ToolFailed` when it cannot be written on.
        """
        ...

    def spool_all(self) -> None:
        """From now on keep its output in the spool's file alone. Raises as `make_spool` does."""
        ...

    async def finish(self, *, timed_out: bool = False, last_words: bytes = b"") -> Finished:
        """End what is left of its tree; say how it ended.

        `last_words` are added to the spool's file, if it was made. Raises `ToolFailed` when the
        sandbox had not started.
        """
        ...


class Sandbox(Protocol):
    """Where the commands of one session run.

    Raises `ToolFailed` when the sandbox itself cannot start: a command never runs outside.
    Cancelling kills the whole tree first.
    """

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
    ) -> Command:
        """Start a command. Who calls this keeps the time; `limits.wall_s` is a last bound.

        With a `channel` its output is what it prints to stderr. Only on the event loop's own
        thread: a sandbox dies with the thread that started it.
        """
        ...

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
        child = self.start(argv, cwd=cwd, limits=limits, script=script, merge_stderr=merge_stderr)
        return await run_to_end(child, limits.wall_s)


async def run_to_end(command: Command, wall_s: float) -> Finished:
    """Wait for the command at most `wall_s`; when this returns or raises its tree is gone."""
    has_ended = False
    try:
        has_ended = await command.ended(wall_s)
    except BaseException:
        with suppress(ToolFailed):
            await command.finish()
        raise
    return await command.finish(timed_out=not has_ended)
