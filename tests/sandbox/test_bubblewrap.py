"""How a sandboxed command begins and ends."""

import asyncio
import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import uvloop

from app.errors import ToolFailed
from app.sandbox.bubblewrap import BubblewrapSandbox
from app.sandbox.driver import Limits
from app.sandbox.programs import Programs, install_programs
from tests.sandbox.rooms import SANDBOX_UID, Rooms, marked_sleep, printed, processes, run, until

pytestmark = pytest.mark.platform

_SERVICE = """
import asyncio, sys
from pathlib import Path
from app.sandbox.bubblewrap import BubblewrapSandbox
from app.sandbox.driver import Limits, SessionDirs
from app.sandbox.programs import Programs

ws, tmp, home, bwrap, bin, uid, script = sys.argv[1:]
sandbox = BubblewrapSandbox(
    SessionDirs(Path(ws), Path(tmp), Path(home)), Programs(Path(bwrap), Path(bin)), int(uid) or None
)
asyncio.run(
    sandbox.exec(["bash"], cwd="/workspace", limits=Limits(wall_s=60), script=script.encode())
)
"""


@pytest.fixture
def sandbox(rooms: Rooms) -> BubblewrapSandbox:
    return rooms.bubblewrap()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def states_of_children() -> list[str]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [Path(f"/proc/{pid}/stat").read_text().rsplit(") ")[1][0] for pid in children]


def replace_program(path: Path, text: str | None) -> None:
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 300", 44),
        ("kill -9 $$", 137),
        ("kill -9 -1; sleep 9", 137),
        ("nothing-like-it", 127),
    ],
)
async def test_the_exit_code_is_the_commands(
    sandbox: BubblewrapSandbox, script: str, status: int
) -> None:
    assert (await run(sandbox, script)).exit_code == status


async def test_arguments_reach_the_program_as_they_are(sandbox: BubblewrapSandbox) -> None:
    done = await sandbox.exec(["printf", "%s|", "a b", "$HOME", "*"], cwd="/tmp", limits=Limits())
    assert done.output == b"a b|$HOME|*|"


async def test_the_two_outputs_come_merged_in_order_or_apart(sandbox: BubblewrapSandbox) -> None:
    script = b"echo 1; echo 2 >&2; echo 3"
    merged = await sandbox.exec(["bash"], cwd="/workspace", limits=Limits(), script=script)
    assert (merged.output, merged.stderr) == (b"1\n2\n3\n", b"")
    apart = await sandbox.exec(
        ["bash"], cwd="/workspace", limits=Limits(), script=script, merge_stderr=False
    )
    assert (apart.output, apart.stderr) == (b"1\n3\n", b"2\n")


async def test_input_is_empty_and_there_is_no_terminal(sandbox: BubblewrapSandbox) -> None:
    assert (await run(sandbox, "cat")).output == b""
    assert (await run(sandbox, "exec 3</dev/tty")).exit_code != 0


async def test_tmp_and_home_are_kept_between_calls(sandbox: BubblewrapSandbox) -> None:
    await printed(sandbox, "echo t >/tmp/t; echo h >~/h")
    assert await printed(sandbox, "cat /tmp/t ~/h") == "t\nh"


async def test_a_command_is_stopped_at_its_limit_with_all_it_started(
    sandbox: BubblewrapSandbox,
) -> None:
    command, mark = marked_sleep()
    begun = time.monotonic()
    script = f"trap '' TERM INT HUP; setsid {command} & echo first; kill -STOP -1; {command}"
    done = await run(sandbox, script, wall_s=0.5)
    assert (done.timed_out, done.exit_code, done.output) == (True, 137, b"first\n")
    assert time.monotonic() - begun < 20
    assert processes(mark) == []


async def test_a_child_left_behind_neither_holds_the_call_nor_survives_it(
    sandbox: BubblewrapSandbox,
) -> None:
    command, mark = marked_sleep()
    begun = time.monotonic()
    assert await printed(sandbox, f"(setsid nohup {command} &) ; {command} & echo done") == "done"
    assert time.monotonic() - begun < 20
    assert processes(mark) == []


async def test_cancelling_ends_the_tree_first(sandbox: BubblewrapSandbox) -> None:
    command, mark = marked_sleep()
    task = asyncio.create_task(run(sandbox, f"trap '' TERM; setsid {command} & {command}"))
    await until(lambda: len(processes(mark)) >= 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes(mark) == []
    assert await printed(sandbox, "echo usable") == "usable"


async def test_cancelling_at_any_moment_of_the_start_leaves_nothing(
    sandbox: BubblewrapSandbox,
) -> None:
    before = open_descriptors()
    command, mark = marked_sleep()
    for step in range(30):
        # Given as arguments, so that bubblewrap's own processes carry the mark too.
        running = sandbox.exec(command.split(), cwd="/workspace", limits=Limits())
        task = asyncio.create_task(running)
        await asyncio.sleep(step * 0.001)  # the moment is what varies; nothing is waited for
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes(mark) == []
    assert open_descriptors() <= before  # what others left may be collected meanwhile


async def test_a_killed_service_leaves_no_process_behind(rooms: Rooms) -> None:
    command, mark = marked_sleep()
    dirs, programs = rooms.dirs(), rooms.programs
    paths = [dirs.ws, dirs.tmp, dirs.home, programs.bwrap, programs.bin]
    argv = [sys.executable, "-c", _SERVICE, *map(str, paths), str(SANDBOX_UID or 0)]
    service = subprocess.Popen(  # noqa: ASYNC220 -- returns at once
        [*argv, f"setsid {command} & {command}"], env={"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        await until(lambda: len(processes(mark)) >= 2)
    finally:
        service.send_signal(signal.SIGKILL)
        service.wait()
    await until(lambda: processes(mark) == [])


async def test_threads_that_come_and_go_do_not_end_a_command(sandbox: BubblewrapSandbox) -> None:
    running = asyncio.create_task(run(sandbox, "sleep 1; echo lived"))
    while not running.done():
        await asyncio.to_thread(os.getpid)
    assert running.result().output == b"lived\n"


async def test_orphans_leave_no_zombies(sandbox: BubblewrapSandbox) -> None:
    script = (
        "for i in {1..1000}; do (true &); done; sleep 0.2; grep -l '^State:.Z' /proc/*/status; :"
    )
    assert await printed(sandbox, script) == ""
    assert "Z" not in states_of_children()


async def test_a_fork_bomb_stays_in_its_room(rooms: Rooms) -> None:
    name = f"bomb{secrets.token_hex(4)}"
    argv = ["bash", "-c", f"{name}() {{ {name} | {name} & }}; {name}; sleep 9"]
    limits = Limits(wall_s=2)
    bomb = asyncio.create_task(rooms.bubblewrap().exec(argv, cwd="/workspace", limits=limits))
    assert await printed(rooms.bubblewrap(), "echo unharmed") == "unharmed"
    assert b"Resource temporarily unavailable" in (await bomb).output
    assert processes(name) == []


async def test_each_sandbox_may_have_some_250_processes_of_its_own(rooms: Rooms) -> None:
    forks = (
        "perl -e 'for (1..400) { my $p = fork; last unless defined $p; "
        "if (!$p) { sleep 60; exit } $n++ } print $n; sleep 1'"
    )
    counts = await asyncio.gather(*(printed(rooms.bubblewrap(), forks) for _ in range(2)))
    assert all(200 < int(count) < 256 for count in counts), counts


@pytest.mark.parametrize("flood", ["yes", "tr '\\0' x </dev/zero"])
async def test_a_flood_is_cut_and_stopped_without_filling_our_memory(
    sandbox: BubblewrapSandbox, flood: str
) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = resident_bytes()
    done = await run(sandbox, f"echo first; {flood}")
    assert (done.flooded, done.exit_code) == (True, 137)
    assert done.output.startswith(b"first\n")
    assert len(done.output) == 1024 * 1024
    assert 60_000_000 < done.cut_bytes < 80_000_000
    assert resident_bytes() - before < 20_000_000


async def test_a_long_script_with_any_bytes_runs(sandbox: BubblewrapSandbox) -> None:
    script = b"x='" + b"y" * 200_000 + b"'\necho ${#x} \xff\xfe"
    assert (await run(sandbox, script)).output == b"200000 \xff\xfe\n"


async def test_a_nul_in_an_argument_is_refused(sandbox: BubblewrapSandbox) -> None:
    with pytest.raises(ToolFailed, match="NUL"):
        await sandbox.exec(["echo", "a\0b"], cwd="/workspace", limits=Limits())


async def test_when_bubblewrap_breaks_later_the_command_never_runs(rooms: Rooms) -> None:
    own = install_programs(rooms.folder / "breaking", search_path="/nonexistent")
    sandbox = BubblewrapSandbox(rooms.dirs(), Programs(own.bwrap, own.bin), SANDBOX_UID)
    assert await printed(sandbox, "echo works") == "works"
    replace_program(own.bwrap, None)
    with pytest.raises(ToolFailed, match="did not start"):
        await run(sandbox, "touch /workspace/ran")
    replace_program(own.bwrap, "#!/bin/sh\necho 'bwrap: something is wrong' >&2; exit 1\n")
    with pytest.raises(ToolFailed, match="did not start"):
        await run(sandbox, "touch /workspace/ran")
    assert not (sandbox.dirs.ws / "ran").exists()


async def test_a_missing_directory_is_told_without_host_paths(sandbox: BubblewrapSandbox) -> None:
    with pytest.raises(ToolFailed) as failed:
        await run(sandbox, "true", cwd="/workspace/nowhere")
    assert str(sandbox.dirs.ws) not in failed.value.message


async def test_many_commands_run_side_by_side(rooms: Rooms) -> None:
    sandbox = rooms.bubblewrap()
    done = await asyncio.gather(*(run(sandbox, f"echo {n}") for n in range(20)))
    assert [d.output for d in done] == [f"{n}\n".encode() for n in range(20)]


def test_it_works_on_uvloop_too(rooms: Rooms) -> None:
    command, mark = marked_sleep()

    async def scenario() -> bytes:
        sandbox = rooms.bubblewrap()
        assert (await run(sandbox, command, wall_s=0.3)).timed_out
        return (await run(sandbox, "echo loop")).output

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario()) == b"loop\n"
    assert processes(mark) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root service drops its uid")
def test_a_root_service_refuses_to_stay_root(rooms: Rooms) -> None:
    for uid in (None, 0):
        with pytest.raises(ValueError, match="root"):
            BubblewrapSandbox(rooms.dirs(), rooms.programs, uid)
