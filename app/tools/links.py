"""Where a path leads when symbolic links are followed, in the agent's view.

For permissions, which must see through links. It is an answer for now: who may change the folder
may change it again before the file is opened, so that nothing here replaces `open_beneath`.
"""

import os
from collections.abc import Callable

from app.errors import ToolFailed
from app.tools.paths import View

_MAX_LINKS = 40


def real_path(path: str, view: View, root_fd: Callable[[str], int]) -> str:
    """Follow the links of an absolute path, missing files included.

    `root_fd` gives the open folder of a mount. Beyond the session's folders nothing is looked at.
    Never raises: a path that goes round in circles is given as far as it was followed.
    """
    done: list[str] = []
    pending = _parts(path)
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            del done[-1:]
            continue
        target = (
            _target("/" + "/".join([*done, part]), view, root_fd) if links < _MAX_LINKS else None
        )
        if target is None:
            done.append(part)
            continue
        links += 1
        if target.startswith("/"):
            done = []
        pending += _parts(target)
    return "/" + "/".join(done)


def _target(path: str, view: View, root_fd: Callable[[str], int]) -> str | None:
    try:
        mount, rest = view.locate(path)
        return os.readlink(rest, dir_fd=root_fd(mount)) if rest else None
    except (ToolFailed, OSError, ValueError):  # outside, no link, or not there
        return None


def _parts(path: str) -> list[str]:
    """Give the components, last one first."""
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]
