"""Where a repository stands, read from its files.

git itself is not asked: a repository's configuration names programs (monitors, filters, pagers)
that git would run, before any permission was asked for. What a branch and a commit are called is
in three small files; whether the tree is clean is not, and the model can ask by Bash.
"""

import posixpath
import re

from app.errors import ToolFailed
from app.tools.workspace import Workspace

NO_REPOSITORY = "no repository here"
_MAX_BYTES = 256 * 1024
"""Of a file that is looked into; a longer list of packed refs is not searched further."""
_BRANCH = re.compile(r"ref: refs/heads/([\w./+#@-]{1,200})")
_COMMIT = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})")
_SHOWN_DIGITS = 12


def git_state(workspace: Workspace) -> str:
    """Say it in one line, for the repository at the workspace's root. Never raises."""
    folder = _git_folder(workspace)
    head = _line(workspace, f"{folder}/HEAD") if folder else None
    if folder is None or head is None:
        return NO_REPOSITORY
    if match := _COMMIT.fullmatch(head):
        return f"no branch, at commit {match[1][:_SHOWN_DIGITS]}"
    branch = _BRANCH.fullmatch(head)
    if branch is None or ".." in branch[1] or branch[1] == ".invalid":
        return "a repository"
    commit = _commit(workspace, folder, f"refs/heads/{branch[1]}")
    at = f"at commit {commit[:_SHOWN_DIGITS]}" if commit else "without a commit"
    return f"branch {branch[1]}, {at}"


def _git_folder(workspace: Workspace) -> str | None:
    """Give the repository's folder; that of a linked work tree stands elsewhere."""
    path = posixpath.join(workspace.root, ".git")
    try:
        if workspace.is_folder(path):
            return path
        link = (_line(workspace, path) or "").removeprefix("gitdir: ")
        return workspace.absolute(link, workspace.root) if link else None
    except (OSError, ToolFailed):
        return None


def _commit(workspace: Workspace, folder: str, ref: str) -> str | None:
    common = _line(workspace, f"{folder}/commondir")
    for base in (folder, posixpath.join(folder, common)) if common else (folder,):
        if match := _COMMIT.fullmatch(_line(workspace, f"{base}/{ref}") or ""):
            return match[1]
        for line in _text(workspace, f"{base}/packed-refs").splitlines():
            if line.endswith(f" {ref}") and (match := _COMMIT.match(line)):
                return match[1]
    return None


def _line(workspace: Workspace, path: str) -> str | None:
    return next(iter(_text(workspace, path).splitlines()), None)


def _text(workspace: Workspace, path: str) -> str:
    try:
        with workspace.open(workspace.absolute(path, workspace.root)) as file:
            return file.content(_MAX_BYTES).decode(errors="replace")
    except (OSError, ToolFailed):
        return ""
