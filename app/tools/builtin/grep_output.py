"""What ripgrep printed, in the order and the pages that Grep promises."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from app.domain.tools import ToolResult
from app.tools.paths import one_line, relative
from app.tools.turns import kept

_TIME = re.compile(rb"(?:^|(?<=\0))[^ \0]+ ")
_NUMBER = re.compile(r"(\d+)([:-])")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of the results is shown."""

    cwd: str
    """Paths beneath it are shortened."""
    offset: int
    limit: int
    """0 for all."""
    is_whole: bool
    """False when ripgrep printed more than was kept."""

    def of(self, items: Sequence[T]) -> Sequence[T]:
        return items[self.offset : self.offset + self.limit if self.limit else None]

    def note(self, total: int) -> str:
        """Name the limit, if it cut something, and the offset, if there is one."""
        words = [f"limit: {self.limit}"] if self._is_cut(total) else []
        words += [f"offset: {self.offset}"] if self.offset else []
        return ", ".join(words)

    def applied(self, total: int) -> dict[str, int]:
        """Give the same for the structured result."""
        limit = {"appliedLimit": self.limit} if self._is_cut(total) else {}
        return limit | ({"appliedOffset": self.offset} if self.offset else {})

    def _is_cut(self, total: int) -> bool:
        return 0 < self.limit < total - self.offset


async def visible(output: bytes, mode: str, hides: Callable[[str], bool]) -> bytes:
    """Leave out of ripgrep's output what belongs to files that are hidden."""
    end = b"\0" if mode == "files_with_matches" else b"\n"
    decided: dict[bytes, bool] = {}

    def is_shown(record: bytes) -> bool:
        name, nul, _ = record.partition(b"\0")
        if end == b"\n" and not nul:
            return True
        if name not in decided:
            decided[name] = not hides(name.decode(errors="replace"))
        return decided[name]

    records = output.removesuffix(end).split(end) if output else []
    shown = await kept(records, is_shown)
    return b"".join(record + end for record in shown)


def without_times(output: bytes) -> bytes:
    """Take off the times by which the names were sorted."""
    return _TIME.sub(b"", output)


def files_result(output: bytes, page: Page) -> ToolResult:
    """Names of files, in their order."""
    names = [relative(name, page.cwd) for name in _text(output).split("\0")[:-1]]
    shown = list(page.of(names))
    note = page.note(len(names))
    header = f"Found {len(shown)} {'file' if len(shown) == 1 else 'files'}"
    text = "\n".join([f"{header} {note}".rstrip(), *map(one_line, shown)])
    if not shown:
        text = f"No files found {f'with {note}' if note else ''}".rstrip()
    structured = {
        "mode": "files_with_matches",
        "filenames": shown,
        "numFiles": len(shown),
        "totalFiles": len(names),
        **page.applied(len(names)),
    }
    return ToolResult(_noted(text, page), structured=structured)


def count_result(output: bytes, page: Page) -> ToolResult:
    """How many lines match in each file, by path; the sums are about all files."""
    counts = sorted(
        (name, int(count)) for name, count in re.findall(r"([^\0]+)\0(\d+)\n", _text(output))
    )
    lines = [f"{one_line(relative(name, page.cwd))}:{count}" for name, count in page.of(counts)]
    matches, files = sum(count for _, count in counts), len(counts)
    note = page.note(files)
    summary = (
        f"Found {matches} total {'occurrence' if matches == 1 else 'occurrences'} across "
        f"{files} {'file' if files == 1 else 'files'}.{f' with pagination = {note}' if note else ''}"
    )
    content = "\n".join(lines) or "No matches found"
    structured = {
        "mode": "count",
        "numFiles": files,
        "filenames": [],
        "content": content,
        "numMatches": matches,
        **page.applied(files),
    }
    return ToolResult(_noted(f"{content}\n\n{summary}", page), structured=structured)


def content_result(
    output: bytes, page: Page, *, with_names: bool, with_numbers: bool, with_groups: bool
) -> ToolResult:
    """Matching lines and their context, by path."""
    text = _text(output).removesuffix("\n")
    raw = text.split("\n") if text else []
    if with_names:
        lines = _by_path(raw, page, with_numbers=with_numbers, with_groups=with_groups)
    else:
        lines = [_line("", line, with_numbers=with_numbers) for line in raw]
    shown = page.of(lines)
    note = page.note(len(lines))
    content = "\n".join(shown) or "No matches found"
    if not shown and lines:
        content = f"No more matches: there are {len(lines)} lines in all."
    structured: dict[str, Any] = {  # a JSON object
        "mode": "content",
        "numFiles": 0,
        "filenames": [],
        "content": content,
        "numLines": len(shown),
        "totalLines": len(lines),
        **page.applied(len(lines)),
    }
    tail = f"\n\n[Showing results with pagination = {note}]" if note else ""
    return ToolResult(_noted(content, page) + tail, structured=structured)


def _by_path(raw: Sequence[str], page: Page, *, with_numbers: bool, with_groups: bool) -> list[str]:
    """Gather lines by file, and order the files: ripgrep searches them side by side."""
    files: dict[str, list[str]] = {}
    name = ""
    for path, line in _named(raw):
        name = path or name
        if path:
            label = one_line(relative(path, page.cwd))
            files.setdefault(name, []).append(_line(label, line, with_numbers=with_numbers))
        elif name:
            files[name].append(line)
    lines: list[str] = []
    for path in sorted(files):
        group = files[path]
        while group[-1] == "--":  # stands before the next file's lines
            group.pop()
        lines += ["--", *group] if lines and with_groups else group
    return lines


def _named(raw: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Part each line from its file's name; a separator of groups has none."""
    pending = ""
    for line in raw:
        name, ends, rest = line.partition("\0")
        if ends:
            yield pending + name, rest
            pending = ""
        elif line == "--" and not pending:
            yield "", line
        else:
            pending += f"{line}\n"  # a name with a line end in it


def _line(label: str, line: str, *, with_numbers: bool) -> str:
    """Put a line as `name:number:text`, or with dashes for a line of context."""
    number = _NUMBER.match(line)
    line = line.removesuffix("\r")
    if number is None:
        return f"{label}:{line}" if label else line
    sign = number[2]
    text = line if with_numbers else line[number.end() :]
    return f"{label}{sign}{text}" if label else text


def _text(output: bytes) -> str:
    return output.decode(errors="replace")


def _noted(text: str, page: Page) -> str:
    """Say so when there was more than ripgrep may print."""
    return (
        text if page.is_whole else f"{text}\n[The search found more than can be listed. Narrow it.]"
    )
