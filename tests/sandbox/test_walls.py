"""What a command can see and do: attacks against the real sandbox."""

import asyncio
import os
import platform
import secrets
import socket
import subprocess

import pytest

from app.sandbox.bubblewrap import BubblewrapSandbox
from app.sandbox.driver import Channel, Limits
from app.sandbox.seccomp import _DENIED
from tests.sandbox.rooms import Rooms, printed, run

pytestmark = pytest.mark.platform

_COLUMN = 0 if platform.machine() == "x86_64" else 1


@pytest.fixture
def sandbox(rooms: Rooms) -> BubblewrapSandbox:
    return rooms.bubblewrap()


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch) -> str:
    value = secrets.token_hex(16)
    monkeypatch.setenv("TREADLE_TEST_CANARY", value)
    return value


async def test_no_environment_of_the_service_is_visible(
    sandbox: BubblewrapSandbox, canary: str
) -> None:
    seen = await printed(sandbox, "env; cat /proc/*/environ | tr '\\0' '\\n'")
    assert canary not in seen
    names = {line.split("=")[0] for line in seen.splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "TMPDIR", "TERM", "USER", "PWD", "SHLVL", "_"}
    assert await printed(sandbox, "wc -c </proc/1/environ") == "0"


async def test_command_lines_name_no_path_of_the_host(
    sandbox: BubblewrapSandbox, rooms: Rooms
) -> None:
    seen = await printed(sandbox, "cat /proc/*/cmdline | tr '\\0' ' '")
    assert "bwrap --args" in seen
    assert str(rooms.folder) not in seen


async def test_another_session_cannot_be_reached(rooms: Rooms) -> None:
    mine, other = rooms.bubblewrap(), rooms.bubblewrap()
    await printed(other, "echo secret > /workspace/s; chmod -R 777 /workspace")
    path = other.dirs.ws / "s"
    assert await printed(mine, f"cat {path} /proc/1/root{path} /proc/*/cwd/s 2>/dev/null; :") == ""
    assert (await run(mine, f"cd {path.parent}")).exit_code != 0


async def test_files_of_the_service_do_not_exist(sandbox: BubblewrapSandbox) -> None:
    paths = "/etc/shadow /etc/sudoers /run /var /root /sys /boot /srv /mnt /var/run/docker.sock"
    found = await printed(sandbox, f"for p in {paths}; do [ -e $p ] && echo $p; done; ls /home; :")
    assert found == "agent"
    assert await printed(sandbox, "id -un; id -u") == "agent\n1000"


async def test_only_the_sessions_folders_can_be_written(sandbox: BubblewrapSandbox) -> None:
    script = "for d in / /usr /etc /opt /opt/treadle/bin /dev /proc /workspace /tmp /home/agent; do"
    seen = await printed(sandbox, script + " { : >$d/probe; } 2>/dev/null && echo $d; done; :")
    assert seen.split() == ["/workspace", "/tmp", "/home/agent"]
    assert (sandbox.dirs.ws / "probe").exists()
    assert (sandbox.dirs.tmp / "probe").exists()
    assert (sandbox.dirs.home / "probe").exists()
    assert (sandbox.dirs.ws / "probe").stat().st_uid == (sandbox.uid or os.geteuid())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_server_on_the_hosts_loopback_is_out_of_reach(
    sandbox: BubblewrapSandbox, host: str
) -> None:
    calls: list[int] = []

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(1)
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, 0)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (await run(sandbox, f"echo hi >/dev/tcp/{host}/{port}")).exit_code != 0
    assert calls == []


async def test_an_abstract_socket_of_the_host_is_out_of_reach(sandbox: BubblewrapSandbox) -> None:
    name = f"treadle-{secrets.token_hex(8)}"
    connect = (
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); "
        f'exit(connect(S, pack_sockaddr_un("\\0{name}")) ? 0 : 7)\''
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"\0{name}")
        server.listen()
        outside = subprocess.run(["bash", "-c", connect], check=False)  # noqa: ASYNC221 -- short
        assert outside.returncode == 0
        assert (await run(sandbox, connect)).exit_code == 7


async def test_there_is_only_a_loopback_interface(sandbox: BubblewrapSandbox) -> None:
    seen = await printed(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
    assert seen == "lo"


async def test_a_program_that_serves_has_no_other_network_than_a_command(
    sandbox: BubblewrapSandbox, rooms: Rooms
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs.fileno(), (rooms.folder,))
        served = sandbox.start(
            ["bash"],
            cwd="/workspace",
            limits=Limits(wall_s=30),
            script=b"tail -n +3 /proc/net/dev | cut -d: -f1; wc -l </proc/net/route",
            channel=channel,
        )
        try:
            assert await served.ended(30)
        finally:
            await served.finish()
        assert ours.recv(1000).split() == [b"lo", b"1"]


async def test_no_descriptor_is_inherited(sandbox: BubblewrapSandbox, rooms: Rooms) -> None:
    with (rooms.folder / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003 -- its signature
        # 255 is the script that the shell reads, 3 is the listing's own.
        seen = await printed(sandbox, "ls /proc/$$/fd; echo; ls /proc/self/fd")
    assert seen.split() == ["0", "1", "2", "255", "0", "1", "2", "3"]


@pytest.mark.parametrize(
    "command",
    ["unshare -Ur true", "unshare -n true", "mount -t tmpfs x /tmp", "chroot / true", "su -c true"],
)
async def test_namespaces_mounts_and_other_users_are_refused(
    sandbox: BubblewrapSandbox, command: str
) -> None:
    assert (await run(sandbox, command)).exit_code != 0


@pytest.mark.parametrize(
    ("call", "errno"),
    [
        (f"{_DENIED['ptrace'][_COLUMN]}, 0, 0, 0, 0", 1),
        (f"{_DENIED['keyctl'][_COLUMN]}, 0, -3, 0", 1),
        (f"{_DENIED['io_uring_setup'][_COLUMN]}, 1, 0", 1),
        (f"{(56, 220)[_COLUMN]}, {0x10000000 | 17}, 0, 0, 0, 0", 1),
        ("435, 0, 0", 38),
    ],
)
async def test_the_kernel_refuses_the_listed_calls(
    sandbox: BubblewrapSandbox, call: str, errno: int
) -> None:
    seen = await printed(sandbox, f"perl -e 'print syscall({call}), \" \", $!+0'")
    assert seen == f"-1 {errno}"


async def test_ripgrep_is_on_the_path(sandbox: BubblewrapSandbox) -> None:
    assert (await printed(sandbox, "rg --version")).startswith("ripgrep")
    assert await printed(sandbox, "echo needle >f; rg -l needle") == "f"


async def test_device_memory_and_large_files_are_bounded(sandbox: BubblewrapSandbox) -> None:
    full = await run(sandbox, "head -c 100000000 /dev/zero >/dev/shm/x")
    assert b"No space left" in full.output
    big = await run(sandbox, "truncate -s 2G /workspace/x")
    assert big.exit_code != 0
    assert (sandbox.dirs.ws / "x").stat().st_size < 2**31


async def test_a_process_that_wants_ten_gigabytes_does_not_get_them(
    sandbox: BubblewrapSandbox,
) -> None:
    greedy = await run(sandbox, "perl -e '$x = \"a\" x (10 * 2**30); print length $x'")
    assert greedy.exit_code != 0
    assert str(10 * 2**30).encode() not in greedy.output
    assert await printed(sandbox, "echo alive") == "alive"


async def test_a_folder_that_looks_like_a_repository_runs_nothing(
    sandbox: BubblewrapSandbox,
) -> None:
    # None of its files is a protected one: an agent that may edit files could write them all.
    await printed(
        sandbox,
        "git init -q --bare trap; cd trap; git config -f config core.bare false;"
        "git config -f config core.worktree .;"
        "git config -f config core.fsmonitor 'touch /workspace/ran; false'",
    )
    await run(sandbox, "cd trap; git status; git log; git diff")
    assert await printed(sandbox, "ls") == "trap"
