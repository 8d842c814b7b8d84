import asyncio
import os
import secrets
from pathlib import Path

import pytest

from app.errors import ToolFailed
from app.sandbox.driver import Limits
from app.sandbox.unsandboxed import Unsandboxed
from tests.sandbox.rooms import SANDBOX_UID, Rooms, marked_sleep, processes, run, until

pytestmark = pytest.mark.platform


@pytest.fixture(params=[SANDBOX_UID] if SANDBOX_UID is None else [SANDBOX_UID, None])
def bare(rooms: Rooms, request: pytest.FixtureRequest) -> Unsandboxed:
    uid: int | None = request.param
    return Unsandboxed(rooms.dirs(), rooms.programs, uid)


async def test_a_command_runs_in_the_real_directory_with_a_clean_environment(
    bare: Unsandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = secrets.token_hex(16)
    monkeypatch.setenv("TREADLE_TEST_CANARY", canary)
    done = await run(bare, "pwd; env; rg --version; id -u", cwd=str(bare.dirs.ws))
    assert done.exit_code == 0, done
    assert done.output.startswith(f"{bare.dirs.ws}\n".encode())
    assert canary.encode() not in done.output
    assert b"ripgrep" in done.output
    assert done.output.endswith(f"\n{bare.uid or os.geteuid()}\n".encode())


async def test_exit_codes_outputs_and_arguments_are_the_commands(bare: Unsandboxed) -> None:
    cwd = str(bare.dirs.ws)
    done = await bare.exec(["printf", "%s|", "a b", "*"], cwd=cwd, limits=Limits())
    assert (done.exit_code, done.output) == (0, b"a b|*|")
    done = await bare.exec(
        ["bash"], cwd=cwd, limits=Limits(), script=b"echo 1; echo 2 >&2; exit 7", merge_stderr=False
    )
    assert (done.exit_code, done.output, done.stderr) == (7, b"1\n", b"2\n")


async def test_at_the_limit_daemons_end_too(bare: Unsandboxed) -> None:
    command, mark = marked_sleep()
    script = f"trap '' TERM; (setsid nohup {command} &); {command} & {command}"
    done = await run(bare, script, wall_s=0.5, cwd=str(bare.dirs.ws))
    assert done.timed_out
    assert processes(mark) == []


async def test_daemons_end_with_a_command_that_succeeds(bare: Unsandboxed) -> None:
    command, mark = marked_sleep()
    done = await run(bare, f"(setsid {command} &); echo done", cwd=str(bare.dirs.ws))
    assert (done.exit_code, done.output) == (0, b"done\n")
    assert processes(mark) == []


async def test_cancelling_ends_the_tree_first(bare: Unsandboxed) -> None:
    command, mark = marked_sleep()
    script = f"setsid {command} & {command}"
    task = asyncio.create_task(run(bare, script, cwd=str(bare.dirs.ws)))
    await until(lambda: len(processes(mark)) >= 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes(mark) == []


async def test_limits_hold(bare: Unsandboxed) -> None:
    done = await run(bare, "ulimit -n; ulimit -c; ulimit -f", cwd=str(bare.dirs.ws))
    assert done.output.split() == [b"1024", b"0", b"1048576"]
    done = await run(bare, "yes", cwd=str(bare.dirs.ws))
    assert (done.flooded, done.exit_code) == (True, 137)


async def test_a_missing_directory_or_program_is_a_failed_tool(bare: Unsandboxed) -> None:
    with pytest.raises(ToolFailed, match="not run"):
        await run(bare, "true", cwd=str(Path(bare.dirs.ws, "nowhere")))
    done = await bare.exec(["no-such-program"], cwd="/", limits=Limits())
    assert done.exit_code == 127
    with pytest.raises(ToolFailed, match="NUL"):
        await bare.exec(["echo", "a\0b"], cwd="/", limits=Limits())
