"""Which paths the input of a file tool names."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_KEYS: Mapping[str, str] = {
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "NotebookEdit": "notebook_path",
    "Glob": "path",
    "Grep": "path",
}
_MAGIC = re.compile(r"[*?\[{\\]")


def paths_in(tool: str, given: Mapping[str, Any]) -> Sequence[str]:
    """Give the paths of a call, as the model wrote them; a search without one is in `.`."""
    if tool not in _KEYS:
        return ()
    path = given.get(_KEYS[tool])
    folder = path if isinstance(path, str) and path else "."
    pattern = given.get("pattern")
    if tool == "Glob" and isinstance(pattern, str):
        fixed = _MAGIC.split(pattern)[0]
        if fixed.startswith(("/", "~")):
            return (fixed,)
        return (f"{folder}/{fixed}",) if "/" in fixed else (folder,)
    return (folder,)
