"""Is all of a shell command covered: does each part only read, or has it a rule, or the mode?

Every part needs its own cover, and nothing may be left that a rule that forbids could not see
through.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.domain.permissions import PermissionMode
from app.permissions.commands import (
    SAFE_VARIABLES,
    changes_files,
    destination,
    is_read_only,
    paths_of,
    removed_by,
)
from app.permissions.place import is_protected, may_be_protected
from app.permissions.placed_command import Folders, PlacedCommand, behind_wrappers
from app.permissions.rules import Rule, Rules
from app.permissions.runners import unwrapped
from app.permissions.shell_script import Command, Redirect
from app.permissions.shell_words import Word

_HARMLESS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"})


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Why a command needs an approval."""

    why: str
    path: str | None = None
    is_safety: bool = False
    """Whether no rule and no mode but `bypassPermissions` can help it."""


@dataclass(frozen=True, slots=True)
class CommandCover:
    """What of one command is covered by rules, mode and place."""

    command: PlacedCommand
    rules: Rules

    def unsafe(self) -> Uncovered | None:
        """Say what no rule and no mode but `bypassPermissions` may let through, if anything."""
        if self.command.script.is_broken:
            return Uncovered("the command cannot be understood", is_safety=True)
        for word, folders in self._written():
            for folder in folders or {self.command.place.root}:
                forms = self.command.place.forms(word.text or "", folder)
                is_hidden = word.has_glob and may_be_protected(word.text or "")
                if word.text and (is_hidden or is_protected(forms)):
                    why = f"{forms[0]} is a protected path"
                    return Uncovered(why, forms[0], is_safety=True)
        return None

    def _written(self) -> Iterator[tuple[Word, Folders]]:
        """Give what is written to, and where that may be."""
        for redirect in self.command.script.redirects:
            if redirect.writes:
                yield redirect.target, self.command.anywhere
        for command, folders in self.command.commands:
            targets = [redirect.target for redirect in command.redirects if redirect.writes]
            if changes_files(command.words):
                targets += paths_of(command.words)
            yield from ((word, folders) for word in targets)

    def uncovered(self, mode: PermissionMode) -> Uncovered | None:
        """Say what of the command needs an approval; None when all of it is covered."""
        if self.command.script.construct is not None:
            return Uncovered(f"it holds {self.command.script.construct}")
        loose = self._uncovered_redirects(
            self.command.script.redirects, self.command.anywhere, mode
        )
        if loose is not None:
            return loose
        for command, folders in self.command.commands:
            found = self._uncovered_command(command, folders, mode)
            found = found or self._uncovered_redirects(command.redirects, folders, mode)
            if found is not None:
                return found
        return None

    def covering_rules(self) -> list[Rule]:
        """Give the allow rules that cover parts of the command."""
        found = [self._allowing(command) for command, _ in self.command.commands]
        return [rule for rule in found if rule is not None]

    def is_only_read(self, *, anywhere: bool) -> bool:
        """Say whether nothing but reading is done; `anywhere`: also outside the session."""
        if self.command.script.construct is not None or self.command.script.is_broken:
            return False
        redirects = [r for command, _ in self.command.commands for r in command.redirects]
        redirects += self.command.script.redirects
        if any(r.writes and not _is_harmless(r) for r in redirects):
            return False
        return all(
            is_read_only(command.words)
            and not self._odd_variable(command)
            and (anywhere or self._outside(command, folders, writes=False) is None)
            for command, folders in self.command.commands
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
        adds_words, text = behind_wrappers(command)
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
            target = destination(command.words, self.command.place.home)
            if target is None:
                return Uncovered("nobody knows where cd leads")
            words = [Word(target, target)]
        is_in = self.command.place.is_writable if writes else self.command.place.is_readable
        removed = removed_by(command.words)
        for word in words or [Word(".", ".")]:
            if word.text is None:
                return Uncovered(f"nobody knows what {_shown(word.source)} stands for")
            if folders is None and not word.text.startswith("/"):
                return Uncovered("nobody knows in which folder it runs")
            for folder in folders or {self.command.place.root}:
                forms = self.command.place.forms(word.text, folder)
                if not is_in(forms):
                    why = f"{forms[0]} is outside of where the session works"
                    return Uncovered(why, forms[0])
                if word in removed and self.command.place.is_own_folder(forms):
                    return Uncovered(f"it removes {forms[0]}, where the session works", forms[0])
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
                forms = self.command.place.forms(word.text, folder)
                if not self._is_redirect_covered(redirect, forms, mode):
                    verb = "writes to" if redirect.writes else "reads"
                    return Uncovered(f"it {verb} {forms[0]}", forms[0])
        return None

    def _is_redirect_covered(
        self, redirect: Redirect, forms: Sequence[str], mode: PermissionMode
    ) -> bool:
        if not redirect.writes:
            return self.command.place.is_readable(forms) or self._has_path_rule(forms, "Read")
        if mode in ("acceptEdits", "auto") and self.command.place.is_writable(forms):
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
        return self.command.place.absolute(texts[0], min(folders)) if texts else None


def _is_harmless(redirect: Redirect) -> bool:
    return redirect.target.text in _HARMLESS


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}…"
