"""The disk under the hosts, small enough to be filled, and never the machine's.

In a mount namespace of our own the hosts' data directory is a small tmpfs that nobody else sees.
Elsewhere the hosts' limit on file sizes stands in for it.
"""

import resource
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.chaos.namespaces import has_own

_SIZE_MIB = 96
_MOST_FILES = 20_000
"""Of the small mount: appending to a file may need no room, making one always does."""
_CHUNK = b"\0" * 65536
Means = Literal["mount", "limit"]


@dataclass(slots=True)
class Ground:
    """The hosts' data directory."""

    folder: Path
    means: Means

    @property
    def _ballast(self) -> Path:
        return self.folder / ".ballast"

    def fill(self) -> None:
        """Leave no room, for data or for files. Blocking."""
        self._ballast.mkdir()
        with suppress(OSError), (self._ballast / "data").open("wb", buffering=0) as ballast:
            for size in (len(_CHUNK), 4096):
                with suppress(OSError):
                    while ballast.write(_CHUNK[:size]) == size:
                        pass
        with suppress(OSError):
            for number in range(_MOST_FILES):
                (self._ballast / str(number)).touch()

    def free(self) -> None:
        """Give the room back. Safe to repeat. Blocking."""
        shutil.rmtree(self._ballast, ignore_errors=True)


def lay_ground(folder: Path) -> Ground:
    """Make the data directory."""
    folder.mkdir(mode=0o755)
    if not has_own("mount"):
        return Ground(folder, "limit")
    options = f"size={_SIZE_MIB}m,nr_inodes={_MOST_FILES},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", str(folder)], check=True)
    return Ground(folder, "mount")


def take_up_ground(ground: Ground) -> None:
    """Undo `lay_ground`."""
    if ground.means == "mount":
        subprocess.run(["umount", "--lazy", str(ground.folder)], check=False)


def limit_files(pid: int, size_bytes: int | None) -> None:
    """Limit the size of files that a process, and what it starts, can write; None lifts it."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    soft = hard if size_bytes is None else size_bytes
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
