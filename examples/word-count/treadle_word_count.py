"""Two tools: one that only looks, and one that changes something."""

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.tool import ToolContext, ToolInput, tool

MAX_BYTES = 1_000_000


class CountInput(ToolInput):
    file_path: str
    """The file. A relative path starts at the working directory."""


class NoteInput(ToolInput):
    text: str
    """What to note down: one line."""


@tool(
    name="WordCount",
    description="Count the words of a text file.",
    input_model=CountInput,
    read_only=True,  # neighbouring calls may run at the same time, and again after a crash
)
async def word_count(given: CountInput, context: ToolContext) -> ToolResult:
    """Count what white space parts."""
    words = len(_content(context, given.file_path).split())
    return ToolResult(f"{words} words", structured={"words": words})


@tool(
    name="NoteDown",
    description="Add a line to the file notes.txt in the workspace.",
    input_model=NoteInput,
    edits_files=True,
)
async def note_down(given: NoteInput, context: ToolContext) -> ToolResult:
    """Write the file anew: it is whole at every moment."""
    path = context.workspace.absolute("notes.txt", context.workspace.root)
    try:
        with context.workspace.open(path) as file:
            old, version = file.content(MAX_BYTES), file.version
    except FileNotFoundError:
        old, version = b"", None
    context.workspace.write(path, old + given.text.encode() + b"\n", replaces=version)
    return ToolResult("Noted.")


def _content(context: ToolContext, file_path: str) -> bytes:
    path = context.workspace.absolute(file_path, context.cwd)
    try:
        with context.workspace.open(path) as file:
            return file.content(MAX_BYTES)
    except FileNotFoundError:
        raise ToolFailed(f"{file_path} does not exist.") from None


TOOLS = (word_count, note_down)
