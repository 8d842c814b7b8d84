"""A session's folders on this host, owned by the user that its commands run as."""

import os
import stat
from pathlib import Path

from app.errors import ConfigError
from app.sandbox.driver import SessionDirs


def session_dirs(parent: Path, name: str) -> SessionDirs:
    """Name the three folders of a session; whether they exist is not looked at."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"not a plain folder name: {name!r}")
    root = parent / name
    return SessionDirs(root / "ws", root / "tmp", root / "home")


def make_session_dirs(parent: Path, name: str, *, uid: int | None) -> SessionDirs:
    """Make, or find again, the three folders of a session below `parent`.

    `name` shows inside the sandbox (in mountinfo): a random id, nothing else. `uid` owns the
    folders; None means the service's own user, and is the only value for a service that is not
    root. All are closed to others (0700).
    """
    dirs = session_dirs(parent, name)
    for folder in (dirs.ws.parent, dirs.ws, dirs.tmp, dirs.home):
        folder.mkdir(mode=0o700, exist_ok=True)
        if uid is not None and folder.lstat().st_uid != uid:
            os.chown(folder, uid, uid, follow_symlinks=False)
    return dirs


def let_owner_in(dirs: SessionDirs, *, uid: int | None) -> None:
    """Give the owner of a session's folders back what a command took away (`chmod -R 600 .`).

    Nothing could be run any more, else, that would give it back. What is somebody else's is left alone.
    """
    owner = os.geteuid() if uid is None else uid
    for folder in (dirs.ws, dirs.tmp, dirs.home):
        info = folder.lstat()
        mode = stat.S_IMODE(info.st_mode)
        if (
            stat.S_ISDIR(info.st_mode)
            and info.st_uid == owner
            and mode & stat.S_IRWXU != stat.S_IRWXU
        ):
            folder.chmod(mode | stat.S_IRWXU)


def check_reachable(folder: Path, *, uid: int) -> None:
    """Raise `ConfigError` unless a user of only this uid and gid can enter the folder."""
    check_enterable(os.path.realpath(folder), uid=uid)


def check_enterable(folder: str, *, uid: int) -> None:
    """Do the same for a path in which there is no link."""
    names = folder.split("/")
    for depth in range(1, len(names) + 1):
        step = "/".join(names[:depth]) or "/"
        if not _can_enter(os.stat(step), uid):  # noqa: PTH116 - each run does this
            raise ConfigError(
                f"The sandbox's user (uid {uid}) cannot enter {step}, which leads to {folder}. "
                f"Run `chmod o+x {step}`, or set TREADLE_DATA_DIR to a folder below one that "
                "everybody may enter, such as /var/lib/treadle."
            )


def _can_enter(info: os.stat_result, uid: int) -> bool:
    if info.st_uid == uid:
        return bool(info.st_mode & stat.S_IXUSR)
    if info.st_gid == uid:
        return bool(info.st_mode & stat.S_IXGRP)
    return bool(info.st_mode & stat.S_IXOTH)
