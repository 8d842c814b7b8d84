"""Kinds of subagents that a workspace describes: `.claude/agents/NAME.md`.

The files are a stranger's: opened beneath the workspace, bounded in size and number. What they say
of tools and modes can only take away from what the run has. Spec: tools 14.
"""

import posixpath
import re
import time
from typing import get_args

from pydantic import ValidationError

from app.domain.agents import TOOL_NAME, AgentDefinition
from app.domain.permissions import PermissionMode
from app.domain.text import printable
from app.domain.thinking import EFFORTS
from app.errors import ToolFailed
from app.tools.encoding import decode
from app.tools.frontmatter import Document, read_document
from app.tools.workspace import Workspace

MAX_FILE_BYTES = 64 * 1024
MAX_FILES = 50
MAX_CPU_S = 0.25
"""Processor time after which no more are read: YAML can be made to take much of it."""
_FOLDER = ".claude/agents"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
_TOOL = re.compile(TOOL_NAME)
_TURNS = re.compile(r"[1-9]\d{0,5}")


def read_agents(workspace: Workspace) -> dict[str, AgentDefinition]:
    """Give the kinds that a workspace describes, by name.

    Never raises: a file that makes no sense is left out.
    """
    folder = posixpath.join(workspace.root, _FOLDER)
    names = sorted(name for name in workspace.names(folder) if name.endswith(".md"))
    found: dict[str, AgentDefinition] = {}
    ends_at = time.thread_time() + MAX_CPU_S
    for name in names[:MAX_FILES]:
        if time.thread_time() > ends_at:
            break
        document = _document(workspace, posixpath.join(folder, name))
        kind = document and _definition(document)
        if document and kind and (called := document.text("name")):
            found.setdefault(called, kind)
    return found


def _definition(document: Document) -> AgentDefinition | None:
    name, description = document.text("name"), document.text("description")
    if not name or not _NAME.fullmatch(name) or not description or not document.body.strip():
        return None
    turns, effort = document.text("maxTurns") or "", document.text("effort")
    mode, has_servers = document.text("permissionMode"), "mcpServers" in document.fields
    try:
        return AgentDefinition.model_validate(
            {
                "description": description[:4000],
                "prompt": document.body.strip(),
                "tools": _tools(document) if "tools" in document.fields else None,
                "disallowed_tools": _disallowed(document),
                "model": document.text("model"),
                "effort": effort if effort in EFFORTS else None,
                "max_turns": int(turns) if _TURNS.fullmatch(turns) else None,
                "skills": [name for name in document.names("skills") if _NAME.fullmatch(name)],
                "mcp_servers": document.names("mcpServers") if has_servers else None,
                "background": document.flag("background"),
                "permission_mode": mode if mode in get_args(PermissionMode) else None,
            }
        )
    except ValidationError:
        return None


def _tools(document: Document) -> list[str] | None:
    """Give the tools that a file names; None for all of them.

    A rule for a part of a tool, such as `Bash(git *)`, gives nothing: the whole would be more.
    """
    names = document.names("tools")
    if names == ("*",):
        return None
    return [name for name in names if _TOOL.fullmatch(name)]


def _disallowed(document: Document) -> list[str]:
    """Give the tools that a file takes away; one that it takes a part of goes whole."""
    names = (name.partition("(")[0].strip() for name in document.names("disallowedTools"))
    return [name for name in names if _TOOL.fullmatch(name)]


def _document(workspace: Workspace, path: str) -> Document | None:
    try:
        with workspace.open(path) as file:
            if file.size_bytes > MAX_FILE_BYTES:
                return None
            data = file.content(MAX_FILE_BYTES)
    except (OSError, ToolFailed):
        return None
    text = decode(data).text
    return None if "\0" in text else read_document(printable(text))
