"""Where a search starts."""

from app.errors import ToolFailed
from app.tools.paths import shown
from app.tools.tool import ToolContext


def existing_folder(context: ToolContext, path: str) -> str:
    """Make a folder's path absolute; `ToolFailed` if it is missing or a file."""
    folder = context.workspace.absolute(path, context.cwd)
    try:
        is_folder = context.workspace.is_folder(folder)
    except FileNotFoundError:
        raise ToolFailed(
            f"The folder {shown(folder)} does not exist. The working directory is {context.cwd}.",
            wrapped=True,
        ) from None
    if not is_folder:
        raise ToolFailed(f"{shown(folder)} is a file, not a folder.", wrapped=True)
    return folder
