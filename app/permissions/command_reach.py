"""Does a rule that forbids, or asks, reach a shell command?

Every simple command counts, wherever it stands and whatever runs it. Where only the shell knows a
word, a program or a script, the answer is "maybe", and a person is asked.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from app.permissions.commands import names_files, paths_of
from app.permissions.inner_scripts import scripts_of
from app.permissions.placed_command import Folders, PlacedCommand, behind_wrappers, placed_command
from app.permissions.rules import Rule, Rules
from app.permissions.runners import base_name, inner_commands, with_input
from app.permissions.shell_script import Command, Redirect
from app.permissions.shell_words import Word

_MAX_SCRIPTS = 20
"""Scripts within scripts (`bash -c "bash -c …"`) that are looked into."""
_NEEDS_NO_PATH_RULE = frozenset({"echo", "printf", ":", "true", "false"})
_READS_FOLDER = frozenset({"ls", "du", "find"})
"""Commands that read the folder they stand in."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A rule that reaches a command, or may reach it."""

    rule: Rule
    is_certain: bool


def reaching(
    command: PlacedCommand, rules: Rules, behavior: Literal["deny", "ask"]
) -> Reach | None:
    """Give the rule that reaches the command: one that certainly does comes first."""
    maybe: Reach | None = None
    for reach in _Reaching(command, rules, behavior).reaches():
        if reach.is_certain:
            return reach
        maybe = maybe or reach
    return maybe


@dataclass(slots=True)
class _Reaching:
    command: PlacedCommand
    rules: Rules
    behavior: Literal["deny", "ask"]
    is_opaque: bool = False
    """Whether a script runs of which nothing is known."""

    def reaches(self) -> Iterator[Reach]:
        for_commands = self.rules.commands(self.behavior)
        reading = self.rules.paths(self.behavior, ["Read"])
        editing = self.rules.paths(self.behavior, ["Edit"])
        if not (for_commands or reading or editing):
            return
        if rule := self.rules.command(self.behavior, self.command.text.strip()):
            yield Reach(rule, is_certain=True)
        for part in self._parts():
            for command, folders in part.commands:
                if for_commands:
                    yield from self._command_reaches(command, for_commands)
                if reading or editing:
                    yield from self._path_reaches(command, folders, [*reading, *editing])
                    yield from self._redirect_reaches(command.redirects, folders, reading, editing)
            outer = part.script.redirects
            yield from self._redirect_reaches(outer, part.anywhere, reading, editing)
        if self.is_opaque:
            yield Reach([*for_commands, *reading, *editing][0], is_certain=False)

    def _parts(self) -> Iterator[PlacedCommand]:
        """Give the command, and the scripts that it hands to a shell, as deep as they stand."""
        waiting, scripts = [self.command], 0
        while waiting:
            part = waiting.pop(0)
            self.is_opaque = self.is_opaque or part.script.is_broken
            yield part
            for command, folders in part.commands:
                for script in scripts_of(command):
                    scripts += 1
                    if script.text is None or scripts > _MAX_SCRIPTS:
                        self.is_opaque = True
                    else:
                        waiting.append(placed_command(script.text, self.command.place, folders))

    def _command_reaches(self, command: Command, rules: Sequence[Rule]) -> Iterator[Reach]:
        for text in {command.source, behind_wrappers(command)[1]}:
            if text and (rule := self.rules.command(self.behavior, text)):
                yield Reach(rule, is_certain=True)
        for words in inner_commands(with_input(command.words)):
            for text, is_whole in _forms(words):
                if rule := self.rules.command(self.behavior, text):
                    yield Reach(rule, is_certain=True)
                elif not is_whole:
                    for rule in rules:
                        if rule.command and rule.command.may_match(text):
                            yield Reach(rule, is_certain=False)
                            break

    def _path_reaches(
        self, command: Command, folders: Folders, rules: Sequence[Rule]
    ) -> Iterator[Reach]:
        for inner in inner_commands(command.words):
            name = base_name(inner[0]) if inner else ""
            if name is None:
                yield Reach(rules[0], is_certain=False)
            if not name or name in _NEEDS_NO_PATH_RULE:
                continue
            words = [Word(name, name), *inner[1:]]
            paths = paths_of(words)
            if not names_files(words):
                paths = [word for word in paths if re.search(r"[./]", word.text or "")]
            elif any(word.text is None for word in paths):
                yield Reach(rules[0], is_certain=False)
            if not paths and name in _READS_FOLDER:
                paths = [Word(".", ".")]
            for word in paths:
                yield from self._word_reaches(word, folders, rules)

    def _word_reaches(self, word: Word, folders: Folders, rules: Sequence[Rule]) -> Iterator[Reach]:
        if not rules or not word.text or len(word.text) > 4096:
            return
        if folders is None and not word.text.startswith("/"):
            yield Reach(rules[0], is_certain=False)
        for folder in folders or {self.command.place.root}:
            forms = self.command.place.forms(word.text, folder)
            for rule in rules:
                if rule.path is None:
                    continue
                if any(rule.path.touches(form) for form in forms):
                    yield Reach(rule, is_certain=True)
                elif word.has_glob and any(rule.path.may_touch(form) for form in forms):
                    yield Reach(rule, is_certain=False)

    def _redirect_reaches(
        self,
        redirects: Iterable[Redirect],
        folders: Folders,
        reading: Sequence[Rule],
        editing: Sequence[Rule],
    ) -> Iterator[Reach]:
        for redirect in redirects:
            rules = editing if redirect.writes else reading
            if redirect.target.text is None and rules:
                yield Reach(rules[0], is_certain=False)
            yield from self._word_reaches(redirect.target, folders, rules)


def _forms(words: Sequence[Word]) -> Iterator[tuple[str, bool]]:
    """Give the text of a command, and whether it is all of it; also under its program's bare name."""
    texts: list[str] = []
    for word in words:
        if word.text is None or word.has_glob:
            start = word.start if word.text is None else ""
            yield from _named(" ".join([*texts, start]), is_whole=False)
            break
        texts.append(word.text)
    else:
        yield from _named(" ".join(texts), is_whole=True)
        return
    if all(word.text is not None for word in words):
        yield from _named(" ".join(word.text or "" for word in words), is_whole=False)


def _named(text: str, *, is_whole: bool) -> Iterator[tuple[str, bool]]:
    yield text, is_whole
    first, blank, rest = text.partition(" ")
    if "/" in first:
        yield first.rpartition("/")[2] + blank + rest, is_whole
