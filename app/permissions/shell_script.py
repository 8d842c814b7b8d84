"""A shell command, taken apart: what rules look at."""

from dataclasses import dataclass

from app.permissions.shell_words import Word


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection to or from a file."""

    operator: str
    target: Word

    @property
    def writes(self) -> bool:
        return self.operator != "<"


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: assignments, words, redirections."""

    words: tuple[Word, ...]
    source: str
    """The words as they are written, blanks between included."""
    assignments: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    reads_stdin: bool = False
    """Whether something is piped or written into it."""

    @property
    def name(self) -> str | None:
        """What is run, as the shell knows it; None when only the shell does."""
        return self.words[0].text if self.words else None


@dataclass(frozen=True, slots=True)
class Script:
    """All simple commands of a shell command, wherever they stand, in their order."""

    commands: tuple[Command, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    """Of statements that are no simple command."""
    construct: str | None = None
    """The first construct that no rule for a command reaches into, in words."""
    is_broken: bool = False
    """Whether the text is not understood; the commands are then those that were."""
