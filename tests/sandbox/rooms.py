"""Real sandboxes for tests, as root and as an ordinary user."""

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.sandbox.bubblewrap import BubblewrapSandbox
from app.sandbox.dirs import make_session_dirs
from app.sandbox.driver import Finished, Limits, Sandbox, SessionDirs
from app.sandbox.programs import Programs, install_programs

SANDBOX_UID = 200001 if os.geteuid() == 0 else None


@dataclass
class Rooms:
    folder: Path
    programs: Programs = field(init=False)

    def __post_init__(self) -> None:
        self.programs = install_programs(self.folder / "programs")

    def dirs(self) -> SessionDirs:
        return make_session_dirs(self.folder, secrets.token_hex(8), uid=SANDBOX_UID)

    def bubblewrap(self) -> BubblewrapSandbox:
        return BubblewrapSandbox(self.dirs(), self.programs, SANDBOX_UID)


async def run(
    sandbox: Sandbox, script: str | bytes, *, wall_s: float = 30.0, cwd: str = "/workspace"
) -> Finished:
    script = script.encode() if isinstance(script, str) else script
    return await sandbox.exec(["bash"], cwd=cwd, limits=Limits(wall_s=wall_s), script=script)


async def printed(sandbox: Sandbox, script: str) -> str:
    finished = await run(sandbox, script)
    assert finished.exit_code == 0, finished
    return finished.output.decode().strip()


def marked_sleep() -> tuple[str, str]:
    """A command that sleeps long, and the text that its command line carries."""
    mark = f"9{secrets.randbelow(10**9):09}"
    return f"sleep {mark}", f"sleep\0{mark}\0"


def processes(mark: str) -> list[int]:
    """The processes of this host whose command line carries the text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                cmdline = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in cmdline:
                found.append(int(entry.name))
    return found


async def until(condition: Callable[[], object], *, within_s: float = 30.0) -> None:
    """Poll until the condition is true; fail after `within_s`."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        await asyncio.sleep(0.01)
