"""Running ripgrep in the sandbox. The server itself never matches a model's pattern."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.text import printable, unstorable
from app.errors import ToolFailed
from app.sandbox.driver import Finished, Limits, Sandbox

LIMITS = Limits(wall_s=20.0, output_bytes=64 * 1024 * 1024, keep_bytes=8 * 1024 * 1024)
_MAX_ARGUMENT_BYTES = 32 * 1024
_MAX_MESSAGE = 2000


@dataclass(frozen=True, slots=True)
class Found:
    """What ripgrep printed."""

    output: bytes
    is_whole: bool
    """False when it printed more than is kept: then this is the head of it."""


def check_argument(name: str, value: str) -> None:
    """Refuse text that cannot be handed to a program."""
    flaw = unstorable(value)
    if flaw is not None:
        raise ToolFailed(f"The parameter `{name}` is not valid: it contains {flaw}.", wrapped=True)
    if len(value.encode()) > _MAX_ARGUMENT_BYTES:
        raise ToolFailed(
            f"The parameter `{name}` is longer than {_MAX_ARGUMENT_BYTES} bytes.", wrapped=True
        )


def arguments(options: Sequence[str], paths: Sequence[str] = ()) -> list[str]:
    """Give the command. Options come whole (`--glob=…`): no value can pass for an option."""
    # --no-messages: a file that cannot be read is no failure of the search.
    return ["rg", "--no-config", "--color=never", "--no-messages", *options, "--", *paths]


def glob_option(pattern: str) -> str:
    """Give the option for a glob. ripgrep takes it as a line of an ignore file, unless it is told.

    There a leading `#` begins a comment, and blanks at the end mean nothing.
    """
    if pattern.startswith("#"):
        pattern = f"\\{pattern}"
    if pattern[-1:].isspace() and not pattern.endswith("\\ "):
        pattern = f"{pattern[:-1]}[{pattern[-1]}]"
    return f"--glob={pattern}"


async def ripgrep(
    sandbox: Sandbox, options: Sequence[str], paths: Sequence[str] = (), *, cwd: str
) -> Found:
    """Run ripgrep. Finding nothing is no failure; a bad pattern is, in ripgrep's words."""
    return await run_search(sandbox, arguments(options, paths), cwd=cwd)


async def run_search(sandbox: Sandbox, argv: Sequence[str], *, cwd: str) -> Found:
    """Run a command that ends as ripgrep does. Raises `ToolFailed` as above."""
    done = await sandbox.exec(argv, cwd=cwd, limits=LIMITS, merge_stderr=False)
    check_time(done)
    complaint = printable(done.stderr.decode(errors="replace")).strip()
    if done.exit_code > 1 and not done.flooded and (complaint or done.exit_code != 2):
        raise ToolFailed(f"ripgrep failed:\n{(complaint or 'no message')[:_MAX_MESSAGE]}")
    if done.cut_bytes or done.flooded:
        return Found(_whole_records(done.output[: LIMITS.keep_bytes // 2]), is_whole=False)
    return Found(done.output, is_whole=True)


def check_time(done: Finished) -> None:
    """Raise `ToolFailed` for a search that was ended by its time limit."""
    if done.timed_out:
        raise ToolFailed(
            f"The search did not end within {LIMITS.wall_s:.0f} s. Narrow it to a folder, a glob "
            "or a type."
        )


def _whole_records(head: bytes) -> bytes:
    return head[: max(head.rfind(b"\n"), head.rfind(b"\0")) + 1]
