"""The command as users have it: a process of its own."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import pytest

from tests.hosts import KEY, Host

LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Finished:
    status: int
    out: str
    err: str


Run = Callable[..., Awaitable[Finished]]
Begin = Callable[..., Awaitable[asyncio.subprocess.Process]]


async def begin(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start `treadle` with nothing in its environment but what is given."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app",
        *arguments,
        env={"PATH": os.environ["PATH"], **(environment or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finish(process: asyncio.subprocess.Process, text: str = "") -> Finished:
    """Wait for its end. No command may ever show a traceback."""
    async with asyncio.timeout(LIMIT_S):
        if not text and process.stdin is not None:
            process.stdin.close()  # uvloop refuses to write even nothing to a process that ended
        out, err = await process.communicate(text.encode() or None)
    done = Finished(process.returncode or 0, out.decode(), err.decode())
    assert "Traceback" not in done.out + done.err, done.err
    return done


@pytest.fixture
def bare() -> Run:
    """Run `treadle` without a server and without settings but those given."""

    async def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Finished:
        return await finish(await begin(*arguments, environment=environment))

    return run


@pytest.fixture
def treadle(service: Host) -> Run:
    """Run `treadle` against a host, with a valid key."""

    async def run(*arguments: str, text: str = "", key: str = KEY) -> Finished:
        environment = {"TREADLE_URL": service.base_url, "TREADLE_KEY": key}
        return await finish(await begin(*arguments, environment=environment), text)

    return run


@pytest.fixture
def begun(service: Host) -> Begin:
    """Start `treadle` against a host, with a valid key, and leave it running."""

    async def run(*arguments: str) -> asyncio.subprocess.Process:
        environment = {"TREADLE_URL": service.base_url, "TREADLE_KEY": KEY}
        return await begin(*arguments, environment=environment)

    return run
