"""Bash: a command in the session's sandbox, in a fresh shell that starts where the last ended."""

import posixpath
import re
import shlex
from typing import Annotated, Any

from pydantic import Field

from app.domain.text import printable, unstorable
from app.domain.tools import ToolFacts, ToolResult
from app.errors import ToolFailed
from app.sandbox.driver import Finished, Limits
from app.tools.open_file import OpenFile, use
from app.tools.seen import saw, sha256
from app.tools.shell import is_silent, meaning_of_status_1, printed_file
from app.tools.tool import ToolContext, ToolInput, tool

_DEFAULT_MS = 120_000
_LONGEST_MS = 600_000
_MAX_CHARS = 30_000
_KEEP_BYTES = 256 * 1024
"""Holds twice half of `_MAX_CHARS` at four bytes each, with room for what is trimmed."""
_HASHED_BYTES = 16 * 1024 * 1024
_TIMED_OUT = 143
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")

DESCRIPTION = """\
Runs a command with bash in a Linux sandbox and returns what it printed, stdout and stderr together.

The session's files are in /workspace. There is no network, no terminal and no input.
Each call is a new shell: variables, functions and aliases are gone, while the directory is kept \
when the command succeeds, as long as it lies in the workspace or in /tmp. Processes left running \
end with the command. Output past 30,000 characters loses its middle."""


class BashInput(ToolInput):
    command: str
    """The command; may have several lines."""
    timeout: Annotated[float | None, Field(allow_inf_nan=False)] = None
    """Milliseconds until the command is stopped: 120000 unless given, at most 600000."""
    description: str | None = None
    """What the command does, in a few words, for the people who watch."""
    run_in_background: bool = False
    """Not available: a command runs to its end before the call returns."""
    dangerously_disable_sandbox: Annotated[bool, Field(alias="dangerouslyDisableSandbox")] = False
    """Has no effect: every command stays in the sandbox."""


@tool(name="Bash", description=DESCRIPTION, input_model=BashInput, starts_process=True)
async def bash_tool(bash: BashInput, context: ToolContext) -> ToolResult:
    """Run the command and report it."""
    _check(bash)
    limits = Limits(wall_s=_wall_s(bash.timeout), keep_bytes=_KEEP_BYTES)
    finished = await context.sandbox.exec(
        ["bash"],
        cwd=context.workspace.root,
        limits=limits,
        script=_script(bash.command, context),
        merge_stderr=False,  # what is left of stderr is the script's own report
    )
    text = _shown(finished)
    meaning = meaning_of_status_1(bash.command) if finished.exit_code == 1 else None
    if finished.timed_out or finished.flooded or (finished.exit_code != 0 and meaning is None):
        return ToolResult(_failure(finished, text, limits), is_error=True)
    facts, note = await _facts(bash.command, finished, context)
    return ToolResult(
        "\n".join(part for part in (text, note) if part) or "(Bash completed with no output)",
        is_error=False,
        structured=_structured(bash.command, text, note, meaning),
        facts=facts,
    )


def _check(bash: BashInput) -> None:
    if bash.run_in_background:
        raise ToolFailed(
            "This service does not run commands in the background. Leave run_in_background out; "
            "the call returns when the command has ended.",
            wrapped=True,
        )
    flaw = unstorable(bash.command)
    if flaw is not None:
        raise ToolFailed(f"The command cannot be run: it contains {flaw}.", wrapped=True)


def _wall_s(timeout_ms: float | None) -> float:
    """Give the limit in seconds: 0 counts as not given, a negative one is over at once."""
    return max(min(timeout_ms or _DEFAULT_MS, _LONGEST_MS), 0) / 1000


def _script(command: str, context: ToolContext) -> bytes:
    """Wrap the command so that the shell's last directory comes back on its old stderr.

    All before the command stands on one line, so that line numbers in messages are right. The
    directory is only told after a status of 0; the `&&` also robs `set -e` of its effect, so
    that it cannot end the shell early.
    """
    root = context.workspace.root
    cwd = shlex.quote(context.cwd)
    lost = shlex.quote(f"(The directory {context.cwd} is gone; the command ran in {root}.)")
    return (
        "exec 3>&2 2>&1; shopt -s expand_aliases; "
        f"cd -- {cwd} 2>/dev/null || echo {lost}; "
        f"eval {shlex.quote(command)} 3>&- && "
        "{ builtin pwd -P >&3 || builtin true; } 2>/dev/null\n"
    ).encode()


async def _facts(command: str, finished: Finished, context: ToolContext) -> tuple[ToolFacts, str]:
    """Give what the session must remember, and a line where the directory was not kept."""
    cat = await _read_by_cat(command, context) if finished.exit_code == 0 else ToolFacts()
    cwd = _reported(finished)
    if cwd is None or cwd == context.cwd:
        return cat, ""
    if _is_kept(cwd, context):
        return ToolFacts(cwd, cat.files), ""
    root = context.workspace.root
    note = f"The shell's directory is {root} again; it is not kept at {printable(cwd)}."
    return ToolFacts(None if context.cwd == root else root, cat.files), note


def _reported(finished: Finished) -> str | None:
    """Give the directory in which the command ended; None if it failed or told no valid one."""
    if finished.exit_code != 0 or not finished.stderr.endswith(b"\n"):
        return None
    cwd = finished.stderr[:-1].decode(errors="surrogateescape")
    return cwd if cwd.startswith("/") and len(cwd) < 4096 and "\0" not in cwd else None


def _is_kept(cwd: str, context: ToolContext) -> bool:
    """Tell whether later calls may start there: in the workspace or /tmp, and a storable name."""
    view = context.workspace.view
    folders = [mount for mount in view.mounts if mount != view.home]
    return (
        unstorable(cwd) is None
        and posixpath.normpath(cwd) == cwd
        and any(cwd == folder or cwd.startswith(folder + "/") for folder in folders)
    )


async def _read_by_cat(command: str, context: ToolContext) -> ToolFacts:
    """Give the fact of a Read if the command was a plain `cat FILE`."""
    path = printed_file(command)
    if path is None:
        return ToolFacts()
    try:
        path = context.workspace.absolute(path, context.cwd)
        file = context.workspace.open(path)
    except (FileNotFoundError, ToolFailed):
        return ToolFacts()
    if file.size_bytes > _HASHED_BYTES:
        file.close()
        return ToolFacts()
    return saw(path, sha256(await use(file, _content)), file.version)


def _content(file: OpenFile) -> bytes:
    return file.content(_HASHED_BYTES)


def _shown(finished: Finished) -> str:
    """Give the output as text: bad bytes replaced, trimmed, without its middle if too long."""
    middle = len(finished.output) // 2 if finished.cut_bytes else len(finished.output)
    head = _BLANK_LINES.sub("", _text(finished.output[:middle]))
    tail = _text(finished.output[middle:]).rstrip()
    if not finished.cut_bytes:
        head = head.rstrip()
        if len(head) <= _MAX_CHARS:
            return head
        tail = head
    half = _MAX_CHARS // 2
    head, tail = head[:half], tail[-half:]
    missing = len(finished.output) + finished.cut_bytes - len((head + tail).encode())
    return f"{head}\n\n[… about {max(missing, 0):,} bytes of output are left out here …]\n\n{tail}"


def _text(output: bytes) -> str:
    return printable(output.decode(errors="replace"))


def _failure(finished: Finished, text: str, limits: Limits) -> str:
    lines = [f"Exit code {_TIMED_OUT if finished.timed_out else finished.exit_code}"]
    if finished.timed_out:
        lines.append(f"The command was stopped after {limits.wall_s:g} s, its time limit.")
    if finished.flooded:
        lines.append(f"The command was stopped: it printed over {limits.output_bytes:,} bytes.")
    return "\n".join([*lines, text] if text else lines)


def _structured(command: str, text: str, note: str, meaning: str | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "stdout": text,
        "stderr": note,
        "interrupted": False,
        "isImage": False,
        "noOutputExpected": is_silent(command),
    }
    if meaning is not None:
        shown["returnCodeInterpretation"] = meaning
    return shown
