"""Deny and ask rules of a project's settings files. They only take away; allow rules are not read.

The files are the agent's own, as all of a workspace is: bounded, and a rule that is none forbids more
than it may have meant, never less. Spec: loop 11.4.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from app.domain.options import SettingSource
from app.domain.text import is_too_deep, printable
from app.errors import ToolFailed
from app.permissions.rules import MalformedRule, parse_rule
from app.tools.workspace import Workspace

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 * 1024
MAX_RULES = 200
"""Of one kind in one file."""
MAX_SHOWN_CHARS = 200
_BEHAVIORS: Sequence[Literal["deny", "ask"]] = ("deny", "ask")
_FILES: Sequence[tuple[Literal["project", "local"], str]] = (
    ("project", ".claude/settings.json"),
    ("local", ".claude/settings.local.json"),
)


@dataclass(frozen=True, slots=True)
class FoundRule:
    """A rule as it stands in a file."""

    behavior: Literal["deny", "ask"]
    text: str
    source: Literal["project", "local"]
    misread: str | None = None
    """Which file and rule it is, and why it cannot be read; None for one that can."""


def project_rules(
    workspace: Workspace, sources: Collection[SettingSource] | None
) -> Iterator[FoundRule]:
    """Yield the rules, those too that are none. Never raises."""
    for source, name in _FILES:
        if sources is not None and source not in sources:
            continue
        permissions = _permissions(workspace, f"{workspace.root}/{name}")
        for behavior in _BEHAVIORS:
            for given in _listed(permissions.get(behavior)):
                text = given if isinstance(given, str) else ""
                try:
                    parse_rule(text)
                except MalformedRule as error:
                    shown = printable(str(given))[:MAX_SHOWN_CHARS]
                    why = f"the {behavior} rule {shown} in {name} cannot be read ({error})"
                    yield FoundRule(behavior, text, source, why)
                else:
                    yield FoundRule(behavior, text, source)


def misread_rules(workspace: Workspace, sources: Collection[SettingSource] | None) -> Iterator[str]:
    """Yield what a person should know of rules that cannot be read. Never raises."""
    for found in project_rules(workspace, sources):
        if found.misread is not None:
            yield f"In the project's settings, {found.misread}: more than it meant is covered."


def _permissions(workspace: Workspace, path: str) -> dict[str, Any]:
    try:
        with workspace.open(path) as file:
            if file.size_bytes > MAX_FILE_BYTES:
                log.warning("The settings file %s of a project is too long to be read", path)
                return {}
            found = orjson.loads(file.content(MAX_FILE_BYTES))
    except (FileNotFoundError, ToolFailed, OSError, orjson.JSONDecodeError):
        return {}
    if not isinstance(found, dict) or is_too_deep(found):
        return {}
    permissions = found.get("permissions")
    return permissions if isinstance(permissions, dict) else {}


def _listed(given: object) -> list[object]:
    return given[:MAX_RULES] if isinstance(given, list) else []
