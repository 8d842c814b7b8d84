"""What Write and Edit share: the file as it is, and putting a new text in its place."""

import posixpath
from dataclasses import dataclass

from app.domain.tools import FileSeen, ToolFacts
from app.errors import ToolFailed
from app.tools.diff import Hunk, structured_patch
from app.tools.encoding import Decoded, decode
from app.tools.failures import no_such_file
from app.tools.open_file import OpenFile, Version, in_thread, use
from app.tools.paths import shown
from app.tools.seen import has_changed, saw, sha256
from app.tools.tool import ToolContext

_MAX_BYTES = 8 * 1024 * 1024
_AT_ONCE_BYTES = 1024 * 1024
"""More is written in a thread: 16 MB take 50 ms."""
_MAX_ORIGINAL = 256 * 1024
"""Longer originals are left out of the structured result; they would bloat the journal."""


@dataclass(frozen=True, slots=True)
class Present:
    """A file that is there."""

    decoded: Decoded
    version: Version
    sha256: str
    is_empty: bool

    def check_encoding(self, path: str) -> None:
        """Refuse what could not be written back as it was."""
        if self.decoded.flaw is not None:
            raise ToolFailed(
                f"{shown(path)} was left as it is: the file {self.decoded.flaw}, and only UTF-8 "
                "and UTF-16LE text can be changed by this tool.",
                wrapped=True,
            )

    def differs_from(self, seen: FileSeen | None) -> bool:
        """Tell whether it is another than the agent saw; never, if it saw none."""
        return seen is not None and has_changed(seen, self.version, self.sha256)


async def load(context: ToolContext, path: str) -> Present | None:
    """Read the file whole; None when there is none."""
    try:
        file = context.workspace.open(path)
    except FileNotFoundError:
        return None
    return await use(file, lambda opened: _present(opened, path))


def _present(file: OpenFile, path: str) -> Present:
    if file.size_bytes > _MAX_BYTES:
        raise ToolFailed(
            f"{shown(path)} is too large to be changed by this tool ({file.size_bytes} bytes, at "
            f"most {_MAX_BYTES}). Use Bash.",
            wrapped=True,
        )
    data = file.content(_MAX_BYTES)
    return Present(decode(data), file.version, sha256(data), is_empty=not data)


def missing(context: ToolContext, path: str) -> ToolFailed:
    """Say that there is no file, with a like name if there is one."""
    names = context.workspace.names(posixpath.dirname(path))
    return no_such_file(path, context.cwd, names, wrapped=True)


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be written, computed away from the event loop where it is much."""

    data: bytes
    sha256: str
    patch: list[Hunk]

    @staticmethod
    def of(decoded: Decoded, old: str | None, new: str) -> "Change":
        """Give the change from `old` (None: not shown) to `new`, encoded as the file was."""
        data = decoded.encode(new)
        return Change(data, sha256(data), [] if old is None else patch_of(old, new))


async def store(
    context: ToolContext,
    path: str,
    change: Change,
    present: Present | None,
    *,
    partial: bool = False,
) -> ToolFacts:
    """Write the file whole; give the fact that the agent knows it (`partial`: in part)."""
    replaces = None if present is None else present.version
    with context.workspace.draft(path, replaces=replaces) as draft:
        if len(change.data) <= _AT_ONCE_BYTES:
            draft.fill(change.data)
        else:
            await in_thread(lambda: draft.fill(change.data))
        version = draft.place()
    return saw(path, change.sha256, version, partial=partial)


def original_of(text: str) -> str | None:
    """Give a text for `originalFile`, unless it is too long."""
    return text if len(text) <= _MAX_ORIGINAL else None


def patch_of(old: str, new: str) -> list[Hunk]:
    """Give the change for `structuredPatch`; of very long texts none."""
    if max(len(old), len(new)) > _MAX_ORIGINAL:
        return []
    return structured_patch(old, new)
