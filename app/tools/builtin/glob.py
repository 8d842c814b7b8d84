"""Glob: the files whose names match a pattern, oldest first."""

import os
import re
import time

from app.domain.tools import ToolResult
from app.tools.builtin.folders import existing_folder
from app.tools.builtin.output_words import glob_words
from app.tools.oldest import Oldest, oldest
from app.tools.paths import one_line, relative
from app.tools.ripgrep import arguments, check_argument, glob_option, ripgrep, run_search
from app.tools.tool import ToolContext, ToolInput, tool
from app.tools.turns import kept

_MAX_SHOWN = 100
_FIRST = f"""set -o pipefail; "$@" | sed -zn -e '1,{_MAX_SHOWN}p' -e '$='"""
"""Lets the first names out of the sandbox, and then how many there are in all; a NUL ends each."""
_MAGIC = re.compile(r"[*?\[{\\]")


class GlobInput(ToolInput):
    pattern: str
    """Such as "*.py", "src/**/*.ts" or "{a,b}/*.md"."""
    path: str | None = None
    """The folder to look in; without it, the working directory."""


@tool(
    name="Glob",
    description=(
        "Find files by name. A pattern without a slash matches names in every folder below; one "
        "with a slash starts at the search folder; ** stands for any folders. Lists up to 100 "
        "files, least recently changed first; hidden and ignored files are included."
    ),
    input_model=GlobInput,
    words_of=glob_words,
    starts_process=True,
    read_only=True,
)
async def glob_tool(given: GlobInput, context: ToolContext) -> ToolResult:
    """List files, oldest first. Finding none is no failure."""
    started = time.monotonic()
    check_argument("pattern", given.pattern)
    folder, pattern = given.path or "", given.pattern
    if pattern.startswith("/"):
        folder, pattern = _split_absolute(pattern)
    folder = existing_folder(context, folder)
    start = folder.rstrip("/")
    hides = context.hidden()
    is_complete = True
    if hides is None:
        names, total = await _oldest(context, pattern, folder)
    else:
        every, is_complete = await _all(context, pattern, folder)
        allowed = await kept(every, lambda name: not hides(f"{start}/{name}"))
        names, total = allowed[:_MAX_SHOWN], len(allowed)
    paths = [relative(f"{start}/{name}", context.cwd) for name in names]
    return ToolResult(
        _listing(paths, total, is_complete=is_complete),
        structured={
            "filenames": paths,
            "durationMs": int((time.monotonic() - started) * 1000),
            "numFiles": len(paths),
            "truncated": total > len(paths) or not is_complete,
            "totalMatches": total,
            "countIsComplete": is_complete,
        },
    )


async def _oldest(context: ToolContext, pattern: str, folder: str) -> tuple[list[str], int]:
    """Give the names of the files that were changed the longest ago, and how many match."""
    found = await _of_many(context, pattern, folder)
    if found is not None:
        return found.names, found.total
    argv = ["bash", "-c", _FIRST, "glob", *arguments(_options(pattern))]
    said = await run_search(context.sandbox, argv, cwd=folder)
    if not said.output:
        return [], 0
    *names, total = said.output.decode(errors="replace").rstrip("\0").split("\0")
    return names, int(total)


async def _of_many(context: ToolContext, pattern: str, folder: str) -> Oldest | None:
    root = context.workspace.open_folder(folder)
    try:
        return await oldest(context.sandbox, root, folder, pattern, _MAX_SHOWN)
    finally:
        os.close(root)


async def _all(context: ToolContext, pattern: str, folder: str) -> tuple[list[str], bool]:
    """Give all names in the same order, as far as they are kept, and whether these are all."""
    found = await ripgrep(context.sandbox, _options(pattern), cwd=folder)
    return found.output.decode(errors="replace").split("\0")[:-1], found.is_whole


def _options(pattern: str) -> list[str]:
    # With --null and no path, names come as they are, relative to the folder.
    options = ["--files", "--hidden", "--no-ignore", "--null", "--sort=modified"]
    return [*options, glob_option(pattern)] if pattern else options


def _split_absolute(pattern: str) -> tuple[str, str]:
    """Take the folders before the first magic character as the place to look in."""
    magic = _MAGIC.search(pattern)
    fixed = pattern if magic is None else pattern[: magic.start()]
    folder, _, _ = fixed.rpartition("/")
    # Without magic it names one file, there and nowhere below.
    rest = pattern[len(folder) + 1 :]
    return folder or "/", f"/{rest}" if magic is None else rest


def _listing(paths: list[str], total: int, *, is_complete: bool) -> str:
    if not paths and is_complete:
        return "No files found"
    text = "\n".join(one_line(path) for path in paths)
    if total <= len(paths) and is_complete:
        return text
    least = "" if is_complete else "at least "
    return (
        f"{text}\n(Showing {len(paths)} of {least}{total} files; {least}{total - len(paths)} are "
        "hidden. Use a narrower pattern or path.)"
    )
