"""Where a session's workspace comes from: an empty folder of ours, or one of the host's."""

import os
import stat
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.errors import ValidationFailed


@dataclass(frozen=True, slots=True)
class WorkspaceSource:
    """What a client asked for."""

    source: Literal["empty", "directory"] = "empty"
    path: str | None = None
    """Host folder of a `directory` workspace."""
    key: str | None = None
    """The client's name for the place, shared by the sessions that belong to it."""


@dataclass(frozen=True, slots=True)
class WorkspaceRules:
    """What the operator allows."""

    allowed_roots: Sequence[Path]
    allow_root_owned: bool

    def missing_roots(self) -> Sequence[Path]:
        """Give the allowed roots that lead to no folder here: nothing can lie beneath them."""
        # Path.is_dir raises where the way there may not be walked.
        return [root for root in self.allowed_roots if not os.path.isdir(root)]  # noqa: PTH112

    def place(self, wanted: WorkspaceSource) -> Mapping[str, Any]:
        """Give the stored form of a new session's workspace. Raises `ValidationFailed`.

        `token` names the session's private folder on every host; it tells nothing.
        """
        placed = {"source": wanted.source, "token": uuid.uuid4().hex}
        if wanted.source == "directory":
            placed["path"] = str(self.allowed(wanted.path or ""))
        return placed if wanted.key is None else {**placed, "key": wanted.key}

    def allowed(self, path: str) -> Path:
        """Give the real folder behind `path` when it may be worked in. Raises `ValidationFailed`."""
        if not path.startswith("/"):
            raise _refused("an absolute path is needed")
        try:
            folder = os.path.realpath(path, strict=True)
            status = os.stat(folder)  # noqa: PTH116 - paths are dear, and each run does this
        except (OSError, ValueError):
            raise _refused(_NOT_BENEATH) from None
        # A real path that begins with a root shows that no link is in this one: nearly always so.
        if not any(_is_beneath(folder, os.fspath(root)) for root in self.allowed_roots) and not any(
            _is_beneath(folder, os.path.realpath(root)) for root in self.allowed_roots
        ):
            raise _refused(_NOT_BENEATH)
        if not stat.S_ISDIR(status.st_mode):
            raise _refused("it is not a folder")
        if status.st_uid == 0 and os.geteuid() == 0 and not self.allow_root_owned:
            raise _refused(
                "it belongs to root; the operator can allow that "
                "(TREADLE_WORKSPACE__ALLOW_ROOT_OWNED)"
            )
        return Path(folder)


def workspace_key(placed: Mapping[str, Any]) -> str | None:
    """Give what tells that sessions belong to one place: the client's name for it, or the folder."""
    key: str | None = placed.get("key", placed.get("path"))
    return key


def _is_beneath(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(root.rstrip("/") + "/")


_NOT_BENEATH = (
    "there is no such folder beneath an allowed root; the operator lists the roots "
    "(TREADLE_WORKSPACE__ALLOWED_ROOTS)"
)
"""Said of what is not there, and of what lies elsewhere: no client learns which."""


def _refused(why: str) -> ValidationFailed:
    return ValidationFailed(
        f"The workspace folder cannot be used: {why}.",
        errors=[{"pointer": "/workspace/path", "code": "not_allowed", "message": why}],
    )
