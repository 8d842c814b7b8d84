"""Output that is too long for a result: stored in a file of the session, its beginning shown."""

from dataclasses import dataclass

from app.domain.text import printable

MAX_CHARS = 30_000
"""Of a command's output in a result; more is stored and previewed."""
PREVIEW_BYTES = 2_000
_UNITS = ("KB", "MB", "GB")


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """A file that holds a whole output."""

    path: str
    """In the agent's view; Read takes it."""
    size_bytes: int


def output_path(tmp: str, name: str) -> str:
    """Give the path of a file for an output, below the session's folder for passing things."""
    return f"{tmp}/treadle/{name}.txt"


def preview(stored: StoredOutput, head: str) -> str:
    """Give what the model sees in place of the output; `head` is its beginning."""
    shown = _whole_lines(head.encode()[:PREVIEW_BYTES].decode(errors="ignore"), head)
    return (
        "<persisted-output>\n"
        f"The output is long ({human_size(stored.size_bytes)}). All of it is in {stored.path}; "
        "Read shows any part of it.\n\n"
        f"Its beginning:\n{printable(shown)}\n...\n"
        "</persisted-output>"
    )


def human_size(size_bytes: int) -> str:
    """Write a size with one decimal, in units of 1024: `29.3KB`."""
    size = size_bytes / 1024
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}{_UNITS[-1]}"


def _whole_lines(shown: str, head: str) -> str:
    """Cut back to the end of a line, where there is one."""
    if len(shown) == len(head):
        return shown
    return shown[:end] if (end := shown.rfind("\n")) > 0 else shown
