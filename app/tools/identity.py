"""Acting on files as somebody else: the sandbox's user, when the service runs as root.

`setfsuid` and `setfsgid` change who the *calling thread* is for file access only. Away from
root the kernel also drops the thread's rights to override permissions; coming back restores
them. So a block must be entered and left in one thread, without awaiting in between; and it
must start no thread or process, which would inherit the identity for good.
"""

import ctypes
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

_NO_CHANGE = 2**32 - 1
"""No user has this number: the calls only tell."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user and a group by number."""

    uid: int
    gid: int


def acting_as(identity: Identity | None) -> AbstractContextManager[None]:
    """Do the block's file access as `identity`; None changes nothing.

    Entering raises PermissionError when the process may not change its identity (it must be root).
    """
    return _AS_IT_IS if identity is None else _Acting(identity)


_AS_IT_IS = nullcontext()


class _Acting:
    """A class, not a generator: each file that is opened has one."""

    __slots__ = ("_identity", "_old_gid", "_old_uid")

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def __enter__(self) -> None:
        gid, uid = self._identity.gid, self._identity.uid
        set_gid, set_uid = _swaps()
        self._old_gid = set_gid(gid)
        self._old_uid = set_uid(uid)
        if set_gid(_NO_CHANGE) != gid or set_uid(_NO_CHANGE) != uid:
            self._come_back()
            raise PermissionError(f"acting as {uid}:{gid} had no effect: the service is not root")

    def __exit__(self, *_: object) -> None:
        self._come_back()

    def _come_back(self) -> None:
        set_gid, set_uid = _swaps()
        set_uid(self._old_uid)
        set_gid(self._old_gid)


@functools.cache
def _swaps() -> tuple[Callable[[int], int], Callable[[int], int]]:
    """Give `setfsgid` and `setfsuid`: each sets, and tells what it was before; it reports no errors."""
    return _swap("setfsgid"), _swap("setfsuid")


def _swap(name: str) -> Callable[[int], int]:
    call: Callable[[int], int] = getattr(ctypes.CDLL(None), name)
    call.argtypes = (ctypes.c_uint,)  # type: ignore[attr-defined]  # a function of ctypes
    return call
