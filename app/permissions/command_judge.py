"""What rules, mode and place say about a shell command.

Two questions. *Does a rule that forbids reach it?* Every simple command counts, wherever it stands
and whatever runs it; where only the shell knows a word, the answer is "maybe", and a person is
asked. *Is all of it covered?* Every part needs its own cover (it only reads, a rule, the mode), and
nothing that the first question could not see through may be left.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from app.domain.permissions import PermissionMode
from app.permissions.commands import (
    SAFE_VARIABLES,
    changes_files,
    destination,
    is_read_only,
    names_files,
    paths_of,
)
from app.permissions.place import Place, is_protected
from app.permissions.rules import Rule, Rules
from app.permissions.runners import base_name, inner_commands, script_of, unwrapped
from app.permissions.shell import Command, Redirect, Script, parse_shell
from app.permissions.shell_words import Word

_MAX_SCRIPTS = 20
"""Scripts within scripts (`bash -c "bash -c …"`) that are looked into."""
_MAX_FOLDERS = 8
"""Folders that a command may stand in, before it is unknown where."""
_HARMLESS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"})
_NEEDS_NO_PATH_RULE = frozenset({"echo", "printf", ":", "true", "false"})
_READS_FOLDER = frozenset({"ls", "du", "find"})
"""Commands that read the folder they stand in."""

Folders = frozenset[str] | None
"""Where a command may stand; None: nobody knows."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A rule that reaches a command, or may reach it."""

    rule: Rule
    is_certain: bool


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Why a command needs an approval."""

    why: str
    path: str | None = None
    is_safety: bool = False
    """Whether no rule and no mode but `bypassPermissions` can help it."""


@dataclass(slots=True)
class CommandJudge:
    """Judges one shell command. `cwd` is where the shell stands."""

    text: str
    rules: Rules
    place: Place
    cwd: str
    script: Script = field(init=False)
    _commands: list[tuple[Command, Folders]] = field(init=False)
    _is_opaque: bool = False
    """Whether a script runs of which nothing is known."""

    def __post_init__(self) -> None:
        self.script = parse_shell(self.text)
        self._is_opaque = self.script.is_broken
        self._commands = list(_placed(self.script, self.place, self.cwd))

    # -- rules that forbid, or ask ------------------------------------------------------------

    def reached(self, behavior: Literal["deny", "ask"]) -> Reach | None:
        """Give the rule that reaches the command: one that certainly does comes first."""
        maybe: Reach | None = None
        for reach in self._reaches(behavior):
            if reach.is_certain:
                return reach
            maybe = maybe or reach
        return maybe

    def _reaches(self, behavior: Literal["deny", "ask"]) -> Iterator[Reach]:
        for_commands = self.rules.commands(behavior)
        reading = self.rules.paths(behavior, ["Read"])
        editing = self.rules.paths(behavior, ["Edit"])
        if not (for_commands or reading or editing):
            return
        if rule := self.rules.command(behavior, self.text.strip()):
            yield Reach(rule, is_certain=True)
        everything = list(self._everything())
        for command, folders in everything:
            if for_commands:
                yield from self._command_reaches(behavior, command, for_commands)
            if reading or editing:
                yield from self._path_reaches(command, folders, [*reading, *editing])
                yield from self._redirect_reaches(command.redirects, folders, reading, editing)
        yield from self._redirect_reaches(self.script.redirects, None, reading, editing)
        if self._is_opaque:
            yield Reach([*for_commands, *reading, *editing][0], is_certain=False)

    def _everything(self) -> Iterator[tuple[Command, Folders]]:
        """Give all commands, also those of scripts that a command hands to a shell."""
        waiting, scripts = list(self._commands), 0
        while waiting:
            command, folders = waiting.pop(0)
            yield command, folders
            for words in inner_commands(command.words):
                script = script_of(command, words)
                if script is None:
                    continue
                scripts += 1
                if script.text is None or scripts > _MAX_SCRIPTS:
                    self._is_opaque = True
                    continue
                parsed = parse_shell(script.text)
                self._is_opaque = self._is_opaque or parsed.is_broken
                waiting += [(inner, folders) for inner in parsed.commands]

    def _command_reaches(
        self, behavior: Literal["deny", "ask"], command: Command, rules: Sequence[Rule]
    ) -> Iterator[Reach]:
        for text in {command.source, _behind_wrappers(command)[1]}:
            if text and (rule := self.rules.command(behavior, text)):
                yield Reach(rule, is_certain=True)
        for words in inner_commands(command.words):
            for text, is_whole in _forms(words):
                if rule := self.rules.command(behavior, text):
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
        if not word.text or len(word.text) > 4096:
            return
        for folder in folders or {self.place.root}:
            forms = self.place.forms(word.text, folder)
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

    # -- what is covered ----------------------------------------------------------------------

    def unsafe(self) -> Uncovered | None:
        """Say what no rule and no mode but `bypassPermissions` may let through, if anything."""
        if self.script.is_broken:
            return Uncovered("the command cannot be understood", is_safety=True)
        for command, folders in self._commands:
            targets = [r.target for r in command.redirects if r.writes]
            if changes_files(command.words):
                targets += paths_of(command.words)
            for word in targets:
                for folder in folders or {self.place.root}:
                    forms = self.place.forms(word.text or "", folder)
                    if word.text and is_protected(forms):
                        why = f"{forms[0]} is a protected path"
                        return Uncovered(why, forms[0], is_safety=True)
        return None

    def uncovered(self, mode: PermissionMode) -> Uncovered | None:
        """Say what of the command needs an approval; None when all of it is covered."""
        if self.script.construct is not None:
            return Uncovered(f"it holds {self.script.construct}")
        loose = self._uncovered_redirects(self.script.redirects, frozenset({self.cwd}), mode)
        if loose is not None:
            return loose
        for command, folders in self._commands:
            found = self._uncovered_command(command, folders, mode)
            found = found or self._uncovered_redirects(command.redirects, folders, mode)
            if found is not None:
                return found
        return None

    def covering_rules(self) -> list[Rule]:
        """Give the allow rules that cover parts of the command."""
        found = [self._allowing(command) for command, _ in self._commands]
        return [rule for rule in found if rule is not None]

    def is_only_read(self, *, anywhere: bool) -> bool:
        """Say whether nothing but reading is done; `anywhere`: also outside the session."""
        if self.script.construct is not None or self.script.is_broken:
            return False
        if any(not _is_harmless(r) and r.writes for c, _ in self._commands for r in c.redirects):
            return False
        return all(
            is_read_only(command.words)
            and not self._odd_variable(command)
            and (anywhere or self._outside(command, folders, writes=False) is None)
            for command, folders in self._commands
        )

    def _uncovered_command(
        self, command: Command, folders: Folders, mode: PermissionMode
    ) -> Uncovered | None:
        if (name := self._odd_variable(command)) is not None:
            return Uncovered(f"it sets the variable {name}")
        if not command.words:
            return None
        reads, changes = is_read_only(command.words), changes_files(command.words)
        outside = self._outside(command, folders, writes=changes) if reads or changes else None
        if outside is not None:
            return outside
        if reads or (changes and mode in ("acceptEdits", "auto")) or self._allowing(command):
            return None
        inner = unwrapped(command.words)[0]
        return Uncovered(
            f"no rule covers {_shown(command.source)}", self._first_path(inner, folders)
        )

    def _allowing(self, command: Command) -> Rule | None:
        adds_words, text = _behind_wrappers(command)
        rule = self.rules.command("allow", text)
        if rule is None or rule.command is None or (adds_words and rule.command.is_exact):
            return None
        return rule

    def _odd_variable(self, command: Command) -> str | None:
        for name, value in command.assignments:
            if name not in SAFE_VARIABLES or value.text is None:
                return name
        return None

    def _outside(self, command: Command, folders: Folders, *, writes: bool) -> Uncovered | None:
        """Say which of the paths of a known command lies outside, or cannot be told."""
        words = paths_of(command.words)
        if command.name == "cd":
            target = destination(command.words, self.place.home)
            if target is None:
                return Uncovered("nobody knows where cd leads")
            words = [Word(target, target)]
        is_in = self.place.is_writable if writes else self.place.is_readable
        for word in words or [Word(".", ".")]:
            if word.text is None:
                return Uncovered(f"nobody knows what {_shown(word.source)} stands for")
            if folders is None and not word.text.startswith("/"):
                return Uncovered("nobody knows in which folder it runs")
            for folder in folders or {self.place.root}:
                forms = self.place.forms(word.text, folder)
                if not is_in(forms):
                    why = f"{forms[0]} is outside of where the session works"
                    return Uncovered(why, forms[0])
        return None

    def _uncovered_redirects(
        self, redirects: Iterable[Redirect], folders: Folders, mode: PermissionMode
    ) -> Uncovered | None:
        for redirect in redirects:
            if _is_harmless(redirect):
                continue
            word = redirect.target
            if word.text is None or word.has_glob or folders is None:
                return Uncovered(f"nobody knows what {_shown(word.source)} stands for")
            for folder in folders:
                forms = self.place.forms(word.text, folder)
                if not self._is_redirect_covered(redirect, forms, mode):
                    verb = "writes to" if redirect.writes else "reads"
                    return Uncovered(f"it {verb} {forms[0]}", forms[0])
        return None

    def _is_redirect_covered(
        self, redirect: Redirect, forms: Sequence[str], mode: PermissionMode
    ) -> bool:
        if not redirect.writes:
            return self.place.is_readable(forms) or self._has_path_rule(forms, "Read")
        if mode in ("acceptEdits", "auto") and self.place.is_writable(forms):
            return True
        return self._has_path_rule(forms, "Edit")

    def _has_path_rule(self, forms: Sequence[str], tool: str) -> bool:
        return any(
            all(rule.path.matches(form) for form in forms)
            for rule in self.rules.paths("allow", [tool])
            if rule.path is not None
        )

    def _first_path(self, words: Sequence[Word], folders: Folders) -> str | None:
        if not folders or not changes_files(words):
            return None
        texts = [word.text for word in paths_of(words) if word.text]
        return self.place.absolute(texts[0], min(folders)) if texts else None


def _placed(script: Script, place: Place, cwd: str) -> Iterator[tuple[Command, Folders]]:
    """Give each command with the folders that it may stand in: `cd` may have worked or failed."""
    folders: Folders = frozenset({cwd})
    for command in script.commands:
        yield command, folders
        words = unwrapped(command.words)[0]
        name = words[0].text if words else ""
        if name in ("pushd", "popd", "eval", "source", ".") or name is None:
            folders = None
        if name in ("cd", "builtin", "command") and folders is not None:
            target = destination(words, place.home) if name == "cd" else None
            if target is None or len(folders) > _MAX_FOLDERS:
                folders = None
            else:
                folders |= {place.absolute(target, folder) for folder in folders}


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


def _behind_wrappers(command: Command) -> tuple[bool, str]:
    """Give a command's text, as it is written, behind what a rule reaches through."""
    words, adds_words = unwrapped(command.words)
    text = command.source
    for word in command.words[: len(command.words) - len(words)]:
        text = text.removeprefix(word.source).lstrip()
    return adds_words, text


def _is_harmless(redirect: Redirect) -> bool:
    return redirect.target.text in _HARMLESS


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}…"
