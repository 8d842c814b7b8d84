"""Tools of the operator: Python packages that name theirs under the entry point `treadle.tools`.

They run in the service's own process, as trusted as the service; what they do with a file or a
command goes through their `ToolContext` like that of the built-in ones. See `examples/`.
"""

import re
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any

from app.plugins.entry_points import installed, unusable
from app.tools.tool import Tool

GROUP = "treadle.tools"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the Messages API takes as a name."""


def installed_tools(
    taken: Iterable[str], found: Iterable[EntryPoint] | None = None
) -> tuple[Tool[Any], ...]:
    """Load the tools of all installed packages. `taken` are names that none may have.

    Raises `ConfigError`: see `installed`.
    """
    tools: dict[str, Tool[Any]] = {}
    names = set(taken)
    for point, tool in installed(GROUP, Tool, "tool", found):
        name = tool.spec.name
        if not _NAME.fullmatch(name):
            raise unusable(point, f"{name!r} is no name of a tool ({_NAME.pattern})")
        if name in names:
            raise unusable(point, f"there is another tool of the name {name}")
        names.add(name)
        tools[name] = tool
    return tuple(tools.values())
