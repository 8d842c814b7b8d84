"""What a service killed at a bad moment leaves, and the next one ends."""

import os
import signal
import subprocess
import tempfile

from app.sandbox.strays import end_strays
from tests.sandbox.rooms import SANDBOX_UID, Rooms, marked_sleep, processes, until


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
            user=SANDBOX_UID,
        )


async def test_what_outlived_its_bubblewrap_is_ended_and_nothing_else(rooms: Rooms) -> None:
    uid = os.geteuid() if SANDBOX_UID is None else SANDBOX_UID
    stray_command, stray = marked_sleep()
    alive_command, alive = marked_sleep()
    orphan = begin_sandbox(rooms, stray_command)
    living = begin_sandbox(rooms, alive_command, "--die-with-parent")
    try:
        for mark in (stray, alive):
            await until(lambda mark=mark: len(processes(mark)) >= 2)  # type: ignore[misc]
        assert end_strays(uid) == 0
        orphan.send_signal(signal.SIGKILL)
        orphan.wait()
        assert processes(stray), "without --die-with-parent it goes on"
        assert end_strays(uid) == 1
        await until(lambda: not processes(stray))
        assert processes(alive)
        assert end_strays(uid) == 0
    finally:
        living.kill()
        living.wait()
        end_strays(uid)
