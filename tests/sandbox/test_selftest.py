import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import ConfigError
from app.sandbox.dirs import check_reachable, make_session_dirs
from app.sandbox.programs import Programs, install_programs
from app.sandbox.selftest import check_sandbox, remedy
from tests.sandbox.rooms import SANDBOX_UID, Rooms

pytestmark = pytest.mark.platform

_CONFINED = """
import asyncio, ctypes, platform, struct, sys
from pathlib import Path
from app.errors import ConfigError
from app.sandbox.programs import Programs
from app.sandbox.seccomp import seccomp_filter
from app.sandbox.selftest import check_sandbox

folder, bwrap, bin, uid = sys.argv[1:]
code = seccomp_filter(platform.machine())
steps = ctypes.create_string_buffer(code, len(code))
program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(steps))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
try:
    asyncio.run(check_sandbox(Path(folder), Programs(Path(bwrap), Path(bin)), uid=int(uid) or None))
except ConfigError as error:
    print(error)
"""


def broken(rooms: Rooms, script: str) -> Programs:
    """Programs whose bubblewrap is a script of ours."""
    program = rooms.folder / "broken" / "bwrap"
    program.parent.mkdir(exist_ok=True)
    program.parent.chmod(0o755)
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    return Programs(program, rooms.programs.bin)


async def refusal(rooms: Rooms, programs: Programs) -> str:
    with pytest.raises(ConfigError) as refused:
        await check_sandbox(rooms.folder, programs, uid=SANDBOX_UID)
    return str(refused.value)


async def test_the_real_sandbox_holds_and_leaves_nothing_behind(rooms: Rooms) -> None:
    before = set(rooms.folder.iterdir())
    await check_sandbox(rooms.folder, rooms.programs, uid=SANDBOX_UID)
    assert set(rooms.folder.iterdir()) == before


def test_where_the_kernel_refuses_namespaces_the_remedy_is_named(rooms: Rooms) -> None:
    argv = [rooms.folder, rooms.programs.bwrap, rooms.programs.bin, SANDBOX_UID or 0]
    confined = subprocess.run(
        [sys.executable, "-c", _CONFINED, *map(str, argv)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "seccomp=PROFILE" in confined.stdout
    assert "TREADLE_SANDBOX=none" in confined.stdout


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("bwrap: No permissions to create new namespace, likely because …", "seccomp=PROFILE"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "seccomp=PROFILE"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths"),
        ("bwrap: setting up uid map: Operation not permitted", "SETFCAP"),
        ("bwrap: setting up uid map: Permission denied", "AppArmor"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor"),
        ("bwrap: Creating new namespace failed: No space left on device", "max_user_namespaces"),
        ("bwrap: Unknown option --disable-userns", "too old"),
        ("bwrap: execvp prlimit: No such file or directory", "util-linux"),
        ("setpriv: failed to execute ./bwrap: No such file or directory", "is missing"),
        ("bwrap: words that nobody has seen yet", "user namespaces"),
    ],
)
async def test_each_known_refusal_names_its_remedy(rooms: Rooms, said: str, remedy: str) -> None:
    text = await refusal(rooms, broken(rooms, f'echo "{said}" >&2; exit 1'))
    assert said in text
    assert remedy in text


async def test_a_missing_bubblewrap_is_named(rooms: Rooms) -> None:
    missing = Programs(rooms.folder / "nowhere" / "bwrap", rooms.programs.bin)
    assert "bubblewrap is missing" in await refusal(rooms, missing)


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("--seccomp", "there is no system call filter"),
        ("--remount-ro", "/ can be written"),
        ("--hostname", None),
    ],
)
async def test_a_sandbox_that_lacks_a_wall_is_found_out(
    rooms: Rooms, option: str, found: str | None
) -> None:
    without = f"""
    fd=$2; shift 3
    mapfile -d '' -u $fd options
    kept=()
    for ((i = 0; i < ${{#options[@]}}; i++)); do
      if [ "${{options[i]}}" = {option} ]; then ((++i)); else kept+=("${{options[i]}}"); fi
    done
    exec {{args}}< <(printf '%s\\0' "${{kept[@]}}")
    exec -c -a bwrap {rooms.programs.bwrap} --args $args -- "$@"
    """
    programs = broken(rooms, without)
    if found is None:
        await check_sandbox(rooms.folder, programs, uid=SANDBOX_UID)
    else:
        assert found in await refusal(rooms, programs)


def test_a_remedy_is_only_given_for_known_words() -> None:
    assert remedy("all is well") is None


def test_without_any_bubblewrap_the_programs_cannot_be_installed(rooms: Rooms) -> None:
    only_rg = rooms.folder / "only-rg"
    only_rg.mkdir()
    (only_rg / "rg").symlink_to(rooms.programs.bin / "rg")
    with pytest.raises(ConfigError, match=r"bubblewrap.*Install"):
        install_programs(rooms.folder / "p1", search_path=str(only_rg), use_wheels=False)
    with pytest.raises(ConfigError, match="ripgrep"):
        install_programs(rooms.folder / "p2", search_path="/nonexistent", use_wheels=False)


@pytest.mark.parametrize(
    ("said", "mode", "is_taken"),
    [
        ("bubblewrap 0.8.0", 0o755, True),
        ("bubblewrap 1.0", 0o755, True),
        ("bubblewrap 0.6.2", 0o755, False),
        ("nonsense", 0o755, False),
        ("bubblewrap 0.8.0", 0o4755, False),
    ],
)
def test_a_systems_bubblewrap_is_taken_when_it_is_new_and_not_setuid(
    rooms: Rooms, tmp_path: Path, said: str, mode: int, is_taken: bool
) -> None:
    system = tmp_path / "bwrap"
    system.write_text(f"#!/bin/sh\necho {said}\n")
    system.chmod(mode)
    programs = install_programs(rooms.folder / "p3", search_path=f"{tmp_path}:/usr/bin:/bin")
    assert (programs.bwrap == system) is is_taken


def test_programs_are_copied_once_and_open_to_others(rooms: Rooms) -> None:
    first = (rooms.programs.bin / "rg").stat()
    again = install_programs(rooms.folder / "programs")
    assert (again.bin / "rg").stat().st_ino == first.st_ino
    assert first.st_mode & 0o777 == 0o755
    assert rooms.programs.bin.stat().st_mode & 0o777 == 0o755


def test_a_sessions_folders_are_closed_to_others(rooms: Rooms) -> None:
    dirs = rooms.dirs()
    for folder in (dirs.ws.parent, dirs.ws, dirs.tmp, dirs.home):
        status = folder.stat()
        assert status.st_mode & 0o777 == 0o700
        assert status.st_uid == (SANDBOX_UID or os.geteuid())
    again = make_session_dirs(rooms.folder, dirs.ws.parent.name, uid=SANDBOX_UID)
    assert again == dirs


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0b"])
def test_a_session_folder_has_a_plain_name(rooms: Rooms, name: str) -> None:
    with pytest.raises(ValueError, match="plain"):
        make_session_dirs(rooms.folder, name, uid=SANDBOX_UID)


def test_a_folder_that_the_sandboxes_user_cannot_enter_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(ConfigError, match=r"cannot enter"):
        check_reachable(closed / "data", uid=200001)
    check_reachable(Path("/usr/bin"), uid=200001)
