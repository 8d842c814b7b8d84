"""Servers as processes of their own, and what they cost by the kernel's books."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

_READY_LIMIT_S = 60
_STOP_LIMIT_S = 30
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class NotReady(Exception):
    """A server did not come up; the text holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and the processes below it."""

    pid: int
    url: str

    def cpu_ms(self) -> float:
        """User and system time of the process tree so far, ended children included.

        Live processes by their own clocks (ns); only children that have ended count in ticks.
        """
        live_ns = sum(_cpu_ns(pid) for pid in self._tree())
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return live_ns / 1e6 + (int(stat[13]) + int(stat[14])) * _TICK_S * 1000

    def pss_mib(self) -> float:
        """Memory of the tree, shared pages divided among those who share them."""
        return sum(_pss_kib(pid) for pid in self._tree()) / 1024

    def _tree(self) -> list[int]:
        found = [self.pid]
        for pid in found:
            found.extend(_children(pid))
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running_server(
    argv: Sequence[str], *, port: int, log: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Start a server, wait until `/readyz` says 200, end it afterwards.

    Its output goes to `log`. `env` is added to a nearly empty environment.
    """
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **(env or {})}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *argv, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        server = Server(process.pid, f"http://127.0.0.1:{port}")
        try:
            await _ready(server, process, log)
            yield server
        finally:
            await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, and SIGKILL when that is not heard."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _STOP_LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _ready(server: Server, process: asyncio.subprocess.Process, log: Path) -> None:
    give_up = time.monotonic() + _READY_LIMIT_S
    async with aiohttp.ClientSession() as http:
        while process.returncode is None and time.monotonic() < give_up:
            try:
                async with http.get(f"{server.url}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # it does not listen yet
            await asyncio.sleep(0.05)
    output = await asyncio.to_thread(log.read_text)
    raise NotReady(f"{server.url} did not become ready:\n{output[-2000:]}")


def _cpu_ns(pid: int) -> int:
    """The process's CPU clock: the kernel makes its id from the inverted pid (clock_gettime(2))."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0  # it has ended since we looked


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    try:
        lists = [(task / "children").read_text() for task in tasks.iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for text in lists for child in text.split()]


def _pss_kib(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
