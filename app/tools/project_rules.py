"""Deny and ask rules of a project's settings files. They only take away; allow rules are not read.

The files are the agent's own, as all of a workspace is: bounded, and what is not understood is left
out. Spec: loop 11.4.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

import orjson

from app.domain.options import SettingSource
from app.domain.text import is_too_deep
from app.errors import ToolFailed
from app.permissions.rules import MalformedRule, parse_rule
from app.tools.workspace import Workspace

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 * 1024
MAX_RULES = 200
"""Of one kind in one file."""
_FILES: Sequence[tuple[Literal["project", "local"], str]] = (
    ("project", ".claude/settings.json"),
    ("local", ".claude/settings.local.json"),
)
FoundRule = tuple[Literal["deny", "ask"], str, Literal["project", "local"]]


def project_rules(
    workspace: Workspace, sources: Collection[SettingSource] | None
) -> Iterator[FoundRule]:
    """Yield the rules, with their behaviour and source. Never raises."""
    for source, name in _FILES:
        if sources is not None and source not in sources:
            continue
        permissions = _permissions(workspace, f"{workspace.root}/{name}")
        for behavior in ("deny", "ask"):
            for rule in _texts(permissions.get(behavior)):
                try:
                    parse_rule(rule)
                except MalformedRule as error:
                    log.warning("A rule of a project's %s is left out: %s", name, error)
                else:
                    yield ("deny" if behavior == "deny" else "ask"), rule, source


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


def _texts(given: object) -> list[str]:
    if not isinstance(given, list):
        return []
    return [text for text in given if isinstance(text, str)][:MAX_RULES]
