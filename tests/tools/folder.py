"""A session's folder, changed behind the agent's back."""

import os
from dataclasses import dataclass
from pathlib import Path

from tests.sandbox.rooms import SANDBOX_UID


@dataclass(frozen=True, slots=True)
class Folder:
    """What lies in it belongs to the sandbox's user, as if a command had made it."""

    ws: Path

    def put(self, path: str, content: str | bytes = b"") -> None:
        """Make a file as the sandbox's user would."""
        target = self.ws / path
        self.mkdir(str(target.parent.relative_to(self.ws)))
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        self.own(path)

    def mkdir(self, path: str) -> None:
        for folder in reversed([self.ws / path, *(self.ws / path).parents]):
            if folder.is_relative_to(self.ws) and not folder.exists():
                folder.mkdir()
                self.own(str(folder.relative_to(self.ws)))

    def own(self, path: str) -> None:
        if SANDBOX_UID is not None:
            os.chown(self.ws / path, SANDBOX_UID, SANDBOX_UID, follow_symlinks=False)

    def symlink(self, path: str, target: str) -> None:
        (self.ws / path).symlink_to(target)
        self.own(path)

    def later(self, path: str, by_s: int = 1) -> None:
        """Move a file's time on, as if it had been changed a while after."""
        status = (self.ws / path).stat()
        changed_ns = status.st_mtime_ns + by_s * 10**9
        os.utime(self.ws / path, ns=(changed_ns, changed_ns))

    def content(self, path: str) -> bytes:
        return (self.ws / path).read_bytes()
