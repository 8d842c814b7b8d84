"""The oldest files of a large tree, found on several processors.

To sort by time, the time of every file must be read: 1.6 us each in the kernel, twice what it takes
to list them. ripgrep does it on one processor. Here the tree is parted and several `find` read it, each
in a sandbox of its own. So that they need neither write nor sort a line for each file, they are told a
moment before which 100 files were changed for certain: in any sample of files, the 100th oldest was
changed no earlier than the 100th oldest of all. For files that came later they only print a NUL.
"""

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import translate
from functools import partial
from heapq import nsmallest
from itertools import islice

from app.sandbox.driver import Finished, Sandbox
from app.tools.beneath import open_beneath
from app.tools.open_file import in_thread
from app.tools.ripgrep import LIMITS, check_time

_SIMPLE = re.compile(r"(?:\*\*/)*([\w.*+,@%=~-]*)", re.ASCII)
"""Names that ripgrep and `find` match alike: no classes, no braces, nothing that is escaped."""
_LINE = re.compile(rb"[^\0]+")
_SAMPLE = 1000
"""With fewer files ripgrep alone is as quick."""
_MOST_LOOKED_AT = 20_000
"""Names that the survey reads at most."""
_MOST_LISTED = 1000
"""A folder with more is one part, not parted further."""
_MOST_LISTED_CHARS = 200_000
"""Nor is one whose entries' paths are longer than that together: a command line holds 2 MB."""
_PARTS = 32
"""Enough for a fair share each, when some are far larger than others."""
_MOST_PROCESSES = 4


@dataclass(frozen=True, slots=True)
class Oldest:
    """The answer for a tree."""

    names: list[str]
    """Oldest first, relative to the root."""
    total: int
    """How many files match."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a first look at a large tree tells."""

    starts: Sequence[str]
    """Folders and files, relative to the tree's root, that hold all of it between them."""
    moment_ns: int
    """So many files as are wanted were changed at this time or before."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What a folder holds."""

    names: list[str]
    folders: list[str]
    """Those among the names."""
    times: list[int]
    """When files that match were changed, in ns."""

    @property
    def is_short(self) -> bool:
        """Whether these are all names, and few enough to be told to a `find`."""
        chars = sum(map(len, self.names))
        return len(self.names) <= _MOST_LISTED and chars <= _MOST_LISTED_CHARS


async def oldest(sandbox: Sandbox, root: int, cwd: str, pattern: str, wanted: int) -> Oldest | None:
    """Give the `wanted` oldest files of a tree; None when ripgrep should rather do it.

    `root` is a descriptor of the folder that is `cwd` in the sandbox. Raises `ToolFailed` when it
    takes too long.
    """
    name = simple_name(pattern)
    if name is None:
        return None
    known = await in_thread(partial(survey, root, name, wanted))
    if known is None:
        return None
    ends = await _read_all(sandbox, cwd, name, known)
    for end in ends:
        check_time(end)
        if end.exit_code > 1 or end.flooded or end.cut_bytes:
            return None
    found = await asyncio.to_thread(_merged, [end.output for end in ends], wanted)
    # Fewer: files were changed meanwhile, or this `find` knows not what it is asked for.
    return found if len(found.names) == wanted else None


def simple_name(pattern: str) -> str | None:
    """Give what the last part of a file's path must match, if that is all that a glob asks."""
    simple = _SIMPLE.fullmatch(pattern)
    return None if simple is None else simple[1] or "*"


def survey(root: int, name: str, wanted: int) -> Survey | None:
    """Look into some folders beneath the descriptor `root`; None if few files match there.

    Takes some ms, in any thread. Links are not followed.
    """
    matches = re.compile(translate(name)).match
    starts, times, looked_at = {"."}, list[int](), 0
    queue = deque(["."])
    while queue and looked_at < _MOST_LOOKED_AT:
        if len(times) >= _SAMPLE and len(starts) >= _PARTS:
            break
        path = queue.popleft()
        with suppress(OSError):
            seen = _look(root, path, matches)
            looked_at += len(seen.names)
            times += seen.times
            queue += seen.folders
            if path in starts and len(starts) < _PARTS and seen.is_short:
                starts = (starts - {path}).union(seen.names)
    if len(times) < max(_SAMPLE, wanted):
        return None
    return Survey(sorted(starts), sorted(times)[wanted - 1])


def _look(root: int, path: str, matches: Callable[[str], object]) -> _Look:
    """Look at the first entries of a folder: one more than are listed, where there are more."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = open_beneath(root, path, flags)
    try:
        with os.scandir(folder) as entries:
            listed = list(islice(entries, _MOST_LISTED + 1))
        files = [each for each in listed if each.is_file(follow_symlinks=False)]
        times = [
            each.stat(follow_symlinks=False).st_mtime_ns for each in files if matches(each.name)
        ]
    finally:
        os.close(folder)
    return _Look(
        [f"{path}/{each.name}" for each in listed],
        [f"{path}/{each.name}" for each in listed if each.is_dir(follow_symlinks=False)],
        times,
    )


async def _read_all(sandbox: Sandbox, cwd: str, name: str, known: Survey) -> list[Finished]:
    """Read the whole tree, part by part. When one fails, all are ended."""
    count = min(len(known.starts), len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    parts = [known.starts[number::count] for number in range(count)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    sandbox.exec(
                        _find(part, name, known.moment_ns),
                        cwd=cwd,
                        limits=LIMITS,
                        merge_stderr=False,
                    )
                )
                for part in parts
            ]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]


def _find(starts: Sequence[str], name: str, moment_ns: int) -> list[str]:
    moment = f"@{moment_ns // 10**9}.{moment_ns % 10**9:09}"
    is_named = [] if name == "*" else ["-name", name]
    later = ["(", "-newermt", moment, "-printf", r"\0", "-o", "-printf", r"%T@ %p\0", ")"]
    # Bytes, not characters: names need not be text.
    return ["env", "LC_ALL=C", "find", *starts, "-type", "f", *is_named, *later]


def _merged(outputs: Sequence[bytes], wanted: int) -> Oldest:
    lines = [line for output in outputs for line in _LINE.findall(output)]
    # Seconds of ten digits, as all are from 2001 on: in order as they are written.
    is_usual = all(line[10:11] == b"." for line in lines) and min(lines, default=b"0") >= b"0"
    first = nsmallest(wanted, lines, None if is_usual else _timed)
    names = [line.partition(b" ")[2].removeprefix(b"./") for line in first]
    total = sum(output.count(b"\0") for output in outputs)
    return Oldest([name.decode(errors="replace") for name in names], total)


def _timed(line: bytes) -> tuple[int, bytes]:
    """Give the time, in the smallest unit that is printed, and the name."""
    time, _, name = line.partition(b" ")
    return int(time.replace(b".", b"")), name
