"""Where sessions work on this host, and as whom."""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from app.domain.skills import UploadedSkill
from app.errors import ConfigError, ValidationFailed, WorkspaceUnavailable
from app.runs.workspaces import WorkspaceRules
from app.sandbox.bubblewrap import BubblewrapSandbox
from app.sandbox.dirs import check_enterable, make_session_dirs, session_dirs
from app.sandbox.driver import Sandbox, SessionDirs
from app.sandbox.programs import Programs
from app.sandbox.unsandboxed import Unsandboxed
from app.tools.bundle_folders import BundleFolders
from app.tools.workspace import Workspace

log = logging.getLogger(__name__)

Placed = Mapping[str, Any]
"""What is stored of a session's workspace (`WorkspaceRules.place`)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one session works, and as whom."""

    dirs: SessionDirs
    uid: int | None
    gid: int | None


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of all sessions of this host."""

    sessions_dir: Path
    programs: Programs
    rules: WorkspaceRules
    sandbox: Literal["bubblewrap", "none"]
    sandbox_uid: int
    bundles: BundleFolders
    """What tenants uploaded."""

    def root(self, placed: Placed) -> str:
        """Give the workspace's path in the agent's view."""
        if self.sandbox == "bubblewrap":
            return "/workspace"
        return str(placed.get("path") or self.sessions_dir / placed["token"] / "ws")

    def skill_folder(self, skill: UploadedSkill) -> str:
        """Give the path of a tenant's skill in the agent's view."""
        if self.sandbox == "bubblewrap":
            return f"/skills/{skill.note.name}"
        return str(self.bundles.path(skill.sha256).resolve())

    def place(self, placed: Placed, skills: Iterable[UploadedSkill] = ()) -> Place:
        """Look where a session works, and what of skills it sees. Raises `WorkspaceUnavailable`."""
        place = self._place(placed)
        seen = {self.skill_folder(each): self.bundles.path(each.sha256) for each in skills}
        if not seen:
            return place
        return replace(place, dirs=replace(place.dirs, readable=seen))

    def _place(self, placed: Placed) -> Place:
        uid = self.sandbox_uid if os.geteuid() == 0 and self.sandbox == "bubblewrap" else None
        dirs = session_dirs(self.sessions_dir, placed["token"])
        if (path := placed.get("path")) is None:
            return Place(dirs, uid, uid)
        try:
            folder = self.rules.allowed(path)
            owner = os.stat(folder)  # noqa: PTH116 - each run does this
            if uid is None:
                return Place(SessionDirs(folder, dirs.tmp, dirs.home), None, None)
            uid, gid = owner.st_uid or uid, owner.st_gid or uid
            check_enterable(str(folder), uid=uid)
        except (ValidationFailed, ConfigError, OSError) as error:
            raise _unavailable(error) from None
        return Place(SessionDirs(folder, dirs.tmp, dirs.home), uid, gid)

    def prepare(self, placed: Placed, place: Place) -> None:
        """Make a session's folders. Blocking. Raises `WorkspaceUnavailable`."""
        try:
            make_session_dirs(self.sessions_dir, placed["token"], uid=place.uid)
        except OSError as error:
            raise _unavailable(error) from None

    def workspace(self, place: Place) -> Workspace:
        """Give a session's files; the caller closes them."""
        make = Workspace.sandboxed if self.sandbox == "bubblewrap" else Workspace.bare
        return make(place.dirs, uid=place.uid, gid=place.gid)

    def own(self, placed: Placed) -> Workspace:
        """Give the folders that are a session's alone, for reading on any host; the caller closes them.

        Its /tmp and home, that is, wherever it works. Raises `OSError` where there are none.
        """
        dirs = session_dirs(self.sessions_dir, placed["token"])
        owner = dirs.tmp.stat()
        is_root = os.geteuid() == 0
        return self.workspace(
            Place(dirs, owner.st_uid if is_root else None, owner.st_gid if is_root else None)
        )

    def commands(self, place: Place) -> Sandbox:
        """Give where a session's commands run."""
        if self.sandbox == "bubblewrap":
            return BubblewrapSandbox(place.dirs, self.programs, place.uid, place.gid)
        return Unsandboxed(place.dirs, self.programs, place.uid, place.gid)


def _unavailable(error: Exception) -> WorkspaceUnavailable:
    log.warning("The workspace cannot be opened: %s", error)
    return WorkspaceUnavailable("The session's workspace is not available here.")
