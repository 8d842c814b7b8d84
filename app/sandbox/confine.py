"""A process gives up, for good, everything but computing on what it holds.

For a child of ours that decodes hostile bytes with libraries in C. It imports what it needs,
opens nothing more, confines itself, and only then looks at the bytes. Unlike a command it sees
no files at all, so it needs no namespaces and no view of a file system.
"""

import ctypes
import os
import platform
import resource
import signal

from app.sandbox.seccomp import computing_filter

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def confine(*, uid: int | None, memory_bytes: int, cpu_s: int) -> None:
    """Drop to `uid` (None: stay), set the limits, and forbid all but computing.

    Raises `OSError` where the kernel refuses, `ConfigError` on an unknown machine.
    """
    program = computing_filter(platform.machine())
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for kind, limit in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    # After the change of the user, which clears it.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    filter_ = _Program(len(program) // 8, program)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


def _prctl(option: int, value: int, more: int = 0) -> None:
    call = ctypes.CDLL(None, use_errno=True).prctl
    call.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if call(option, value, more, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
