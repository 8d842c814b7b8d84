"""Edit: replace a string in a file. Its match proves that the agent knows the place."""

from dataclasses import dataclass
from typing import Any

from app.domain.tools import FileSeen, ToolResult
from app.errors import ToolFailed
from app.tools.builtin.changed_file import (
    Change,
    Present,
    load,
    missing,
    original_of,
    patch_of,
    store,
)
from app.tools.builtin.output_words import edit_words
from app.tools.builtin.replacing import Replaced, count_matches, replace
from app.tools.encoding import Decoded
from app.tools.open_file import compute
from app.tools.paths import shown
from app.tools.seen import sha256
from app.tools.tool import ToolContext, ToolInput, tool

_MAX_QUOTED = 10_000
_MAX_NEW_CHARS = 16 * 1024 * 1024
"""Of all that replace_all puts in: a file of 8 MB may hold millions of matches."""


class EditInput(ToolInput):
    file_path: str
    """The file. A relative path starts at the working directory."""
    old_string: str
    """The text to replace, exactly as in the file. Empty: create the file with new_string."""
    new_string: str
    """The text to put in its place. Empty: delete the old text."""
    replace_all: bool = False
    """Replace every occurrence instead of the only one."""


@tool(
    name="Edit",
    description=(
        "Replace a piece of text in a file. old_string must match the file character by "
        "character, blanks and indentation included, without the line numbers that Read prints. "
        "It must occur once, so give enough of its surroundings, or set replace_all."
    ),
    input_model=EditInput,
    words_of=edit_words,
    edits_files=True,
    told_defaults={"replace_all": False},
)
async def edit_tool(given: EditInput, context: ToolContext) -> ToolResult:
    """Check in the documented order, then write the new text."""
    if given.old_string == given.new_string:
        raise ToolFailed("old_string and new_string are the same: nothing to do.", wrapped=True)
    path = context.workspace.absolute(given.file_path, context.cwd)
    present = await load(context, path)
    if not given.old_string:
        return await _fill(given, context, path, present)
    if present is None:
        raise missing(context, path)
    if path.lower().endswith(".ipynb"):
        raise ToolFailed(
            f"{shown(path)} is a notebook; change its cells with NotebookEdit.", wrapped=True
        )
    present.check_encoding(path)
    return await _edit(given, context, path, present)


async def _fill(
    given: EditInput, context: ToolContext, path: str, present: Present | None
) -> ToolResult:
    """Create a file, or give content to one that has none but blanks."""
    if present is not None and present.decoded.text.strip():
        raise ToolFailed(
            f"{shown(path)} already exists and is not empty; give the old_string to replace.",
            wrapped=True,
        )
    decoded = Decoded("") if present is None else present.decoded
    change = await compute(
        lambda: Change.of(decoded, decoded.text, given.new_string),
        size_bytes=len(given.new_string),
    )
    facts = await store(context, path, change, present)
    return ToolResult(
        f"{'Created' if present is None else 'Filled'} {given.file_path}.",
        structured=_structured(given, "", decoded.text, change),
        facts=facts,
    )


async def _edit(given: EditInput, context: ToolContext, path: str, present: Present) -> ToolResult:
    seen = context.memory.files.get(path)
    is_stale = present.differs_from(seen)
    text, done, change = await compute(
        lambda: _changed(given, path, present, is_stale=is_stale),
        size_bytes=len(present.decoded.text),
    )
    knows_all = seen is not None and not seen.partial and not is_stale
    facts = await store(context, path, change, present, partial=not knows_all)
    structured = _structured(given, done.matched, text, change)
    if not knows_all:
        structured["contentNotInModelContext"] = True
    if is_stale:
        structured["staleRecovered"] = True
    message = _message(given, done, seen, is_stale=is_stale)
    return ToolResult(message, structured=structured, facts=facts)


def _changed(
    given: EditInput, path: str, present: Present, *, is_stale: bool
) -> tuple[str, Replaced, Change]:
    """Give the old text, what was replaced, and the change to write. Raises `ToolFailed`."""
    text = _Text.of(present.decoded.text)
    count = _checked_matches(given, path, text.lines, is_stale=is_stale)
    new = given.new_string.replace("\r\n", "\n") if text.is_crlf else given.new_string
    if count * len(new) > _MAX_NEW_CHARS:
        raise ToolFailed(
            f"{count} times new_string are {count * len(new)} characters, too many for this tool "
            f"(at most {_MAX_NEW_CHARS}). Use Bash.",
            wrapped=True,
        )
    done = replace(text.lines, given.old_string, new)
    data = present.decoded.encode(text.restored(done.text))
    return text.lines, done, Change(data, sha256(data), patch_of(text.lines, done.text))


@dataclass(frozen=True, slots=True)
class _Text:
    """A file's text with LF only, and what its lines ended with."""

    lines: str
    is_crlf: bool

    @staticmethod
    def of(text: str) -> "_Text":
        """The more frequent line end counts; LF if they are level."""
        crlf = text.count("\r\n")
        return _Text(text.replace("\r\n", "\n"), crlf > text.count("\n") - crlf)

    def restored(self, lines: str) -> str:
        return lines.replace("\n", "\r\n") if self.is_crlf else lines


def _checked_matches(given: EditInput, path: str, text: str, *, is_stale: bool) -> int:
    """Count the places to change. Raises `ToolFailed` when they are not what was meant."""
    matches = count_matches(text, given.old_string)
    if matches == 1 or (matches and given.replace_all):
        return matches
    if is_stale:
        raise ToolFailed(
            f"{shown(path)} has changed since you last read or wrote it, and old_string does not "
            "name one place in it any more. Read it again.",
            wrapped=True,
        )
    if not matches:
        raise ToolFailed(
            f"old_string was not found in {shown(path)}. It was:\n{_quoted(given.old_string)}",
            wrapped=True,
        )
    raise ToolFailed(
        f"old_string occurs {matches} times in {shown(path)}. Give more of its surroundings, or "
        f"set replace_all. It was:\n{_quoted(given.old_string)}",
        wrapped=True,
    )


def _quoted(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "…"


def _message(given: EditInput, done: Replaced, seen: FileSeen | None, *, is_stale: bool) -> str:
    what = f"Updated {given.file_path}"
    if given.replace_all:
        what += f", all occurrences ({done.count})"
    if is_stale:
        return (
            f"{what}. Warning: the file had changed on disk since you last read it; those changes "
            "were kept. Read it again before relying on the rest."
        )
    if seen is None or seen.partial:
        return f"{what}."
    return f"{what}. What you know of the file is current; there is no need to read it again."


def _structured(given: EditInput, matched: str, old: str, change: Change) -> dict[str, Any]:  # JSON
    return {
        "filePath": given.file_path,
        "oldString": matched,
        "newString": given.new_string,
        "originalFile": original_of(old),
        "structuredPatch": change.patch,
        "userModified": False,
        "replaceAll": given.replace_all,
    }
