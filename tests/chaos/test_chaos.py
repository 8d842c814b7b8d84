"""A bounded chaos run, and the proof that its checker would see what the fence prevents.

The seeds differ each time and stand in the output: `python -m tests.chaos --seed N` repeats one.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_STOP_LIMIT_S = 40


async def chaos(*arguments: str, within_s: float) -> tuple[int, str]:
    """Run the program; give its status and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.chaos",
        *arguments,
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), within_s)
    finally:
        if process.returncode is None:
            process.terminate()  # it ends what it started
            await asyncio.wait_for(process.wait(), _STOP_LIMIT_S)
    text = said.decode()
    sys.stdout.write(text)
    return process.returncode or 0, text


@pytest.mark.timeout(240)
async def test_no_run_is_lost_doubled_or_stuck_whatever_befalls_hosts_and_database() -> None:
    status, said = await chaos("--minutes", "0.6", "--must", "kill,stop,term", within_s=180)
    assert status == 0, said


@pytest.mark.timeout(180)
async def test_without_the_fence_a_woken_host_writes_into_a_session_that_it_lost() -> None:
    status, said = await chaos(
        *("--minutes", "0.3", "--faults", "stop", "--no-fence"), within_s=120
    )
    assert status == 1, said
    assert "VIOLATION one owner at a time" in said
