"""Paths in the agent's view: `/workspace/…`, `/tmp/…`, `/home/agent/…`.

A path is text until it is opened: it is made absolute and free of `..` here, without asking
the disk, and then belongs to one mount or to none.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.domain.text import printable, unstorable
from app.errors import ToolFailed

_MAX_PATH_BYTES = 4096


@dataclass(frozen=True, slots=True)
class View:
    """Where the agent finds its folders."""

    root: str
    """The session's folder."""
    home: str
    """What `~` stands for."""
    mounts: Mapping[str, Path]
    """Each visible folder and where it is on this host."""
    tmp: str = "/tmp"  # noqa: S108 -- inside the sandbox
    """The folder among them for what is not part of the work."""
    readable: frozenset[str] = frozenset()
    """Those among them in which nothing can be written."""
    _beneath: tuple[tuple[str, str], ...] = field(init=False)
    """Each mount, and how the paths in it begin. Longest first: without a sandbox one folder may
    lie inside another."""

    def __post_init__(self) -> None:
        longest_first = sorted(self.mounts, key=len, reverse=True)
        beneath = tuple((mount, mount.rstrip("/") + "/") for mount in longest_first)
        object.__setattr__(self, "_beneath", beneath)

    def absolute(self, path: str, cwd: str) -> str:
        """Make a path absolute and normal. Raises `ToolFailed` for text that names no file."""
        _check_text(path)
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        joined = posixpath.join(cwd, path)
        return "/" + posixpath.normpath(joined).lstrip("/")

    def writable(self, path: str) -> tuple[str, str]:
        """Split a path that is to be written, as `locate` does. Raises `ToolFailed`."""
        mount, rest = self.locate(path)
        if mount in self.readable:
            raise ToolFailed(f"{shown(path)} can only be read: it is part of a skill.")
        return mount, rest

    def locate(self, path: str) -> tuple[str, str]:
        """Split an absolute path into its mount and the rest ("" for the mount itself)."""
        for mount, start in self._beneath:
            if path == mount or path.startswith(start):
                return mount, path[len(mount) :].strip("/")
        folders = ", ".join(mount for mount in self.mounts if mount not in self.readable)
        raise ToolFailed(
            f"{shown(path)} is outside the session's folders ({folders}).",
            wrapped=True,
        )


def relative(path: str, cwd: str) -> str:
    """Shorten an absolute path that lies beneath `cwd`; give others unchanged."""
    prefix = cwd.rstrip("/") + "/"
    return path.removeprefix(prefix)


def one_line(path: str) -> str:
    """Make a path fit for a list with one path a line."""
    return printable(path).replace("\n", "\u240a")


def shown(path: str) -> str:
    """Make a path fit for a message: one line, of bearable length."""
    text = one_line(path)
    return text if len(text) <= 300 else text[:300] + "…"


def _check_text(path: str) -> None:
    flaw = unstorable(path)
    if flaw is not None:
        raise ToolFailed(f"The path {shown(path)} is not valid: it contains {flaw}.", wrapped=True)
    if len(path.encode()) > _MAX_PATH_BYTES:
        raise ToolFailed(f"The path is longer than {_MAX_PATH_BYTES} bytes.", wrapped=True)
