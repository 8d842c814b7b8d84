"""Skills that tenants uploaded, as folders of this host.

A folder is named by its content's hash, so it never changes and any number of runs, of any
tenant, may read it. It is made when a run first needs it, and goes when none has for long.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.tools.bundle import unpacked

KEEP_S = 7 * 24 * 3600.0
"""How long a folder stays that no run has opened."""


@dataclass(frozen=True, slots=True)
class BundleFolders:
    """Folders below one of the data directory. All methods are blocking."""

    root: Path

    def path(self, sha256: str) -> Path:
        """Name the folder of a content, whether it is there or not."""
        return self.root / sha256

    def has(self, sha256: str) -> bool:
        """Whether a content is here; then it stays for a while."""
        try:
            os.utime(self.path(sha256))
        except FileNotFoundError:
            return False
        return True

    def put(self, sha256: str, archive: bytes) -> None:
        """Write a content, whole or not at all; take away what nobody needs. Raises `OSError`."""
        self._clean()
        draft = self.root / f".new-{secrets.token_hex(8)}"
        try:
            draft.mkdir(mode=0o755)
            for path, file in unpacked(archive).items():
                target = draft / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.data)
                target.chmod(0o555 if file.is_executable else 0o444)
            for folder, _, _ in os.walk(draft):
                Path(folder).chmod(0o755)  # whatever the service's umask is
            try:
                draft.rename(self.path(sha256))
            except OSError:
                if not self.has(sha256):  # else another was quicker
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _clean(self) -> None:
        for folder in self._unused(time.time() - KEEP_S):
            trash = self.root / f".old-{secrets.token_hex(8)}"
            with suppress(OSError):  # another process does the same
                folder.rename(trash)
                shutil.rmtree(trash, ignore_errors=True)

    def _unused(self, since: float) -> Iterator[Path]:
        with os.scandir(self.root) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < since:
                        yield Path(entry.path)
