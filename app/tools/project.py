"""The project in a workspace, as it describes itself: instruction files, git, the day.

Files are opened as all files of a workspace are: beneath its folder, whatever a name says. They
are hostile all the same, so their number, size and depth are bounded, and what cannot be read is
left out. Spec: loop 14.3, tools 16.
"""

import posixpath
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from app.agent.effects import Clock
from app.domain.briefing import Briefing, News
from app.domain.options import SettingSource
from app.domain.skills import CommandText
from app.domain.text import printable
from app.errors import ToolFailed, WorkspaceUnavailable
from app.tools.encoding import decode
from app.tools.git_state import git_state
from app.tools.imports import imports
from app.tools.project_rules import misread_rules
from app.tools.skills import Shelf, wording
from app.tools.workspace import Workspace

MAX_FILE_BYTES = 48 * 1024
MAX_TOTAL_CHARS = 128 * 1024
"""Of all files that a session knows: they go with each request."""
MAX_OPENS = 96
"""Files that are looked for at a time, those that are missing included."""
MAX_IMPORT_DEPTH = 5
MAX_FOLDER_DEPTH = 16
"""Folders on the way to a touched file in which instructions are looked for."""
MAX_WARNINGS = 5
_NAMES: Sequence[tuple[SettingSource, str]] = (
    ("project", "CLAUDE.md"),
    ("project", ".claude/CLAUDE.md"),
    ("local", "CLAUDE.local.md"),
)
_CUT = f"\n\n[Only the first {MAX_FILE_BYTES // 1024} KB of this file are shown.]"
_NO_ROOM = "[Not shown: the instruction files are too long together. Read it if you need it.]"


async def nothing() -> None:
    """Have nothing to prepare."""


@dataclass(slots=True)
class Project:
    """Fits `app.agent.effects.Place`. Reads in line: a few small files."""

    workspace: Workspace
    clock: Clock
    platform: str
    shelf: Shelf
    """Skills and commands."""
    sources: Collection[SettingSource] | None = None
    """None means all."""
    prepare: Callable[[], Awaitable[None]] = nothing
    """Brings the files of the tenant's skills to this host. Raises `WorkspaceUnavailable`."""
    _seen_folders: set[str] = field(default_factory=set)
    """Where nothing new is expected any more."""

    async def look(self, known: Briefing, cwd: str) -> Briefing:
        reading = _Reading(self.workspace)
        for path in self._instructions(self.workspace.root):
            reading.take(path)
        for path in known.files:
            if path in self._instructions_like(path):
                reading.take(path)
        return Briefing(
            environment(self.clock, cwd, self.platform, git_state(self.workspace)),
            reading.files,
            self.shelf.notes(),
            warnings=tuple(islice(misread_rules(self.workspace, self.sources), MAX_WARNINGS)),
        )

    async def near(self, paths: Iterable[str], known: Briefing) -> News:
        folders = [folder for path in paths for folder in self._folders_to(path)]
        if self._seen_folders.issuperset(folders):
            return News()
        reading = _Reading(self.workspace, known.files)
        for folder in folders:
            if folder not in self._seen_folders:
                self._seen_folders.add(folder)
                for instructions in self._instructions(folder):
                    reading.take(instructions)
        return News(files=reading.files)

    async def command(self, name: str) -> CommandText | None:
        if self.shelf.is_uploaded(name):
            try:
                await self.prepare()
            except WorkspaceUnavailable:
                return None
        skill = self.shelf.find(name)
        if skill is None or not skill.note.for_user:
            return None
        granted = {skill.note.name: skill.allowed_tools} if skill.allowed_tools else {}
        return CommandText(wording(skill), skill.folder, granted)

    def _instructions(self, folder: str) -> Iterator[str]:
        return (
            posixpath.join(folder, name)
            for source, name in _NAMES
            if self.sources is None or source in self.sources
        )

    def _instructions_like(self, path: str) -> Collection[str]:
        """Give the instruction files that may stand where `path` stands."""
        folder = posixpath.dirname(path)
        return {*self._instructions(folder), *self._instructions(posixpath.dirname(folder))}

    def _folders_to(self, path: str) -> Iterator[str]:
        """Yield the folders between the workspace's root and a file, outermost first.

        Nothing where all of them were seen.
        """
        folder = self.workspace.root.rstrip("/")
        root, own = f"{folder}/", path.rpartition("/")[0]
        # Behind a folder that was seen are those above it.
        if own == folder or own in self._seen_folders or not path.startswith(root):
            return
        for name in path.removeprefix(root).split("/")[:-1][:MAX_FOLDER_DEPTH]:
            folder = f"{folder}/{name}"
            yield folder


def environment(clock: Clock, cwd: str, platform: str, git: str) -> str:
    """Give the facts of a place and the day."""
    return "\n".join(
        (
            f"Working directory: {cwd}",
            f"Platform: {platform}",
            f"Date: {clock.now().date().isoformat()} (UTC)",
            f"Git: {git}",
        )
    )


class _Reading:
    """Takes in files and what they import, within the bounds."""

    def __init__(self, workspace: Workspace, known: Mapping[str, str] | None = None) -> None:
        self.files: dict[str, str] = {}
        self._workspace = workspace
        self._known = known or {}
        self._tried: set[str] = set()
        self._room = MAX_TOTAL_CHARS - sum(map(len, self._known.values()))

    def take(self, path: str, depth: int = 0) -> bool:
        """Take in a file and its imports, once; tell whether it is there."""
        if path in self._known or path in self.files:
            return True
        if path in self._tried or self._is_spent() or not self._is_inside(path):
            return False
        self._tried.add(path)
        text = self._text(path)
        if text is None:
            return False
        if len(text) > self._room:
            self.files[path] = _NO_ROOM
            return True
        self._room -= len(text)
        self.files[path] = text
        if depth < MAX_IMPORT_DEPTH:
            for meanings in imports(text):
                if self._is_spent():
                    break
                any(self._import(name, path, depth + 1) for name in meanings)
        return True

    def _is_spent(self) -> bool:
        return len(self._tried) >= MAX_OPENS

    def _is_inside(self, path: str) -> bool:
        return path.startswith(self._workspace.root.rstrip("/") + "/")

    def _import(self, name: str, importer: str, depth: int) -> bool:
        try:
            path = self._workspace.absolute(name, posixpath.dirname(importer))
        except ToolFailed:
            return False
        return self.take(path, depth)

    def _text(self, path: str) -> str | None:
        """Read a file; None for one that is missing, blank, binary or barred."""
        try:
            with self._workspace.open(path) as file:
                data = file.content(MAX_FILE_BYTES)
                is_cut = file.size_bytes > MAX_FILE_BYTES
        except (OSError, ToolFailed):
            return None
        text = decode(data).text
        if not text.strip() or "\0" in text:
            return None
        # The cut may go through a character.
        return printable(text.rstrip("\ufffd") + _CUT if is_cut else text)
