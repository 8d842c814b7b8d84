"""What a change did, as hunks of a unified diff with three lines of context."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TypedDict

_CONTEXT_LINES = 3
_MAX_COMPARED_LINES = 2000
"""A larger changed region is shown as one replacement: comparing it would take seconds."""

_Opcode = tuple[str, int, int, int, int]


class Hunk(TypedDict):
    """One hunk in the form of the wire (`structuredPatch`)."""

    oldStart: int
    oldLines: int
    newStart: int
    newLines: int
    lines: list[str]
    """Each with its sign: blank, `-` or `+`."""


def structured_patch(old: str, new: str) -> list[Hunk]:
    """Compare two texts line by line; nothing when they are equal."""
    before, after = _lines(old), _lines(new)
    return [_hunk(before, after, group) for group in _groups(_opcodes(before, after))]


def _lines(text: str) -> list[str]:
    """Split at LF, line ends kept: a last line without one differs from the same with it."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _opcodes(before: Sequence[str], after: Sequence[str]) -> list[_Opcode]:
    """Compare only what lies between the equal start and the equal end."""
    head = _common(zip(before, after, strict=False))
    shorter = min(len(before), len(after)) - head
    tail = min(_common(zip(reversed(before), reversed(after), strict=False)), shorter)
    old_end, new_end = len(before) - tail, len(after) - tail
    codes: list[_Opcode] = [("equal", 0, head, 0, head)] if head else []
    codes += [
        (tag, head + a, head + b, head + c, head + d)
        for tag, a, b, c, d in _compare(before[head:old_end], after[head:new_end])
    ]
    if tail:
        codes.append(("equal", old_end, len(before), new_end, len(after)))
    return codes


def _common(pairs: Iterator[tuple[str, str]]) -> int:
    count = 0
    for old, new in pairs:
        if old != new:
            break
        count += 1
    return count


def _compare(old: Sequence[str], new: Sequence[str]) -> list[_Opcode]:
    if not old and not new:
        return []
    if not old or not new or max(len(old), len(new)) > _MAX_COMPARED_LINES:
        return [("replace", 0, len(old), 0, len(new))]
    return list(SequenceMatcher(None, old, new).get_opcodes())


def _groups(codes: Sequence[_Opcode]) -> Iterator[list[_Opcode]]:
    """Split at long equal stretches, of which the ends stay as context."""
    group: list[_Opcode] = []
    for position, (tag, a, b, c, d) in enumerate(codes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        is_last = position == len(codes) - 1
        if group and (is_last or b - a > 2 * _CONTEXT_LINES):
            keep = min(_CONTEXT_LINES, b - a)
            yield [*group, ("equal", a, a + keep, c, c + keep)]
            group = []
        elif group:
            group.append((tag, a, b, c, d))
        if not group and not is_last:
            keep = min(_CONTEXT_LINES, b - a)
            group = [("equal", b - keep, b, d - keep, d)]
    if any(code[0] != "equal" for code in group):
        yield group


def _hunk(before: Sequence[str], after: Sequence[str], group: Sequence[_Opcode]) -> Hunk:
    old_start, old_end = group[0][1], group[-1][2]
    new_start, new_end = group[0][3], group[-1][4]
    lines: list[str] = []
    for tag, a, b, c, d in group:
        if tag == "equal":
            lines += _signed(" ", before[a:b])
        else:
            lines += _signed("-", before[a:b]) + _signed("+", after[c:d])
    return Hunk(
        oldStart=old_start + 1,
        oldLines=old_end - old_start,
        newStart=new_start + 1,
        newLines=new_end - new_start,
        lines=lines,
    )


def _signed(sign: str, lines: Sequence[str]) -> list[str]:
    signed: list[str] = []
    for line in lines:
        signed.append(sign + line.removesuffix("\n"))
        if not line.endswith("\n"):
            signed.append("\\ No newline at end of file")
    return signed
