"""Path patterns of rules: gitignore's, with anchors of their own.

`/src/**` stands at the project's root, `//abs/**` at the file system's, `~/x` in the agent's home;
all others (`./x`, `x/**`, `*.env`) at any depth.
"""

import posixpath
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from pathspec import GitIgnoreSpec

_CHILD = "/\x01"
"""A name that no pattern names: what lies in a folder."""
_SETS = re.compile(r"\[.*\]|\[")
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class PathPattern:
    """One pattern. Paths are absolute and normal, in the agent's view."""

    text: str
    root: str
    home: str

    @cached_property
    def _base(self) -> str:
        return self._placed[0]

    @cached_property
    def is_anchored(self) -> bool:
        return self.text.startswith(("/", "~/")) or ".." in self.text.split("/")

    @cached_property
    def line(self) -> str:
        """The pattern in gitignore's own words, beneath its base."""
        return self._placed[1]

    @cached_property
    def _placed(self) -> tuple[str, str]:
        """Give base and line. Paths are normal, so `//`, `.` and `..` within would match none."""
        text, base = self.text, self.root
        if text.startswith("//"):
            base = "/"
        elif text.startswith("~/"):
            text, base = text[1:], self.home
        parts = [part for part in text.split("/") if part not in ("", ".")]
        end = "/" if text.endswith("/") else ""
        if ".." in parts:
            found: list[str] = []
            for part in [*base.strip("/").split("/"), *parts]:
                if part != "..":
                    found.append(part)
                elif found:
                    found.pop()
            base, parts = "/", [part for part in found if part]
        line = f"{'/'.join(parts)}{end}"
        if self.is_anchored:
            return base, f"/{line}"
        return base, line if parts[:1] == ["**"] and len(parts) > 1 else f"**/{line}"

    @cached_property
    def _regex(self) -> re.Pattern[str] | None:
        """What covers a path beneath the base; None for a pattern that names nothing."""
        patterns = list(GitIgnoreSpec.from_lines([self.line]).patterns)
        regex = patterns[0].regex if len(patterns) == 1 else None
        return regex if isinstance(regex, re.Pattern) else None

    def _covers(self, inner: str) -> bool:
        return self._regex is not None and self._regex.match(inner) is not None

    @property
    def is_valid(self) -> bool:
        """Whether it names anything at all."""
        try:
            return self._regex is not None and bool(self.text.strip("/~. "))
        except ValueError:
            return False

    def matches(self, path: str) -> bool:
        """Say whether the pattern covers a file."""
        inner = beneath(path, self._base)
        return inner is not None and bool(inner) and self._covers(inner)

    def touches(self, path: str) -> bool:
        """Say whether the pattern covers a path, or all that lies in it as a folder."""
        inner = beneath(path, self._base)
        if inner is None:
            if self.is_anchored:
                return False
            inner = path.lstrip("/")
        child = f"{inner}{_CHILD}" if inner else _CHILD[1:]
        return self._covers(child) or (bool(inner) and self._covers(inner))

    def may_touch(self, glob: str) -> bool:
        """Say whether one of the paths that a shell's `glob` stands for may be covered."""
        fixed = [part for part in self.line.split("/") if part and part != "**"]
        for part in glob.split("/"):
            if _MAGIC.search(part) and any(may_meet(name, part) for name in fixed):
                return True
        return not fixed or self.touches(posixpath.dirname(_MAGIC.split(glob)[0] + "x"))


def may_meet(name: str, glob: str) -> bool:
    """Say whether a part of a shell's glob may stand for a name. A star finds no hidden one."""
    if _MAGIC.search(name):
        return True
    is_hidden = name.startswith(".") and not glob.startswith(".")
    # What the shell takes for a set of characters (`[^x]`, `[[:alpha:]]`) is more than fnmatch knows.
    return not is_hidden and fnmatchcase(name, _SETS.sub("*", glob))


def beneath(path: str, folder: str) -> str | None:
    """Give a path relative to a folder, empty for the folder itself; None when it lies outside."""
    if path == folder:
        return ""
    start = folder.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None


def absolute(path: str, cwd: str, home: str) -> str:
    """Give the absolute, normal form of what a shell or a tool is given."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    joined = posixpath.normpath(posixpath.join(cwd, path))
    return joined[1:] if joined.startswith("//") else joined
