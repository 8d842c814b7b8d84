"""Replacing one text by another, literally; curly and straight quotes match each other.

An exact match is preferred. If there is none, quotes are compared without their shape, and the
new text's straight quotes take the shape that the replaced text had.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPENS_AFTER = re.compile(r"(?:^|[\s(\[{<\u2014\u2013\u2018\u201c])$")
_CURLY_SINGLE = re.compile("[\u2018\u2019]")
_CURLY_DOUBLE = re.compile("[\u201c\u201d]")


@dataclass(frozen=True, slots=True)
class Replaced:
    """The outcome of `replace`."""

    text: str
    matched: str
    """What stood at the first place."""
    count: int


def count_matches(text: str, old: str) -> int:
    """Count matches that do not overlap."""
    return text.count(old) or _straight(text).count(_straight(old))


def replace(text: str, old: str, new: str) -> Replaced:
    """Replace every match; `count_matches` has found at least one.

    The caller has seen to it that the new text is of bearable size. Deleting a text that is followed by a line end, and has none itself, deletes that too: no
    empty line stays behind.
    """
    count = text.count(old)
    if count and (new or old.endswith("\n")):
        return Replaced(text.replace(old, new), old, count)
    if count and not old.startswith("\n"):
        return Replaced(re.sub(f"{re.escape(old)}\n?", "", text), old, count)
    return _replaced_by_place(text, old, new)


def _replaced_by_place(text: str, old: str, new: str) -> Replaced:
    """Replace match by match: what the quick ways of `replace` do, and what they cannot."""
    places = list(_places(text, old))
    shapes: dict[str, str] = {}
    pieces: list[str] = []
    position = 0
    for start in places:
        matched = text[start : start + len(old)]
        if matched not in shapes:
            shapes[matched] = _in_the_shape_of(matched, old, new)
        pieces += text[position:start], shapes[matched]
        position = start + len(old)
        if not new and not old.endswith("\n") and text.startswith("\n", position):
            position += 1
    pieces.append(text[position:])
    first = text[places[0] : places[0] + len(old)]
    return Replaced("".join(pieces), first, len(places))


def _places(text: str, old: str) -> Iterator[int]:
    if old not in text:
        text, old = _straight(text), _straight(old)
    start = text.find(old)
    while start >= 0:
        yield start
        start = text.find(old, start + len(old))


def _straight(text: str) -> str:
    """Straighten all quotes; the length stays. `translate` takes ten times as long."""
    text = text.replace("\u2018", "'").replace("\u2019", "'")
    return text.replace("\u201c", '"').replace("\u201d", '"')


def _in_the_shape_of(matched: str, old: str, new: str) -> str:
    if matched == old:
        return new
    if _CURLY_DOUBLE.search(matched):
        new = _curled(new, '"', "\u201c", "\u201d")
    if _CURLY_SINGLE.search(matched):
        new = _curled(new, "'", "\u2018", "\u2019")
    return new


def _curled(text: str, straight: str, opening: str, closing: str) -> str:
    """Curl each quote by what stands before it; an apostrophe is a closing one."""
    curled = ""
    for piece in re.split(f"({straight})", text):
        quote = opening if _OPENS_AFTER.search(curled[-1:]) else closing
        curled += quote if piece == straight else piece
    return curled
