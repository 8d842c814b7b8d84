"""Bash: a command in the session's sandbox, in a fresh shell that starts where the last ended.

A command that still runs at its time limit is not stopped: it goes on in the background, like one
that was started there.
"""

from contextlib import suppress
from typing import Annotated

from pydantic import Field

from app.domain.tasks import BackgroundTask
from app.domain.text import unstorable
from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.sandbox.driver import Command, Limits, Spool
from app.tools.builtin.bash_output import (
    answer,
    background_answer,
    moved_answer,
    words_of_output,
)
from app.tools.builtin.bash_script import removes_the_workspace, script
from app.tools.shells import DEFAULT_LIFE_S, LONGEST_LIFE_S, new_task_id, title_of
from app.tools.stored_output import MAX_CHARS, check_stored, new_output, output_path
from app.tools.tool import ToolContext, ToolInput, tool

_DEFAULT_S = 120.0
_LONGEST_S = 600.0
_SPOOLED_AFTER_BYTES = 4 * MAX_CHARS
"""What is kept in memory holds a result's characters at four bytes each."""

DESCRIPTION = """\
Runs a command with bash in a Linux sandbox and returns what it printed, stdout and stderr together.

The session's files are in /workspace. There is no network, no terminal and no input.
Each call is a new shell: variables, functions and aliases are gone, while the directory is kept \
when the command succeeds, as long as it lies in the workspace or in /tmp. Processes left running \
end with the command. For a command that shall go on, set run_in_background; Read shows what it \
has printed, TaskStop stops it. Output past 30,000 characters is stored in a file for Read."""


class BashInput(ToolInput):
    command: str
    """The command; may have several lines."""
    timeout: Annotated[float | None, Field(allow_inf_nan=False)] = None
    """Milliseconds until the command goes on in the background: 120000 unless given, at most \
600000. With run_in_background, until it is stopped: 1800000 unless given, at most 7200000."""
    description: str | None = None
    """What the command does, in a few words, for the people who watch."""
    run_in_background: bool = False
    """Return at once; you are told when the command has ended."""
    dangerously_disable_sandbox: Annotated[bool, Field(alias="dangerouslyDisableSandbox")] = False
    """Has no effect: every command stays in the sandbox."""


@tool(
    name="Bash",
    description=DESCRIPTION,
    input_model=BashInput,
    starts_process=True,
    most_chars=None,  # an output may be in its file before it has an end
    words_of=words_of_output,
)
async def bash_tool(bash: BashInput, context: ToolContext) -> ToolResult:
    """Run the command and report it, or report where it goes on."""
    _check(bash, context)
    task = _task(bash, context)
    if bash.run_in_background:
        return await _in_background(bash, task, context)
    wait_s = _seconds(bash.timeout, _DEFAULT_S, _LONGEST_S)
    command = _start(bash, task, context, life_s=wait_s + DEFAULT_LIFE_S)
    stays = ""
    try:
        has_ended = await command.ended(wait_s)
        if not has_ended and not (stays := _why_not_on(command, context)):
            return _moved(task, command, context, wait_s)
    except BaseException:
        with suppress(ToolFailed):
            await command.finish()
        raise
    finished = await command.finish(timed_out=not has_ended)
    limit = f"The command was stopped after {wait_s:g} s, its time limit: {stays}"
    return await answer(bash.command, finished, task, context, limit)


def _check(bash: BashInput, context: ToolContext) -> None:
    flaw = unstorable(bash.command)
    if flaw is not None:
        raise ToolFailed(f"The command cannot be run: it contains {flaw}.", wrapped=True)
    if removes_the_workspace(bash.command, context):
        raise ToolFailed(
            "The command was not run: it would remove the session's own directory. Name what is "
            "to go inside it."
        )


def _task(bash: BashInput, context: ToolContext) -> BackgroundTask:
    """Describe the command as the task that it may become."""
    task_id = new_task_id()
    path = output_path(context.workspace.view.tmp, task_id)
    return BackgroundTask(task_id, title_of(bash.description or bash.command), path)


def _seconds(timeout_ms: float | None, default_s: float, longest_s: float) -> float:
    """Give the limit: 0 counts as not given, a negative one is over at once."""
    given_s = timeout_ms / 1000 if timeout_ms else default_s
    return max(min(given_s, longest_s), 0)


def _start(
    bash: BashInput, task: BackgroundTask, context: ToolContext, *, life_s: float
) -> Command:
    return context.sandbox.start(
        ["bash"],
        cwd=context.workspace.root,
        limits=Limits(wall_s=life_s, keep_bytes=2 * _SPOOLED_AFTER_BYTES),
        script=script(bash.command, context),
        merge_stderr=False,  # what is left of stderr is the script's own report
        spool=Spool(lambda: _output(task, context), _SPOOLED_AFTER_BYTES),
    )


def _output(task: BackgroundTask, context: ToolContext) -> int:
    return new_output(task.output_file, context.workspace, room_bytes=_room_bytes(context))


def _room_bytes(context: ToolContext) -> int:
    """Give what one more output needs, beside those that still grow."""
    return (1 + len(context.shells.running)) * Limits().output_bytes


async def _in_background(bash: BashInput, task: BackgroundTask, context: ToolContext) -> ToolResult:
    context.shells.check_room()
    check_stored(context.workspace, room_bytes=_room_bytes(context))  # before anything is run
    life_s = _seconds(bash.timeout, DEFAULT_LIFE_S, LONGEST_LIFE_S)
    command = _start(bash, task, context, life_s=life_s)
    try:
        command.spool_all()
    except BaseException:
        with suppress(ToolFailed):
            await command.finish()
        raise
    context.shells.adopt(task, command, life_s=life_s)
    return background_answer(task, life_s)


def _why_not_on(command: Command, context: ToolContext) -> str:
    """Say why a command at its limit cannot go on in the background; nothing when it can."""
    if not context.shells.has_room:
        return "too many commands run in the background for it to go on there."
    try:
        command.make_spool()
    except ToolFailed as refusal:
        return f"it cannot go on in the background. {refusal.message}"
    return ""


def _moved(
    task: BackgroundTask, command: Command, context: ToolContext, wait_s: float
) -> ToolResult:
    """Let a command that is at its limit go on in the background."""
    printed = command.printed()
    command.spool_all()
    context.shells.adopt(task, command, life_s=DEFAULT_LIFE_S)
    return moved_answer(printed, task, wait_s)
