"""Opening files beneath a directory descriptor, whatever the path and whoever races us.

A check of a path followed by an open of the same path can be raced: the agent's own processes
may swap a folder for a link in between. So the kernel resolves and opens in one step
(`openat2` with RESOLVE_BENEATH, Linux 5.6). Where that call is missing or filtered, we walk:
each component is opened on its own without following links, and links are resolved here.
Both refuse every way out with EXDEV: absolute links, and `..` above the root.
"""

import ctypes
import errno
import functools
import os
import sys
from collections.abc import Callable

_OPENAT2 = 437
"""The call's number, the same on all architectures that Python wheels exist for."""
_BENEATH = 0x08 | 0x02
"""RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS."""
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40
_MAX_TRIES = 16
"""The kernel answers EAGAIN when a rename disturbed the resolution of a `..`."""


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_beneath(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path`, relative to `root_fd`, and give a descriptor that the caller closes.

    Symbolic links are followed while they stay beneath the root; `O_NOFOLLOW` in `flags` is
    about the last component. Raises OSError as `open` does, with EXDEV for a way out.
    """
    flags |= os.O_CLOEXEC
    try:
        return _by_kernel(root_fd, path, flags, mode)
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM}:
            raise
    # Missing, or filtered (older container profiles answer EPERM). Were the EPERM a true one,
    # the walk meets it too.
    return walk_beneath(root_fd, path, flags, mode)


def _by_kernel(root_fd: int, path: str, flags: int, mode: int) -> int:
    call = _syscall()
    how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, _BENEATH)
    name = os.fsencode(path or ".")
    for _ in range(_MAX_TRIES):
        fd = call(_OPENAT2, root_fd, name, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number != errno.EAGAIN:
            break
    raise OSError(number, os.strerror(number), path)


@functools.cache
def _syscall() -> Callable[..., int]:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


def walk_beneath(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """Do what `open_beneath` does, by one open a component."""
    held = [os.dup(root_fd)]
    try:
        return _walk(held, _parts(path), flags | os.O_CLOEXEC, mode)
    finally:
        for fd in held:
            os.close(fd)


def _walk(held: list[int], pending: list[str], flags: int, mode: int) -> int:
    """`held` is the chain of folders from the root down; `pending` the rest, next one last."""
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            _leave(held)
            continue
        is_last = not pending
        target = None if is_last and flags & os.O_NOFOLLOW else _link_target(part, held[-1])
        if target is not None:
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
            pending += _parts(target)
            continue
        # A link that appears here by a race is not followed: O_NOFOLLOW.
        if is_last:
            return os.open(part, flags | os.O_NOFOLLOW, mode, dir_fd=held[-1])
        held.append(os.open(part, _FOLDER, dir_fd=held[-1]))
    return os.open(".", flags, mode, dir_fd=held[-1])


def _leave(held: list[int]) -> None:
    if len(held) == 1:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    os.close(held.pop())


def _link_target(part: str, folder_fd: int) -> str | None:
    try:
        return os.readlink(part, dir_fd=folder_fd)
    except OSError:
        return None


def _parts(path: str) -> list[str]:
    """Give the components, last one first."""
    if path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]
