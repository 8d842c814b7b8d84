"""Results that are too long for the model: stored in a file of the session, a part of it shown.

The toolbox does so for every tool (`Tool.most_chars`); Bash, whose output may be in its file before
the command has ended, does it with the same words. The file is the agent's own: Read takes it, and
clients get it through the API.
"""

import os
import secrets
from dataclasses import replace
from typing import Any

from app.domain.text import printable
from app.domain.tools import JsonValue, StoredOutput, ToolResult
from app.errors import ToolFailed
from app.tools.open_file import compute
from app.tools.workspace import Workspace

MAX_CHARS = 30_000
"""Of a command's output in a result; and of all text in the structured form of a stored one."""
MOST_STORED_BYTES = 2 * 1024**3
"""Of the outputs that a session keeps on a host, together."""
MOST_STORED = 5_000
"""How many there may be."""
PREVIEW_BYTES = 2_000
_FAILURE_PART = 5_000
"""Characters of a long failure that are shown: so many from its beginning, and from its end."""
_FOLDER = "treadle"
_UNITS = ("KB", "MB", "GB")


async def shortened(result: ToolResult, most_chars: int | None, workspace: Workspace) -> ToolResult:
    """Store the text of a result that is longer than `most_chars`, and show a part.

    Of a success the beginning is shown, of a failure the end too. Blocks other than text stay.
    """
    if most_chars is None or not is_long(result, most_chars):
        return result
    content = result.content
    whole = "\n\n".join(_texts(content))
    path = output_path(workspace.view.tmp, f"r{secrets.token_hex(6)}")
    stored = await store(whole.encode(), path, workspace)
    if result.is_error or stored is None:
        shown = _ends(whole, min(_FAILURE_PART, most_chars // 2), stored)
    else:
        shown = preview(stored, whole)
    others = [] if isinstance(content, str) else [b for b in content if b.get("type") != "text"]
    return replace(
        result,
        content=[{"type": "text", "text": shown}, *others] if others else shown,
        structured=_bounded(result.structured, stored),
        stored=stored,
    )


def is_long(result: ToolResult, most_chars: int) -> bool:
    """Say whether a result has more text than is shown."""
    return text_chars(result) > most_chars


def text_chars(result: ToolResult) -> int:
    """Count the characters of text in a result."""
    return sum(map(len, _texts(result.content)))


async def store(whole: bytes, path: str, workspace: Workspace) -> StoredOutput | None:
    """Make a file of an output; None when that cannot be done.

    The folder is the agent's own: anything may stand in the way.
    """
    try:
        fd = new_output(path, workspace, room_bytes=len(whole))
    except (OSError, ToolFailed):
        return None

    def write() -> StoredOutput | None:
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(whole)
        except OSError:
            return None
        return StoredOutput(path, len(whole))

    return await compute(write, size_bytes=len(whole))


def new_output(path: str, workspace: Workspace, *, room_bytes: int) -> int:
    """Make the file of an output; gives a descriptor, which the caller closes.

    `room_bytes` is what may still be written, to this file and to others. Raises `ToolFailed` when
    the session keeps as much as it may.
    """
    check_stored(workspace, room_bytes=room_bytes)
    return workspace.create(path)


def check_stored(workspace: Workspace, *, room_bytes: int) -> None:
    """Raise `ToolFailed` when the outputs that a session keeps leave no room for so much."""
    folder = f"{workspace.view.tmp}/{_FOLDER}"
    count, size_bytes = workspace.usage(folder, MOST_STORED)
    if count >= MOST_STORED or size_bytes + room_bytes > MOST_STORED_BYTES:
        raise ToolFailed(
            f"The session's quota of stored outputs is used up ({human_size(MOST_STORED_BYTES)}, "
            f"{MOST_STORED:,} files). Remove what is no longer needed from {folder}."
        )


def output_path(tmp: str, name: str) -> str:
    """Give the path of a file for an output, below the session's folder for passing things."""
    return f"{tmp}/{_FOLDER}/{name}.txt"


def preview(stored: StoredOutput, head: str) -> str:
    """Give what the model sees in place of the output; `head` is its beginning."""
    shown = _whole_lines(
        head[:PREVIEW_BYTES].encode()[:PREVIEW_BYTES].decode(errors="ignore"), head
    )
    return (
        "<persisted-output>\n"
        f"The output is long ({human_size(stored.size_bytes)}). All of it is in {stored.path}; "
        "Read shows any part of it.\n\n"
        f"Its beginning:\n{printable(shown)}\n...\n"
        "</persisted-output>"
    )


def wire_fields(stored: StoredOutput) -> dict[str, Any]:
    """Give what the structured form of a stored output says of the file."""
    return {"persistedOutputPath": stored.path, "persistedOutputSize": stored.size_bytes}


def human_size(size_bytes: int) -> str:
    """Write a size with one decimal, in units of 1024: `29.3KB`."""
    size = size_bytes / 1024
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}{_UNITS[-1]}"


def _texts(content: str | list[dict[str, Any]]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if block.get("type") == "text"]


def _whole_lines(shown: str, head: str) -> str:
    """Cut back to the end of a line, where there is one."""
    if len(shown) == len(head):
        return shown
    return shown[:end] if (end := shown.rfind("\n")) > 0 else shown


def _ends(whole: str, part: int, stored: StoredOutput | None) -> str:
    """Give the first and the last characters, and between them what is missing."""
    where = f"; all of it is in {stored.path}" if stored else ""
    note = f"[… about {len(whole) - 2 * part:,} characters are left out here{where} …]"
    return f"{whole[:part]}\n\n{note}\n\n{whole[-part:]}"


def _bounded(structured: JsonValue, stored: StoredOutput | None) -> JsonValue:
    """Cut the structured form to what belongs into a message, and name the file in it."""
    cut, _ = _within(structured, MAX_CHARS)
    return cut | wire_fields(stored) if isinstance(cut, dict) and stored else cut


def _within(value: JsonValue, room: int) -> tuple[JsonValue, int]:
    """Cut texts and lists until they take no more than `room` characters; give what is left of it."""
    match value:
        case str():
            return value[:room], room - len(value[:room])
        case list():
            kept: list[JsonValue] = []
            for item in value:
                if room <= 0:
                    break
                shorter, room = _within(item, room - 1)
                kept.append(shorter)
            return kept, room
        case dict():
            fields: dict[str, JsonValue] = {}
            for name, item in value.items():
                fields[name], room = _within(item, max(room, 0))
            return fields, room
        case _:
            return value, room
