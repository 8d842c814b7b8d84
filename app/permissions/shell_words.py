"""Words of a shell command: what is written, and what the shell makes of it."""

import re
from dataclasses import dataclass
from itertools import pairwise

from tree_sitter import Node

_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+-]+")
"""A word that means what it says."""
_INDEX_PARTS = re.compile(r"\w\[|\]|\$\(|`")
_GLOB = re.compile(r"(?<!\\)[*?\[]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\([\\"$`])')
_QUOTES = 2


@dataclass(frozen=True, slots=True)
class Word:
    """One word."""

    source: str
    """As it is written."""
    text: str | None
    """As the shell passes it on; None when that is known only when it runs."""
    start: str = ""
    """How it begins in any case, where `text` is None."""
    has_glob: bool = False
    """Whether the shell puts names of files in its place."""

    @property
    def is_flag(self) -> bool:
        return (self.text or self.start).startswith("-")


def has_computed_index(text: str) -> bool:
    """Say whether a text holds an index that the shell computes where it takes it for a name: `a[$(rm z)]`.

    Takes time in proportion to the text.
    """
    is_open = False
    for found in _INDEX_PARTS.finditer(text):
        part = found[0]
        if part in ("$(", "`"):
            if is_open:
                return True
        else:
            is_open = part != "]"
    return False


def written(node: Node, text: str) -> str:
    """Give what a node covers of the text, of which the parser saw an ASCII likeness."""
    return text[node.start_byte : node.end_byte]


def word_of(node: Node, whole: str) -> Word:
    """Read a word. What is no word of a known kind has no text."""
    source = written(node, whole)
    if node.type == "word" and _PLAIN.fullmatch(source):
        return Word(source, source)
    parts = node.children if node.type == "concatenation" else [node]
    if any(a.end_byte != b.start_byte for a, b in pairwise(parts)):
        return Word(source, None)
    text, has_glob, bare = "", False, ""
    for part in parts:
        raw = written(part, whole)
        found = _text_of(part, raw)
        if found is None:
            return Word(source, None, start=text, has_glob=has_glob)
        if part.type in ("word", "number"):
            bare += raw
            has_glob = has_glob or bool(_GLOB.search(raw))
        else:
            bare += "\0"
        text += found
    if _has_braces(bare) or re.match(r"~[^/]", bare):
        return Word(source, None)
    return Word(source, text, has_glob=has_glob)


def _text_of(node: Node, raw: str) -> str | None:
    match node.type:
        case "word" | "number" | "command_name" | "variable_name" if not node.child_count:
            return _ESCAPED.sub(r"\1", raw)
        case "raw_string":
            return raw[1:-1]
        case "string":
            kinds = {child.type for child in node.children} - {'"', "string_content"}
            if kinds or len(raw) < _QUOTES:
                return None
            return _ESCAPED_IN_QUOTES.sub(r"\1", raw[1:-1])
        case _:
            return None


def _has_braces(bare: str) -> bool:
    """Say whether the shell makes several words of one: `{a,b}`, `{1..3}`."""
    return bool(re.search(r"\{[^}]*(,|\.\.)[^{]*\}", bare, re.DOTALL))
