"""Command hooks: programs that the operator's settings name, run in the session's sandbox.

A command gets the event as JSON on its standard input. Exit status 0: what it prints is its output,
as JSON if it begins with a brace; plain text is told to the model at the start of a session and with
a prompt. Status 2: it objects, and says why on stderr. Any other status is a failure that changes
nothing. One whose first line is `{"async": true}` has been heard, and runs on. Files of a
workspace never name commands.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.domain.hooks import EVENTS, HookEvent
from app.domain.text import printable_value
from app.errors import ConfigError, ToolFailed, WorkspaceUnavailable
from app.hooks.detached import Detached
from app.hooks.hook import DEFAULT_TIMEOUT_S, LONGEST_TIMEOUT_S, Asked, Hook, HookFailed, Reply
from app.hooks.matching import matcher_of
from app.sandbox.driver import Command, Finished, Limits, Sandbox

_OBJECTS = 2
_KEPT_BYTES = 1_000_000
_TELL_PLAIN_TEXT = frozenset({"SessionStart", "UserPromptSubmit"})
_OBJECTION: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "PreToolUse": lambda why: _specific(
        "PreToolUse", permissionDecision="deny", permissionDecisionReason=why
    ),
    "PermissionRequest": lambda why: _specific(
        "PermissionRequest", decision={"behavior": "deny", "message": why}
    ),
}


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Command(_Model):
    type: Literal["command"]
    command: Annotated[str, Field(min_length=1, max_length=10_000)]
    timeout: Annotated[float, Field(gt=0, le=LONGEST_TIMEOUT_S)] = DEFAULT_TIMEOUT_S
    async_: Annotated[bool, Field(alias="async")] = False


class _Async(_Model):
    async_: Annotated[bool, Field(alias="async", strict=True)]
    asyncTimeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = LONGEST_TIMEOUT_S * 1000  # noqa: N815 - the wire's name


class _Group(_Model):
    matcher: str | None = None
    hooks: list[_Command]


class _File(_Model):
    hooks: dict[str, list[_Group]] = {}


@dataclass(frozen=True, slots=True)
class CommandHook:
    """A command of the operator's."""

    event: str
    matcher: str | None
    command: str
    timeout_s: float
    is_async: bool = False
    """Whether nobody waits for its answer."""


@dataclass(frozen=True, slots=True)
class Shell:
    """Where a run's command hooks run."""

    sandbox: Sandbox
    root: str
    """The session's directory, in the agent's view."""
    prepare: Callable[[], Awaitable[None]]
    """Makes the session's folders, once. Raises `WorkspaceUnavailable`."""


def read_commands(text: bytes, source: str) -> tuple[CommandHook, ...]:
    """Read a settings file in the SDK's form; all but `hooks` is left alone.

    Raises `ConfigError`, which names the place.
    """
    try:
        given = _File.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{source}: {where}: {first['msg']}") from None
    found = []
    for event, groups in given.hooks.items():
        if event not in EVENTS:
            raise ConfigError(f"{source}: hooks.{event}: there is no such event.")
        for group in groups:
            try:
                matcher_of(group.matcher)
            except ValueError as error:
                raise ConfigError(f"{source}: hooks.{event}: {error}.") from None
            found += [
                CommandHook(event, group.matcher, each.command, each.timeout, each.async_)
                for each in group.hooks
            ]
    return tuple(found)


def command_hook(given: CommandHook, shell: Shell, detached: Detached) -> Hook:
    """Make the hook, bound to a session. `detached` owns what runs on."""

    async def ask(asked: Asked) -> Reply:
        told = orjson.dumps(printable_value(asked.input))
        try:
            await shell.prepare()
            command = shell.sandbox.start(
                ["sh", "-c", _script(given.command, shell.root)],
                cwd=shell.root,
                limits=Limits(wall_s=LONGEST_TIMEOUT_S + 5, keep_bytes=_KEPT_BYTES),
                script=told,
                merge_stderr=False,
            )
            if limit_s := given.timeout_s if given.is_async else await _runs_on_s(command):
                await detached.keep(command, limit_s)
                return Reply()
            ended = await command.finish()
        except (ToolFailed, WorkspaceUnavailable) as error:
            raise HookFailed(str(error)) from None
        return _reply(given, ended, asked.event)

    return Hook(
        name=f"[{given.command}]",
        event=given.event,
        matches=matcher_of(given.matcher),
        ask=ask,
        timeout_s=given.timeout_s,
        is_always_told=True,
    )


async def _runs_on_s(command: Command) -> float | None:
    """Wait until a command says that it runs on, or ends; give for how long it may, if it does."""
    pause_s = 0.02
    try:
        while not await command.ended(pause_s):
            line, newline, _ = command.printed().output.partition(b"\n")
            if (limit_s := _async_limit_s(line)) is not None:
                return limit_s
            # Only the first line says so: what comes later need not be looked at.
            pause_s = LONGEST_TIMEOUT_S if newline else min(2 * pause_s, 0.5)
    except BaseException:
        with suppress(ToolFailed):
            await command.finish(timed_out=True)
        raise
    return None


def _async_limit_s(line: bytes) -> float | None:
    """Read `{"async": true, "asyncTimeout": ms}`; None for any other line."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        said = _Async.model_validate_json(line)
    except ValidationError:
        return None
    return min(said.asyncTimeout / 1000, LONGEST_TIMEOUT_S) if said.async_ else None


def _script(command: str, root: str) -> str:
    # What is told lies in a file whose path the sandbox appends: it is `$0` of this line.
    return f'CLAUDE_PROJECT_DIR={shlex.quote(root)} exec sh -c {shlex.quote(command)} < "$0"'


def _reply(given: CommandHook, ended: Finished, event: HookEvent) -> Reply:
    stdout = ended.output.decode(errors="replace")
    stderr = ended.stderr.decode(errors="replace")
    return Reply(
        _output(given, ended.exit_code, stdout, stderr, event),
        text=stdout + stderr,
        stdout=stdout,
        stderr=stderr,
        exit_code=ended.exit_code,
    )


def _output(
    given: CommandHook, exit_code: int, stdout: str, stderr: str, event: HookEvent
) -> object:
    if exit_code == _OBJECTS:
        why = f"[{given.command}]: {stderr.strip() or 'it gave no reason'}"
        return _OBJECTION.get(event.name, _blocked)(why)
    if exit_code != 0:
        return None
    if _async_limit_s(stdout.partition("\n")[0].encode()) is not None:
        return None
    if stdout.lstrip().startswith("{"):
        try:
            return orjson.loads(stdout)
        except orjson.JSONDecodeError:
            raise HookFailed("its output begins like JSON, and is none") from None
    if event.name in _TELL_PLAIN_TEXT and stdout.strip():
        return _specific(event.name, additionalContext=stdout.strip())
    return None


def _specific(event: str, **given: object) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **given}}


def _blocked(why: str) -> dict[str, Any]:
    return {"decision": "block", "reason": why}
