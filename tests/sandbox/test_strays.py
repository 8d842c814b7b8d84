"""What a service killed at a bad moment leaves, and the next one ends."""

import os
import signal
import subprocess
import tempfile

from app.sandbox.strays import end_strays
from tests.conftest import MakeSettings
from tests.hosts import host
from tests.sandbox.rooms import Rooms, marked_sleep, processes, until

IS_ROOT = os.geteuid() == 0
UID = 200913 if IS_ROOT else os.geteuid()
"""Not the sandboxes' usual user: hosts of other tests end that one's strays as they start."""


def begin_sandbox(rooms: Rooms, command: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a sandbox as ours are started, but for the arguments that are its walls."""
    with tempfile.TemporaryFile() as file:
        words = ["--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", *arguments, ""]
        file.write("\0".join(words).encode())
        file.seek(0)
        inner = ["prlimit", "--core=0", "--", *command.split()]
        return subprocess.Popen(
            ["bwrap", "--args", str(file.fileno()), "--", *inner],
            executable=rooms.programs.bwrap,
            pass_fds=[file.fileno()],
            user=UID if IS_ROOT else None,
        )


async def orphan_of(rooms: Rooms) -> str:
    """Make a sandbox that outlived its bubblewrap; give the mark of its command."""
    command, mark = marked_sleep()
    outer = begin_sandbox(rooms, command)
    await until(lambda: len(processes(mark)) >= 2)
    outer.send_signal(signal.SIGKILL)
    outer.wait()
    return mark


async def test_what_outlived_its_bubblewrap_is_ended_and_nothing_else(rooms: Rooms) -> None:
    command, alive = marked_sleep()
    living = begin_sandbox(rooms, command, "--die-with-parent")
    try:
        await until(lambda: len(processes(alive)) >= 2)
        assert end_strays(UID) == 0
        stray = await orphan_of(rooms)
        assert processes(stray), "without --die-with-parent it goes on"
        assert end_strays(UID) == 1
        await until(lambda: not processes(stray))
        assert processes(alive)
    finally:
        living.kill()
        living.wait()


async def test_a_start_of_the_service_ends_strays(
    rooms: Rooms, make_settings: MakeSettings
) -> None:
    stray = await orphan_of(rooms)
    assert processes(stray)
    async with host(make_settings(workspace={"sandbox_uid": UID})):
        await until(lambda: not processes(stray))
