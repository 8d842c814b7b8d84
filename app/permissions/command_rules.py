"""Patterns of rules for commands: `npm test` exactly, `npm:*` or `npm *` as a prefix, inner stars."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

_BLANKS = re.compile(r"[ \t\n]+")


@dataclass(frozen=True)
class CommandPattern:
    """One pattern. A star stands for any text; as the last word it may stand for nothing."""

    text: str

    @cached_property
    def _pieces(self) -> Sequence[str]:
        return [one_blank(piece) for piece in self._body.split("*")]

    @cached_property
    def _start(self) -> str | None:
        """How commands begin of a prefix without inner stars, with the blank before what follows."""
        return f"{self._pieces[0]} " if self.is_prefix and len(self._pieces) == 1 else None

    @cached_property
    def _body(self) -> str:
        for end in (":*", " *"):
            if self.text.endswith(end) and len(self.text) > len(end):
                return self.text[: -len(end)].rstrip()
        return self.text

    @cached_property
    def is_prefix(self) -> bool:
        """Whether words may follow."""
        return self._body != self.text

    @cached_property
    def first_word(self) -> str | None:
        """The word that a command must begin with; None when a star stands in it."""
        first = one_blank(self.text if self.is_exact else self._pieces[0])
        word, blank, _ = first.partition(" ")
        is_whole = bool(blank) or self.is_exact or len(self._pieces) == 1
        return word if is_whole and word else None

    @property
    def is_exact(self) -> bool:
        return not self.is_prefix and "*" not in self.text

    def matches(self, command: str) -> bool:
        """Match a command's text. Blanks count as written where nothing may follow."""
        if self.is_exact:
            return command == self.text
        plain = one_blank(command)
        if self._start is not None:
            return plain.startswith(self._start) or plain == self._start[:-1]
        if _covers(self._pieces, plain):
            return True
        if not self.is_prefix:
            return False
        last = self._pieces[-1]
        return _covers([*self._pieces[:-1], f"{last} ", ""], plain)

    def may_match(self, start: str) -> bool:
        """Say whether a command that begins like that may turn out to match."""
        first, plain = self._pieces[0], one_blank(start)
        return first.startswith(plain) or plain.startswith(first)


def one_blank(text: str) -> str:
    """Put one blank in the place of several."""
    if "  " in text or "\t" in text or "\n" in text:
        return _BLANKS.sub(" ", text)
    return text


def _covers(pieces: Sequence[str], text: str) -> bool:
    """Match pieces with any text between them: first at the start, last at the end."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *middle, last = pieces
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
