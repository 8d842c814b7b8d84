"""Updates of permissions that would spare the next question of its like."""

import re

from app.domain.permissions import ModeUpdate, PermissionUpdate, RulesUpdate
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.rules import EDITING, READING, MalformedRule, host_of, parse_rule
from app.permissions.runners import runs_anything, unwrapped
from app.permissions.shell import parse_shell

_SUBCOMMANDS = frozenset(
    [
        "git",
        "npm",
        "pnpm",
        "yarn",
        "cargo",
        "go",
        "docker",
        "kubectl",
        "make",
        "pip",
        "uv",
        "poetry",
        "dotnet",
        "gradle",
        "mvn",
    ]
)
_PROGRAM = re.compile(r"[\w./+-]{1,100}", re.ASCII)
_FOLDER = re.compile(r"(/[\w.+ -]{1,100}){1,10}", re.ASCII)
"""One whose name says in a pattern what it says as a path."""
_WORD = re.compile(r"[\w-]{1,50}", re.ASCII)
_ACCEPT_EDITS = ModeUpdate(type="setMode", mode="acceptEdits")


def suggestions_for(
    call: ToolCall, spec: ToolSpec, blocked: str | None
) -> tuple[PermissionUpdate, ...]:
    """Give what a person may be offered with the question; all of it for the session alone."""
    if spec.name == "Bash":
        command = call.input.get("command")
        prefixes = _prefixes(command) if isinstance(command, str) else []
        rules = tuple(update for prefix in prefixes for update in _allow("Bash", prefix))
        return (*rules, _ACCEPT_EDITS) if blocked and rules else rules
    if spec.edits_files or spec.name in EDITING:
        return (_ACCEPT_EDITS,)
    if spec.name in READING:
        folder = (blocked or "").rpartition("/")[0]
        return _allow("Read", f"/{folder}/**") if _FOLDER.fullmatch(folder) else ()
    if spec.name == "WebFetch":
        host = host_of(call.input.get("url"))
        return _allow("WebFetch", f"domain:{host}") if host else ()
    return _allow(spec.name, None)


def _prefixes(command: str) -> list[str]:
    """Give a pattern for each command that no construct hides."""
    script = parse_shell(command)
    if script.construct or script.is_broken:
        return []
    found: list[str] = []
    for one in script.commands[:5]:
        words = unwrapped(one.words)[0]
        texts = [word.text for word in words[:2]]
        if not texts or texts[0] is None or not _PROGRAM.fullmatch(texts[0]):
            return []
        if runs_anything(texts[0]):
            return []
        second = texts[1] if len(texts) > 1 else None
        has_second = texts[0] in _SUBCOMMANDS and second and _WORD.fullmatch(second)
        pattern = f"{texts[0]} {second} *" if has_second else f"{texts[0]} *"
        if pattern not in found:
            found.append(pattern)
    return found


def _allow(tool: str, specifier: str | None) -> tuple[PermissionUpdate, ...]:
    """Give the update that adds an allow rule; none where it would be no rule."""
    try:
        value = parse_rule(tool if specifier is None else f"{tool}({specifier})")
    except MalformedRule:
        return ()
    return (RulesUpdate(type="addRules", rules=[value], behavior="allow"),)
