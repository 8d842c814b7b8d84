"""Acting on files as somebody else: the sandbox's user, when the service runs as root.

`setfsuid` and `setfsgid` change who the *calling thread* is for file access only. Away from
root the kernel also drops the thread's rights to override permissions; coming back restores
them. So a block must be entered and left in one thread, without awaiting in between; and it
must start no thread or process, which would inherit the identity for good.
"""

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_NO_CHANGE = 2**32 - 1
"""No user has this number: the calls only tell."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user and a group by number."""

    uid: int
    gid: int


@contextmanager
def acting_as(identity: Identity | None) -> Iterator[None]:
    """Do the block's file access as `identity`; None changes nothing.

    Raises PermissionError when the process may not change its identity (it must be root).
    """
    if identity is None:
        yield
        return
    old_gid = _swap("setfsgid")(identity.gid)
    old_uid = _swap("setfsuid")(identity.uid)
    try:
        _check("setfsgid", identity.gid)
        _check("setfsuid", identity.uid)
        yield
    finally:
        _swap("setfsuid")(old_uid)
        _swap("setfsgid")(old_gid)


@functools.cache
def _swap(name: str) -> Callable[[int], int]:
    """Give the call that sets, and tells what it was before. It reports no errors."""
    call: Callable[[int], int] = getattr(ctypes.CDLL(None), name)
    call.argtypes = (ctypes.c_uint,)  # type: ignore[attr-defined]  # a function of ctypes
    return call


def _check(name: str, wanted: int) -> None:
    if _swap(name)(_NO_CHANGE) != wanted:
        raise PermissionError(f"{name}({wanted}) had no effect: the service is not root")
