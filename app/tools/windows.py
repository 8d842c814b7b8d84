"""Windows of lines: which part of a text file is shown.

Lines end with LF or CRLF. A final line end is followed by one more, empty line, so a file
always has at least one.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from app.tools.open_file import OpenFile

MAX_SCAN_BYTES = 256 * 1024 * 1024
"""How much of a large file is looked through for a window."""
MAX_LINES = 500_000
"""How many lines a text is parted into. A line takes some 100 bytes while it is numbered, and splitting, joining and
freeing so many some 10 ms each, in which no other thread runs."""
_MOST_STARTS = 2_000
"""Numbers that are written once: of the lines that are mostly asked for."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some lines of a file, as bytes; line ends between them as in the file."""

    data: bytes
    total_lines: int
    is_cut: bool = False
    """True when the lines hold more than was to be kept."""


def scan(file: OpenFile, first: int, count: int, keep_bytes: int) -> Window:
    """Read through a file and keep `count` lines from the zero-based `first`.

    Memory stays near `keep_bytes` whatever the file holds; at most `MAX_SCAN_BYTES` are read.
    """
    kept = bytearray()
    line = 0  # the one that the chunk starts in
    for chunk in file.chunks(MAX_SCAN_BYTES):
        ends = chunk.count(b"\n")
        if line + ends >= first and line < first + count and len(kept) <= keep_bytes:
            parts = chunk.split(b"\n")
            # The last part is a line that the next chunk goes on with, so nothing is lost
            # or added between the pieces.
            kept += b"\n".join(parts[max(first - line, 0) : first + count - line])
        line += ends
    if first + count <= line and kept.endswith(b"\r"):
        del kept[-1]  # belongs to the CRLF that ended the last line
    return Window(bytes(kept[:keep_bytes]), line + 1, len(kept) > keep_bytes)


def numbered(lines: Sequence[str], first: int) -> str:
    """Give lines each behind its number and a tab; `first` is the first one's number."""
    end = first + len(lines)
    if end > _MOST_STARTS:
        return "\n".join([f"{number}\t{line}" for number, line in enumerate(lines, first)])
    # Taken from a list, numbers cost a fifth of what it takes to write them.
    parts = [""] * (2 * len(lines))
    parts[::2] = _starts()[first:end]
    parts[1::2] = lines
    return "".join(parts)[1:]


@functools.cache
def _starts() -> list[str]:
    """Give how lines begin, the end of the one before included."""
    return [f"\n{number}\t" for number in range(_MOST_STARTS)]


def window(text: str, first: int, count: int | None) -> tuple[list[str], int]:
    """Give the lines of a window, and how many lines there are in all.

    Above `MAX_LINES` there may be any number: the last line then holds the rest.
    """
    # One byte is found far sooner than two: most texts have none of it.
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n", MAX_LINES)
    return lines[first : None if count is None else first + count], len(lines)
