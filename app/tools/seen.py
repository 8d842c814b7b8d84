"""What the agent knows of a file, and whether the file is still that."""

import hashlib

from app.domain.tools import FileSeen, ToolFacts
from app.tools.open_file import Version


def sha256(data: bytes) -> str:
    """Give the hash that `FileSeen` compares by."""
    return hashlib.sha256(data).hexdigest()


def has_changed(seen: FileSeen, version: Version, digest: str) -> bool:
    """Tell whether a file is another than the agent saw.

    A newer time with the same content is no change, unless only a part was seen. An older time
    is never one (the file may have been restored).
    """
    if version.mtime_ns == seen.mtime_ns:
        # Clocks of file systems tick every few milliseconds: equal times prove little.
        return not seen.partial and digest != seen.sha256
    return version.mtime_ns > seen.mtime_ns and (seen.partial or digest != seen.sha256)


def saw(path: str, digest: str, version: Version, *, partial: bool = False) -> ToolFacts:
    """Give the fact that the agent now knows `path` in this state."""
    return ToolFacts(files={path: FileSeen(digest, version.mtime_ns, partial)})
