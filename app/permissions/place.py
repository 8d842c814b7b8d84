"""Where a run works, as far as permissions care: its folders, and where links lead."""

import functools
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.permissions.path_rules import absolute, may_meet

_PROTECTED_FOLDERS = frozenset({".git", ".claude", ".husky", ".vscode", ".idea"})
_PROTECTED_FILES = frozenset(
    [
        ".bashrc",
        ".bash_profile",
        ".bash_login",
        ".bash_logout",
        ".bash_aliases",
        ".profile",
        ".zshrc",
        ".zprofile",
        ".zshenv",
        ".gitconfig",
        ".gitmodules",
        ".mcp.json",
        ".ripgreprc",
        ".npmrc",
        ".envrc",
    ]
)


def _unlinked(path: str) -> str:
    return path


@dataclass(frozen=True, slots=True)
class Place:
    """The session's folders, in the agent's view."""

    root: str = "/workspace"
    home: str = "/home/agent"
    extra: tuple[str, ...] = ("/tmp",)  # noqa: S108 - inside the sandbox
    """Further folders of the session that may be read and written like the root."""
    real: Callable[[str], str] = _unlinked
    """Gives where an absolute path leads when links are followed. Never raises; may look at the
    disk. The path need not be normal."""
    readable: tuple[str, ...] = ()
    """Further folders that may be read alone."""

    def absolute(self, path: str, cwd: str | None) -> str:
        """Make a path absolute and normal. It may still be a link."""
        return absolute(path, cwd or self.root, self.home)

    def forms(self, path: str, cwd: str | None, *, of_file_tool: bool = False) -> tuple[str, ...]:
        """Give an absolute path as it is written, and where it leads if that is elsewhere."""
        written = self.absolute(path, cwd)
        # `..` behind a link leads where the link's target lies, not where the link does; but file
        # tools take it out before they look at the disk.
        is_text = of_file_tool or ".." not in path
        joined = written if is_text else posixpath.join(cwd or self.root, path)
        real = self.real(joined)
        return (written,) if real == written else (written, real)

    def is_writable(self, forms: Iterable[str]) -> bool:
        """Say whether a path lies where a run works."""
        return _is_in(forms, (self.root, *self.extra))

    def is_own_folder(self, forms: Iterable[str]) -> bool:
        """Say whether a path is one of the folders themselves in which a run works."""
        return not {self.root, self.home, *self.extra}.isdisjoint(forms)

    def is_readable(self, forms: Iterable[str]) -> bool:
        """Say whether a path lies in one of the session's folders."""
        return _is_in(forms, (self.root, self.home, *self.extra, *self.readable))


def is_protected(forms: Iterable[str]) -> bool:
    """Say whether a change there changes what programs do later: settings, hooks, start files."""
    for form in forms:
        parts = form.split("/")
        if parts[-1] in _PROTECTED_FILES or not _PROTECTED_FOLDERS.isdisjoint(parts):
            return True
    return False


def may_be_protected(glob: str) -> bool:
    """Say whether the shell may put a protected path in the place of a word: `.g*/config`."""
    names = _PROTECTED_FOLDERS | _PROTECTED_FILES
    return any(may_meet(name, part) for part in glob.split("/") for name in names)


def _is_in(forms: Iterable[str], folders: tuple[str, ...]) -> bool:
    starts = _starts(folders)
    return all(f"{form}/".startswith(starts) for form in forms)


@functools.lru_cache(maxsize=256)
def _starts(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Give how paths in these folders begin, those of the folders themselves included."""
    return tuple(folder.rstrip("/") + "/" for folder in folders)
