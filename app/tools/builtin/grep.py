"""Grep: search the content of files with ripgrep."""

import re
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.builtin.folders import existing_folder
from app.tools.builtin.grep_output import (
    Page,
    content_result,
    count_result,
    files_result,
    visible,
    without_times,
)
from app.tools.builtin.output_words import grep_words
from app.tools.open_file import compute
from app.tools.paths import shown
from app.tools.ripgrep import arguments, check_argument, glob_option, run_search
from app.tools.tool import ToolContext, ToolInput, tool

_MAX_COLUMNS = 501
"""Bytes of a line that is shown whole, its line end included."""
_MOST_CHARS = 20_000
"""Of a result; more is stored."""
_NEWEST_FIRST = r"""set -o pipefail
"$@" | { xargs -0r stat --printf='%.9Y %n\0' -- 2>/dev/null || true; } | LC_ALL=C sort -z -k1,1rn -k2"""
"""Sorts the names that a command prints by time. ripgrep itself, when it is to sort, searches with one
thread alone. A file that is gone by now is left out."""
_MAX_GLOBS = 1_000
"""Each is an argument, of which bubblewrap takes 9,000."""
_NOT_SEARCHED = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")


Count = Annotated[int, Field(ge=0), WithJsonSchema({"type": "number", "minimum": 0})]
"""A whole number, which the schema of this tool has always called a number."""


class GrepInput(ToolInput):
    pattern: str
    """A regular expression in Rust's syntax: no look-around, literal braces escaped."""
    path: str | None = None
    """The file or folder to search; without it, the working directory."""
    glob: str | None = None
    """Which files, such as "*.py", "*.{js,ts}" or "!*.md"; several with blanks between."""
    type: str | None = None
    """Which files, by ripgrep's name of a type, such as "py" or "rust"."""
    output_mode: Literal["files_with_matches", "content", "count"] = "files_with_matches"
    """Names of files (newest first), matching lines, or how many lines match in each file."""
    after: Count | None = Field(default=None, alias="-A")
    """Lines to show after each match; for content."""
    before: Count | None = Field(default=None, alias="-B")
    """Lines to show before each match; for content."""
    around: Count | None = Field(default=None, alias="-C")
    """Lines to show around each match; for content."""
    context: Count | None = None
    """The same as -C."""
    line_numbers: bool = Field(default=True, alias="-n")
    """Show line numbers; for content."""
    ignore_case: bool = Field(default=False, alias="-i")
    """Ignore case."""
    only_matching: bool = Field(default=False, alias="-o")
    """Show only the matching parts of lines; for content."""
    multiline: bool = False
    """Let matches span lines, and the dot match line ends."""
    head_limit: Count = 250
    """Show this many lines or files at most; 0 for all."""
    offset: Count = 0
    """Skip this many lines or files first."""


@tool(
    name="Grep",
    description=(
        "Search the content of files for a regular expression. Hidden files are searched, "
        "version control folders and binary files are not; in a git repository ignored files are "
        "left out too."
    ),
    input_model=GrepInput,
    words_of=grep_words,
    starts_process=True,
    read_only=True,
    most_chars=_MOST_CHARS,
)
async def grep_tool(given: GrepInput, context: ToolContext) -> ToolResult:
    """Search, and show one page of the results. Finding nothing is no failure."""
    for name in ("pattern", "glob", "type"):
        check_argument(name, getattr(given, name) or "")
    path = context.workspace.absolute(given.path or "", context.cwd)
    is_folder = _is_folder(context, path)
    options = [*_matching(given), *_printing(given, is_folder=is_folder)]
    argv = arguments(options, [path])
    is_of_names = given.output_mode == "files_with_matches"
    if is_of_names:
        argv = ["bash", "-c", _NEWEST_FIRST, "grep", *argv]
    found = await run_search(context.sandbox, argv, cwd=existing_folder(context, "."))
    output, hides = found.output, context.hidden()
    if is_of_names:
        output = await compute(partial(without_times, output), size_bytes=len(output))
    if hides is not None and (is_folder or given.output_mode != "content"):
        output = await visible(output, given.output_mode, hides)
    page = Page(context.cwd, given.offset, given.head_limit, found.is_whole)
    told = partial(_told, given, output, page, is_folder=is_folder)
    return await compute(told, size_bytes=len(output))


def _told(given: GrepInput, output: bytes, page: Page, *, is_folder: bool) -> ToolResult:
    match given.output_mode:
        case "files_with_matches":
            return files_result(output, page)
        case "count":
            return count_result(output, page)
        case "content":
            return content_result(
                output,
                page,
                with_names=is_folder,
                with_numbers=given.line_numbers,
                with_groups=_has_context(given),
            )


def _is_folder(context: ToolContext, path: str) -> bool:
    try:
        return context.workspace.is_folder(path)
    except FileNotFoundError:
        raise ToolFailed(
            f"{shown(path)} does not exist. The working directory is {context.cwd}.", wrapped=True
        ) from None


def _matching(given: GrepInput) -> list[str]:
    """Say what is searched for, and where. Of globs the last that matches decides."""
    options = ["--hidden", "--no-mmap", f"--regexp={given.pattern}"]
    if given.ignore_case:
        options.append("--ignore-case")
    if given.multiline:
        options += "--multiline", "--multiline-dotall"
    if given.type:
        options.append(f"--type={given.type}")
    globs = _globs(given.glob or "")
    if len(globs) > _MAX_GLOBS:
        raise ToolFailed(
            f"The parameter `glob` holds {len(globs)} globs, at most {_MAX_GLOBS} are taken.",
            wrapped=True,
        )
    options += map(glob_option, globs)
    return options + [f"--glob=!{name}" for name in _NOT_SEARCHED]


def _globs(text: str) -> list[str]:
    """Part globs at blanks and commas, but not at the commas within braces."""
    words = text.split()
    return [
        glob for word in words for glob in ([word] if "{" in word else re.split(",", word)) if glob
    ]


def _printing(given: GrepInput, *, is_folder: bool) -> list[str]:
    """Say how it is printed. A NUL ends each name, so that any name can be read back."""
    if given.output_mode == "files_with_matches":
        return ["--files-with-matches", "--null"]
    if given.output_mode == "count":
        return ["--count", "--null", "--with-filename"]
    options = ["--no-heading", "--line-number", f"--max-columns={_MAX_COLUMNS}"]
    options += ["--null", "--with-filename"] if is_folder else ["--no-filename"]
    if given.only_matching:
        options.append("--only-matching")
    return options + _context(given)


def _context(given: GrepInput) -> list[str]:
    around = given.around if given.context is None else given.context
    if around is not None:
        return [f"--context={around}"]
    after, before = given.after or 0, given.before or 0
    return [f"--after-context={after}", f"--before-context={before}"]


def _has_context(given: GrepInput) -> bool:
    return any((given.after, given.before, given.around, given.context))
