"""Write: create a file, or replace one whole."""

from typing import Any

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.builtin.changed_file import Change, Present, load, original_of, store
from app.tools.builtin.output_words import write_words
from app.tools.encoding import Decoded
from app.tools.open_file import compute
from app.tools.paths import shown
from app.tools.tool import ToolContext, ToolInput, tool


class WriteInput(ToolInput):
    file_path: str
    """The file. A relative path starts at the working directory; missing folders are made."""
    content: str
    """The whole content, stored exactly as given."""


@tool(
    name="Write",
    description=(
        "Create a file, or replace the whole content of one. A file that has content must have "
        "been read first. To change a part of a file use Edit."
    ),
    input_model=WriteInput,
    words_of=write_words,
    edits_files=True,
)
async def write_tool(given: WriteInput, context: ToolContext) -> ToolResult:
    """Write the whole content, unless it would replace what the agent does not know."""
    path = context.workspace.absolute(given.file_path, context.cwd)
    present = await load(context, path)
    if present is not None:
        _check_known(context, path, present)
        present.check_encoding(path)
    is_new = present is None or present.is_empty
    decoded = present.decoded if present else Decoded("")
    change = await compute(
        lambda: Change.of(decoded, None if is_new else decoded.text, given.content),
        size_bytes=len(given.content) + len(decoded.text),
    )
    facts = await store(context, path, change, present)
    return ToolResult(
        f"{'Created' if is_new else 'Updated'} {given.file_path}. Its content is now exactly what "
        "you gave; there is no need to read it back.",
        structured=_structured(given, None if is_new else decoded.text, change),
        facts=facts,
    )


def _check_known(context: ToolContext, path: str, present: Present) -> None:
    """Refuse to replace content that the agent never saw, or saw differently."""
    seen = context.memory.files.get(path)
    if seen is None and not present.is_empty:
        raise ToolFailed(
            f"{shown(path)} has content that was not read in this session. Read it first, then "
            "write it.",
            wrapped=True,
        )
    if present.differs_from(seen):
        raise ToolFailed(
            f"{shown(path)} has changed since you last read or wrote it. Read it again, then "
            "write it.",
            wrapped=True,
        )


def _structured(given: WriteInput, old: str | None, change: Change) -> dict[str, Any]:  # JSON
    return {
        "type": "create" if old is None else "update",
        "filePath": given.file_path,
        "content": given.content,
        "structuredPatch": change.patch,
        "originalFile": None if old is None else original_of(old),
        "userModified": False,
    }
