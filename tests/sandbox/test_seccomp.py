import struct

import pytest

from app.errors import ConfigError
from app.sandbox.seccomp import _DENIED, ALLOW, ENOSYS, EPERM, KILL, seccomp_filter

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_I386 = 0x40000003
_MACHINES = sorted(_ARCH)


def verdict(machine: str, number: int, *, arch: int | None = None, argument: int = 0) -> int:
    """Run the program as the kernel would."""
    data = struct.pack("<IIQQ", number, _ARCH[machine] if arch is None else arch, 0, argument)
    steps = list(struct.iter_unpack("<HBBI", seccomp_filter(machine)))
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, value)[0]
            case 0x06:
                return int(value)
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case _:
                raise AssertionError(code)


@pytest.mark.parametrize("machine", _MACHINES)
def test_each_listed_call_is_refused_and_its_neighbours_of_daily_use_are_not(machine: str) -> None:
    column = 0 if machine == "x86_64" else 1
    assert {verdict(machine, numbers[column]) for numbers in _DENIED.values()} == {EPERM}
    daily = {"x86_64": (0, 1, 9, 59, 60, 257), "aarch64": (63, 64, 222, 221, 93, 56)}[machine]
    assert {verdict(machine, number) for number in daily} == {ALLOW}


@pytest.mark.parametrize("machine", _MACHINES)
def test_a_foreign_architecture_is_killed(machine: str) -> None:
    other = next(arch for name, arch in _ARCH.items() if name != machine)
    assert verdict(machine, 1, arch=_I386) == KILL
    assert verdict(machine, 1, arch=other) == KILL


def test_the_x32_calls_are_killed() -> None:
    assert verdict("x86_64", 0x40000000 | 1) == KILL
    assert verdict("x86_64", 0x40000000 | 512) == KILL


@pytest.mark.parametrize(("machine", "clone"), [("x86_64", 56), ("aarch64", 220)])
def test_clone_may_make_processes_but_no_user_namespaces(machine: str, clone: int) -> None:
    assert verdict(machine, clone, argument=0x01200011) == ALLOW
    assert verdict(machine, clone, argument=0x10000000 | 17) == EPERM
    assert verdict(machine, 435) == ENOSYS


def test_a_machine_without_a_table_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="riscv64"):
        seccomp_filter("riscv64")
