"""The system calls that a sandboxed command may not make: a seccomp filter as BPF bytes.

The kernel runs the program on every system call. It loads the architecture, kills what is
foreign, then compares the call's number with the list. `clone3` is said not to exist, since its
flags stand behind a pointer that a filter cannot follow; libc then uses `clone`, whose flags
are looked at.
"""

import struct
from collections.abc import Iterator
from functools import cache
from itertools import chain

from app.errors import ConfigError

_DENIED: dict[str, tuple[int, int]] = {  # name: (x86_64, aarch64)
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "setns": (308, 268),
    "unshare": (272, 97),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "reboot": (169, 142),
}
_COMPUTES: dict[str, tuple[int, int]] = {  # name: (x86_64, aarch64)
    "read": (0, 63),
    "pread64": (17, 67),
    "write": (1, 64),
    "close": (3, 57),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "brk": (12, 214),
    "madvise": (28, 233),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "sched_yield": (24, 124),
    "futex": (202, 98),
    "clock_gettime": (228, 113),
    "gettimeofday": (96, 169),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "tgkill": (234, 131),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
"""What a process needs that only computes on descriptors that it holds already."""
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # AUDIT_ARCH_…
_X32_BIT = 0x40000000
_CLONE_NEWUSER = 0x10000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in `struct seccomp_data`; the low half of the argument, as both are little-endian."""

ALLOW = 0x7FFF0000
KILL = 0x80000000
EPERM = 0x00050001
ENOSYS = 0x00050026


@cache
def seccomp_filter(machine: str) -> bytes:
    """Give the filter for `platform.machine()`'s word; `ConfigError` for any other machine."""
    return b"".join(_program(*_architecture(machine)))


@cache
def computing_filter(machine: str) -> bytes:
    """Give a filter that leaves a process nothing but memory and the descriptors it holds.

    No file can be opened, no socket or process made; what is refused fails with EPERM.
    `ConfigError` as above.
    """
    column, arch = _architecture(machine)
    allowed = (_when(_EQUAL, numbers[column], ALLOW) for numbers in _COMPUTES.values())
    return b"".join([*_head(column, arch), *chain.from_iterable(allowed), _step(_RETURN, EPERM)])


def _architecture(machine: str) -> tuple[int, int]:
    if machine not in _ARCHITECTURES:
        raise ConfigError(
            f"The sandbox knows no system call filter for {machine}; run on x86_64 or aarch64, "
            "or set TREADLE_SANDBOX=none where a single trusted tenant is served."
        )
    return _ARCHITECTURES[machine]


def _head(column: int, arch: int) -> Iterator[bytes]:
    """Kill what is foreign; leave the call's number loaded."""
    yield _step(_LOAD, _ARCH)
    yield _step(_EQUAL, arch, 1, 0)
    yield _step(_RETURN, KILL)
    yield _step(_LOAD, _NUMBER)
    if column == 0:
        yield from _when(_AT_LEAST, _X32_BIT, KILL)


def _program(column: int, arch: int) -> Iterator[bytes]:
    yield from _head(column, arch)
    for numbers in _DENIED.values():
        yield from _when(_EQUAL, numbers[column], EPERM)
    yield from _when(_EQUAL, _CLONE3[column], ENOSYS)
    yield _step(_EQUAL, _CLONE[column], 1, 0)
    yield _step(_RETURN, ALLOW)
    yield _step(_LOAD, _FIRST_ARGUMENT)
    yield from _when(_ANY_BIT, _CLONE_NEWUSER, EPERM)
    yield _step(_RETURN, ALLOW)


def _when(test: int, value: int, action: int) -> Iterator[bytes]:
    """Return `action` if the test holds for what was loaded, else go on."""
    yield _step(test, value, 0, 1)
    yield _step(_RETURN, action)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Pack one `struct sock_filter`; jumps count instructions to skip."""
    return struct.pack("<HBBI", code, if_true, if_false, value)
