"""Text for Read: a window of numbered lines, within the caps."""

from codecs import BOM_UTF16_LE

from app.domain.tools import ToolResult
from app.domain.value import value
from app.errors import ToolFailed
from app.tools.encoding import Decoded, decode
from app.tools.open_file import OpenFile
from app.tools.paths import shown
from app.tools.seen import saw, sha256
from app.tools.windows import MAX_LINES, MAX_SCAN_BYTES, numbered, scan, window

MAX_BYTES = 256 * 1024
"""The largest file that is shown without a limit."""
MAX_TOKENS = 25_000
_SHARE_SHOWN = 0.85
"""How much of the tokens a text gets that is cut."""
_LARGE_BYTES = 4 * 1024 * 1024
"""The most that is ever shown; `allow_large` lifts the other caps."""
_BYTES_PER_TOKEN = 4

_EMPTY_FILE = "<system-reminder>The file exists, but it is empty.</system-reminder>"


@value
class Span:
    """Which lines are asked for."""

    number: int = 1
    """Printed on the first line. 0 shows the same lines as 1."""
    count: int | None = None
    """None: to the end."""

    @staticmethod
    def of(offset: int | None, limit: int | None) -> "Span":
        """Take a negative offset, and a limit below 1, as not given."""
        number = 1 if offset is None or offset < 0 else offset
        return Span(number, None if limit is None or limit < 1 else limit)

    @property
    def first(self) -> int:
        """The first line's index, from 0."""
        return max(self.number - 1, 0)


@value
class _Text:
    """What was read of a file."""

    lines: list[str]
    total_lines: int
    decoded: Decoded
    sha256: str


def read_text(
    file: OpenFile, path: str, given_path: str, span: Span, *, allow_large: bool
) -> ToolResult:
    """Show a window of the file. `given_path` is the path as the model wrote it."""
    _check_size(file, path, span, allow_large=allow_large)
    text = _load(file, path, span)
    if span.first >= text.total_lines or not (text.decoded.text or span.first):
        return _nothing(given_path, path, span, text, file)
    lines = text.lines
    if not allow_large:
        lines = _within_tokens(lines, path, span)
    is_cut = len(lines) < len(text.lines) or lines[-1:] != text.lines[-1:]
    body = numbered(lines, span.number)
    partial = is_cut or len(lines) < text.total_lines
    shown_file = _structured(given_path, span, lines, text)
    if is_cut:
        shown_file["truncatedByTokenCap"] = True
    return ToolResult(
        body + _flaw_note(text.decoded) + (_cut_note(lines, text, span) if is_cut else ""),
        structured={"type": "text", "file": shown_file},
        facts=saw(path, text.sha256, file.version, partial=partial),
    )


def _check_size(file: OpenFile, path: str, span: Span, *, allow_large: bool) -> None:
    if span.count is None and file.size_bytes > MAX_BYTES and not allow_large:
        raise ToolFailed(
            f"{shown(path)} is too large ({file.size_bytes / 1024:.1f}KB, at most "
            f"{MAX_BYTES // 1024}KB). Show a part with offset and limit, search it with Grep, or "
            "set allow_large."
        )
    largest = _LARGE_BYTES if span.count is None else MAX_SCAN_BYTES
    if file.size_bytes > largest:
        raise ToolFailed(
            f"{shown(path)} is too large for this tool ({file.size_bytes / 1024:.1f}KB, at most "
            f"{largest // 1024}KB). Use Bash, for instance head, tail or sed -n."
        )


def _load(file: OpenFile, path: str, span: Span) -> _Text:
    if file.size_bytes <= _LARGE_BYTES:
        data = file.content(_LARGE_BYTES)
        decoded = decode(data)
        lines, total = window(decoded.text, span.first, span.count)
        if total <= MAX_LINES:
            return _Text(lines, total, decoded, sha256(data))
    if span.count is None:
        raise _too_many_lines(path)
    if file.head(2) == BOM_UTF16_LE:
        raise ToolFailed(f"{shown(path)} is UTF-16 and too large to be shown in parts.")
    part = scan(file, span.first, span.count or 1, _LARGE_BYTES)
    if part.is_cut:
        raise ToolFailed(
            f"The lines asked for of {shown(path)} are more than the {_LARGE_BYTES // 1024}KB that "
            "are shown at most. Give a smaller limit, search with Grep, or use Bash, for instance "
            "cut -c."
        )
    decoded = decode(part.data)
    lines, count = window(decoded.text, 0, None)
    if count > MAX_LINES:
        raise _too_many_lines(path)
    # Only a part is seen, for which the hash does not count: the whole is not read twice.
    return _Text(lines, part.total_lines, decoded, "")


def _within_tokens(lines: list[str], path: str, span: Span) -> list[str]:
    """Cut what is too long at a line's end; refuse it when the model chose the window."""
    tokens = tokens_of("\n".join(lines))
    if tokens <= MAX_TOKENS:
        return lines
    if span.count is not None:
        raise _too_many_tokens(path, tokens)
    room = int(MAX_TOKENS * _SHARE_SHOWN) * _BYTES_PER_TOKEN
    kept: list[str] = []
    for line in lines:
        room -= _bytes(line)
        if room < 0:
            break
        kept.append(line)
    # A single endless line: its start is better than nothing.
    return kept or [lines[0][: int(MAX_TOKENS * _SHARE_SHOWN)]]


def tokens_of(text: str) -> int:
    """Estimate how many tokens a text is: the provider is not asked."""
    return _bytes(text) // _BYTES_PER_TOKEN


def _bytes(line: str) -> int:
    return (len(line) if line.isascii() else len(line.encode(errors="replace"))) + 1


def _too_many_lines(path: str) -> ToolFailed:
    return ToolFailed(
        f"More than {MAX_LINES} lines of {shown(path)} cannot be shown at once. Show a part with "
        "offset and limit, or search it with Grep."
    )


def _too_many_tokens(path: str, tokens: int) -> ToolFailed:
    return ToolFailed(
        f"The lines asked for of {shown(path)} are about {tokens} tokens, at most {MAX_TOKENS} are "
        "shown. Give a smaller limit, search with Grep, or set allow_large."
    )


def _nothing(given_path: str, path: str, span: Span, text: _Text, file: OpenFile) -> ToolResult:
    """Tell that the file is empty, or that the window starts past its end."""
    note, count = _EMPTY_FILE, 1
    if span.first:
        count = 0
        note = (
            f"<system-reminder>The file has {text.total_lines} line(s), so there is nothing at "
            f"offset {span.number}.</system-reminder>"
        )
    shown_file = _structured(given_path, span, [""] * count, text)
    partial = bool(span.first)
    return ToolResult(
        note,
        structured={"type": "text", "file": shown_file},
        facts=saw(path, text.sha256, file.version, partial=partial),
    )


def empty_text(given_path: str) -> ToolResult:
    """Give what is told of an empty file, for one that is not there to be opened."""
    text = _Text([""], 1, Decoded(""), "")
    shown_file = _structured(given_path, Span(), [""], text)
    return ToolResult(_EMPTY_FILE, structured={"type": "text", "file": shown_file})


def _structured(
    given_path: str, span: Span, lines: list[str], text: _Text
) -> dict[str, str | int | bool]:
    return {
        "filePath": given_path,
        "content": "\n".join(lines),
        "numLines": len(lines),
        "startLine": span.number,
        "totalLines": text.total_lines,
    }


def _flaw_note(decoded: Decoded) -> str:
    if decoded.flaw is None:
        return ""
    return (
        f"\n\n[The file {decoded.flaw}: what is shown is an approximation, and Edit and Write "
        "refuse to change it.]"
    )


def _cut_note(lines: list[str], text: _Text, span: Span) -> str:
    if len(lines) == 1 and lines != text.lines[:1]:
        return (
            f"\n\n<system-reminder>Only the start of line {span.number} is shown: it is over "
            f"{MAX_TOKENS} tokens. Use Bash, for instance cut -c, for the rest.</system-reminder>"
        )
    last = span.number + len(lines) - 1
    return (
        f"\n\n<system-reminder>Only the lines {span.number} to {last} of {text.total_lines} are "
        f"shown: the whole is over {MAX_TOKENS} tokens. Go on with offset {last + 1} and a limit."
        "</system-reminder>"
    )
