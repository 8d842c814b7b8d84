"""Tools of the operator: Python packages that name theirs under the entry point `treadle.tools`.

They run in the service's own process, as trusted as the service; what they do with a file or a
command goes through their `ToolContext` like that of the built-in ones. See `examples/`.
"""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from app.errors import ConfigError
from app.tools.tool import Tool

GROUP = "treadle.tools"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the Messages API takes as a name."""


def installed_tools(
    taken: Iterable[str], found: Iterable[EntryPoint] | None = None
) -> tuple[Tool[Any], ...]:
    """Load the tools of all installed packages, in the order of their entry points' names.

    An entry point is one tool or a sequence of them. `taken` are names that none may have.
    Raises `ConfigError`, which names the entry point: a tool that is missing would be missed
    in the middle of a run.
    """
    tools: dict[str, Tool[Any]] = {}
    names = set(taken)
    every = entry_points(group=GROUP) if found is None else found
    for point in sorted(every, key=lambda point: point.name):
        for tool in _loaded(point):
            name = tool.spec.name
            if not _NAME.fullmatch(name):
                raise _useless(point, f"{name!r} is no name of a tool ({_NAME.pattern})")
            if name in names:
                raise _useless(point, f"there is another tool of the name {name}")
            names.add(name)
            tools[name] = tool
    return tuple(tools.values())


def _loaded(point: EntryPoint) -> Sequence[Tool[Any]]:
    try:
        value = point.load()
    except Exception as error:  # whatever a package does when it is imported
        raise _useless(point, f"{type(error).__name__}: {error}") from error
    tools = [value] if isinstance(value, Tool) else value
    if not isinstance(tools, Sequence) or not all(isinstance(tool, Tool) for tool in tools):
        raise _useless(point, "it is neither a tool nor a sequence of tools")
    return tools


def _useless(point: EntryPoint, why: str) -> ConfigError:
    package = f" of the package {point.dist.name}" if point.dist else ""
    return ConfigError(
        f"The entry point {point.name} = {point.value}{package} ({GROUP}) cannot be used: {why}. "
        "Mend the package, or uninstall it."
    )
