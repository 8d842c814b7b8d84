"""Skills and commands that a run may use: finding them, announcing them, loading one.

A skill is a folder `.claude/skills/NAME` with a `SKILL.md`; a command is a file
`.claude/commands/NAME.md`, one in a folder `DIR` is called `DIR:NAME`. All of it is a stranger's:
opened beneath the workspace, bounded in number and size, and unable to give permissions or to
choose a model. Skills that the tenant uploaded come before those of a workspace, which cannot take
their names; only they bring permissions. Spec: tools 15 and 16.
"""

import posixpath
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.agent.command import LOCAL_COMMANDS
from app.domain.options import SettingSource
from app.domain.skills import SkillNote
from app.domain.substitution import substituted
from app.domain.text import printable
from app.errors import ToolFailed
from app.tools.encoding import decode
from app.tools.frontmatter import IN_PARENTHESES, Document, read_document
from app.tools.workspace import Workspace

MANIFEST = "SKILL.md"
MAX_FILE_BYTES = 64 * 1024
MAX_NOTES = 100
"""Skills and commands that are announced; those beyond are loaded by name all the same."""
MAX_LOOKS = 400
"""Files and folders that are looked at to find them."""
MAX_CPU_S = 0.25
"""Processor time after which no more are looked at: YAML can be made to take much of it."""
MAX_DEPTH = 4
"""Folders below `.claude/commands`."""
MAX_DESCRIPTION_CHARS = 400
NAME = re.compile(r"\w[\w.-]{0,63}")
"""What a skill may be called."""
_RULE = re.compile(rf"(?:[^,\s(]|{IN_PARENTHESES})+")
T = TypeVar("T")
_SKILLS, _COMMANDS = ".claude/skills", ".claude/commands"


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill or a command that was read."""

    note: SkillNote
    body: str
    folder: str
    """Where its files stand, in the agent's view."""
    allowed_tools: tuple[str, ...] = ()
    """Rules that count as approved once it is loaded. Only a tenant's own skills have them."""
    is_forked: bool = False
    """Whether a subagent carries it out (`context: fork`) when a model calls it."""
    agent: str | None = None
    """Which kind of subagent, if it says."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A skill of the tenant's, and where its files stand in the agent's view."""

    note: SkillNote
    folder: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """The skills and commands that a run may use. Reads in line: a few small files."""

    workspace: Workspace
    sources: Collection[SettingSource] | None = None
    """Those of a workspace belong to `project`. None means all sources."""
    chosen: Collection[str] | None = None
    """Skills that the run's options name; None means all. Commands are not chosen."""
    is_offered: bool = True
    """Whether the model has the tool that loads them."""
    uploaded: Sequence[Uploaded] = ()
    """Those of the tenant's skills that are chosen, as they are offered. They belong to no source."""

    def notes(self) -> tuple[SkillNote, ...]:
        """Give what there is, skills first, each by name. Never raises."""
        found = {each.note.name: each.note for each in self.uploaded}
        if not self._is_open:
            return tuple(found.values())[:MAX_NOTES]
        looks = _Looks(self.workspace)
        for name in looks.names(self._path(_SKILLS)):
            if skill := self._skill(name, looks):
                found.setdefault(skill.note.name, skill.note)
        for name in self._command_names(looks):
            if command := self._command(name, looks):
                found.setdefault(command.note.name, command.note)
        return tuple(found.values())[:MAX_NOTES]

    def find(self, name: str) -> Skill | None:
        """Read a skill or a command anew, by its name or a skill's second name."""
        looks = _Looks(self.workspace)
        if own := self._named(name):
            return self._loaded(own, looks)
        if not self._is_open:
            return None
        if found := self._skill(name, looks) or self._command(name, looks):
            return found
        others = (self._skill(folder, looks) for folder in looks.names(self._path(_SKILLS)))
        return next((skill for skill in others if skill and skill.note.other_name == name), None)

    def names_of(self, name: str) -> frozenset[str]:
        """Give all names of the skill that a name means; none where it means nothing."""
        found = self._named(name) or self.find(name)
        return frozenset(filter(None, (found.note.name, found.note.other_name) if found else ()))

    def is_uploaded(self, name: str) -> bool:
        """Whether a name means a skill of the tenant's."""
        return self._named(name) is not None

    def _named(self, name: str) -> Uploaded | None:
        by_name = [each for each in self.uploaded if each.note.name == name]
        by_other_name = [each for each in self.uploaded if each.note.other_name == name]
        return next(iter((*by_name, *by_other_name)), None)

    def _loaded(self, own: Uploaded, looks: "_Looks") -> Skill | None:
        document = looks.document(posixpath.join(own.folder, MANIFEST))
        if document is None:
            return None
        skill = _made(own.note, document, own.folder)
        return replace(skill, allowed_tools=allowed_tools(document))

    @property
    def _is_open(self) -> bool:
        return self.sources is None or "project" in self.sources

    def _path(self, *parts: str) -> str:
        return posixpath.join(self.workspace.root, *parts)

    def _skill(self, folder_name: str, looks: "_Looks") -> Skill | None:
        is_chosen = self.chosen is None or folder_name in self.chosen
        if not is_chosen or not is_free(folder_name):
            return None
        folder = self._path(_SKILLS, folder_name)
        document = looks.document(posixpath.join(folder, MANIFEST))
        if document is None:
            return None
        return _made(offered(note_of(folder_name, document), self.is_offered), document, folder)

    def _command(self, name: str, looks: "_Looks") -> Skill | None:
        parts = name.split(":")
        if len(parts) > MAX_DEPTH + 1 or not all(map(NAME.fullmatch, parts)):
            return None
        if name in LOCAL_COMMANDS:
            return None
        path = self._path(_COMMANDS, *parts) + ".md"
        document = looks.document(path)
        if document is None:
            return None
        is_for_model = self.is_offered and not document.flag("disable-model-invocation")
        note = SkillNote(name, _description(document), is_command=True, for_model=is_for_model)
        return _made(note, document, posixpath.dirname(path))

    def _command_names(self, looks: "_Looks") -> Iterator[str]:
        waiting = [""]
        while waiting:
            inside = waiting.pop(0)
            folder = self._path(_COMMANDS, *inside.split(":")) if inside else self._path(_COMMANDS)
            for entry in looks.names(folder):
                name = f"{inside}:{entry}" if inside else entry
                if entry.endswith(".md"):
                    yield name.removesuffix(".md")
                elif NAME.fullmatch(entry) and name.count(":") < MAX_DEPTH:
                    waiting.append(name)


def is_free(name: str) -> bool:
    """Whether a skill may have a name: what the service's own commands are called always means them."""
    return NAME.fullmatch(name) is not None and name not in LOCAL_COMMANDS


def offered(note: SkillNote, is_offered: bool) -> SkillNote:
    """Give a skill as it is announced where the model has, or has not, the tool that loads it."""
    return replace(note, for_model=note.for_model and is_offered)


def note_of(folder_name: str, document: Document) -> SkillNote:
    """Give what is announced of a skill, from its head."""
    other = document.text("name") or folder_name
    return SkillNote(
        folder_name,
        _description(document),
        other if is_free(other) and other != folder_name else None,
        for_model=not document.flag("disable-model-invocation"),
        for_user=document.flag("user-invocable", default=True),
    )


def allowed_tools(document: Document) -> tuple[str, ...]:
    """Give the rules that a skill brings: parted by commas or blanks outside of parentheses."""
    return tuple(rule for text in document.names("allowed-tools") for rule in _RULE.findall(text))


def manifest(data: bytes) -> Document | None:
    """Read the text of a skill; None for one that is blank or binary."""
    text = decode(data).text.rstrip("\ufffd")  # of a character that the bound has cut
    if not text.strip() or "\0" in text:
        return None
    return read_document(printable(text))


def told(skill: Skill, arguments: str) -> str:
    """Give the text as the model reads it."""
    return substituted(wording(skill), arguments, skill.folder)


def wording(skill: Skill) -> str:
    """Give the text with its places for arguments; that of a skill behind the place of its files."""
    if skill.note.is_command:
        return skill.body
    return f"Files of the skill {skill.note.name} are in ${{CLAUDE_SKILL_DIR}}\n\n{skill.body}"


def _made(note: SkillNote, document: Document, folder: str) -> Skill:
    return Skill(
        note,
        document.body.strip(),
        folder,
        is_forked=document.text("context") == "fork",
        agent=document.text("agent"),
    )


def _description(document: Document) -> str:
    """Give the head's description, else the first line of the text, as one line."""
    lines = (line.strip().lstrip("#").strip() for line in document.body.splitlines())
    text = document.text("description") or next(filter(None, lines), "")
    return " ".join(text.split())[:MAX_DESCRIPTION_CHARS]


@dataclass(slots=True)
class _Looks:
    """Reads files and folders, as many as are allowed. What cannot be read is not there."""

    workspace: Workspace
    left: int = MAX_LOOKS
    ends_at: float = field(default_factory=lambda: time.thread_time() + MAX_CPU_S)

    def names(self, folder: str) -> list[str]:
        return sorted(self._look(lambda: self.workspace.names(folder)) or ())

    def document(self, path: str) -> Document | None:
        return self._look(lambda: self._document(path))

    def _look(self, read: Callable[[], T]) -> T | None:
        if self.left <= 0 or time.thread_time() > self.ends_at:
            return None
        self.left -= 1
        try:
            return read()
        except (OSError, ToolFailed):
            return None

    def _document(self, path: str) -> Document | None:
        with self.workspace.open(path) as file:
            return manifest(file.content(MAX_FILE_BYTES))
