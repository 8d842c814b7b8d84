"""The folders of an embedded cluster: made and checked, with refusals that say what to do."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import ConfigError

DATA_SETTING = "TREADLE_DATA_DIR"
RUNTIME_SETTING = "XDG_RUNTIME_DIR"
"""What moves the socket's folder, which the settings derive from it."""
_ROOM_BYTES = 100 * 2**20
"""What a new cluster needs: 40 MB of tables and the first segments of the log."""


def prepare(data_dir: Path, runtime_dir: Path, *, socket: Path) -> None:
    """Make both folders (0700) and check that they are ours to use.

    Raises:
        ConfigError: the socket's path is too long, a folder is not writable or not ours.
    """
    _check_length(socket)
    owners = (os.geteuid(), kept_uid(data_dir))
    with disk_errors(data_dir, DATA_SETTING):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (data_dir, data_dir / "pgdata"):
            if folder.exists():
                _check_owner(folder, owners, DATA_SETTING)
        (data_dir / "start.lock").touch(mode=0o600)
    with disk_errors(runtime_dir, RUNTIME_SETTING):
        runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(runtime_dir, owners, RUNTIME_SETTING)
        runtime_dir.chmod(0o700)


def kept_uid(data_dir: Path) -> int | None:
    """The uid that an earlier start as root gave the cluster to; None if it did not."""
    try:
        state = json.loads((data_dir / "state.json").read_bytes())
    except (OSError, json.JSONDecodeError):
        return None
    uid = state.get("server_uid") if isinstance(state, dict) else None
    return uid if isinstance(uid, int) else None


def keep(data_dir: Path, *, major: int, server_uid: int | None) -> None:
    """Remember them; written whole or not at all."""
    part = data_dir / "state.json.part"
    part.write_text(json.dumps({"major": major, "server_uid": server_uid}) + "\n")
    part.rename(data_dir / "state.json")


def check_room(data_dir: Path) -> None:
    """Raises ConfigError when a new cluster has no room."""
    if shutil.disk_usage(data_dir).free < _ROOM_BYTES:
        raise disk_full(data_dir)


def disk_full(folder: Path) -> ConfigError:
    """The error to raise."""
    free = shutil.disk_usage(folder).free
    return ConfigError(
        f"The disk of {folder} is full ({free // 2**20} MB free; a new database needs"
        f" {_ROOM_BYTES // 2**20} MB). Free some space, choose a folder on another disk"
        f" ({DATA_SETTING}), or set DATABASE_URL."
    )


@contextmanager
def disk_errors(folder: Path, setting: str) -> Iterator[None]:
    """Turn what the system says about our folders into what the operator can do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(folder) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ConfigError(
                f"{folder} cannot be written to ({error.strerror}: {error.filename}). Choose a"
                f" folder that the user id {os.geteuid()} may write to ({setting}), or set"
                " DATABASE_URL."
            ) from error
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            raise ConfigError(f"{folder} is not a directory; set {setting}.") from error
        raise


def _check_length(socket: Path) -> None:
    limit = 103 if sys.platform == "darwin" else 107
    if len(os.fsencode(socket)) > limit:
        raise ConfigError(
            f"The path of the database's socket, {socket}, is longer than the {limit} bytes that"
            f" the system allows. Choose a shorter folder for sockets ({RUNTIME_SETTING}), or set"
            " DATABASE_URL."
        )


def _check_owner(folder: Path, owners: tuple[int | None, ...], setting: str) -> None:
    uid = folder.stat().st_uid
    if uid not in owners:
        raise ConfigError(
            f"{folder} belongs to the user id {uid}, but the service runs as {os.geteuid()}. Start"
            f" it as that user, choose another folder ({setting}), or give it away (chown -R"
            f" {os.geteuid()} {folder}) while no server runs there."
        )
