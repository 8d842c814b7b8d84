"""The hosts under test: kept at their number, as an orchestrator would, whatever befalls them."""

import asyncio
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.chaos.link import Link, Mode
from tests.chaos.model import HOST_HEADER
from tests.chaos.namespaces import has_own
from tests.chaos.plan import Plan
from tests.chaos.postgres import TcpPostgres, free_port
from tests.chaos.wire import Wire
from tests.hosts import KEY

_START_LIMIT_S = 60
SANDBOX_UIDS = 210_000


@dataclass(slots=True, eq=False)
class ChaosHost:
    """A host process."""

    name: str
    url: str
    process: "subprocess.Popen[bytes]"
    link: Link | Wire
    clock: mmap.mmap
    log: Path
    started_s: float
    is_ready: bool = False
    is_frozen: bool = False
    is_going: bool = False
    """Whether its end is wanted."""
    is_excused: bool = False
    """Whether it could not start: the disk was full, or the database went away meanwhile."""
    hurts: list[tuple[float, str]] = field(default_factory=list)
    """What was done to it, and when (wall time)."""

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def cut(self, mode: Mode) -> None:
        """Cut the wire to Postgres, or mend it; nothing for a host that is gone."""
        if self.process.poll() is None:
            await self.link.set(mode)

    def shift_clock(self, seconds: float) -> None:
        self.clock[:8] = struct.pack("d", seconds)


@dataclass(slots=True)
class Fleet:
    """All hosts, and what is wrong with the world around them."""

    plan: Plan
    folder: Path
    data_dir: Path
    postgres: TcpPostgres
    model_url: str
    dice: random.Random
    http: aiohttp.ClientSession
    hosts: list[ChaosHost] = field(default_factory=list)
    gone: dict[str, ChaosHost] = field(default_factory=dict)
    troubles: Counter[str] = field(default_factory=Counter)
    """Faults under way that excuse a host for not starting: `pg`, `disk`."""
    trouble_ended_s: float = 0.0
    violations: list[str] = field(default_factory=list)
    is_ending: bool = False
    _number: int = 0

    @property
    def sandbox_uid(self) -> int:
        """Whose processes are commands of these hosts and of nobody else (as root)."""
        return SANDBOX_UIDS + os.getpid() % 100_000

    def up(self) -> list[ChaosHost]:
        """Give hosts that are ready, not frozen and not on their way out."""
        return [h for h in self.hosts if h.is_ready and not h.is_frozen and not h.is_going]

    def url(self) -> str | None:
        """Give the address of some host: now and then one that cannot answer."""
        hosts = self.up() if self.dice.random() < 0.93 else self.hosts
        return self.dice.choice(hosts).url if hosts else None

    async def keep(self) -> None:
        """Replace what ended and see who is ready, until `end` or cancelled."""
        while not self.is_ending:
            for host in [h for h in self.hosts if h.process.poll() is not None]:
                await self._buried(host)
            while self._is_short():
                self.hosts.append(await self._spawned())
            for host in [h for h in self.hosts if not h.is_ready and not h.is_frozen]:
                await self._look_at(host)
            await asyncio.sleep(0.1)

    async def until_up(self, number: int) -> None:
        """Wait for so many hosts to be up."""
        async with asyncio.timeout(_START_LIMIT_S):
            while len(self.up()) < number:  # noqa: ASYNC110 - processes are polled
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """Stop all hosts as a deployment does; the violations say which did not stop."""
        self.is_ending = True
        for host in self.hosts:
            host.is_going = True
            host.signal(signal.SIGCONT)
            host.signal(signal.SIGTERM)
        for host in list(self.hosts):
            await self.stopped(host)
            await self._buried(host)

    async def stopped(self, host: ChaosHost) -> None:
        """Wait for a host that was told to stop."""
        limit_s = self.plan.drain_s + 13
        try:
            status = await asyncio.to_thread(host.process.wait, limit_s)
        except subprocess.TimeoutExpired:
            self.violations.append(f"{host.name} did not stop within {limit_s:g} s of SIGTERM")
            host.signal(signal.SIGKILL)
            await asyncio.to_thread(host.process.wait)
        else:
            if status not in {0, -signal.SIGTERM} and host.is_ready:
                said = _tail(host.log)
                self.violations.append(f"{host.name} ended with {status} on SIGTERM:\n{said}")

    def kill_all(self) -> None:
        """End every process at once, for a harness that gives up."""
        for host in self.hosts:
            host.signal(signal.SIGKILL)
            host.process.wait()

    def _is_short(self) -> bool:
        present = sum(not host.is_going for host in self.hosts)
        return present < self.plan.hosts and not self.is_ending

    async def _buried(self, host: ChaosHost) -> None:
        if host not in self.hosts:
            return
        self.hosts.remove(host)
        self.gone[host.name] = host
        await host.link.close()
        in_trouble = bool(+self.troubles) or host.started_s < self.trouble_ended_s
        host.is_excused = in_trouble and not host.is_ready and not host.is_going
        if not host.is_going and not host.is_excused:
            status, said = host.process.returncode, _tail(host.log)
            self.violations.append(f"{host.name} ended by itself with {status}:\n{said}")

    async def _look_at(self, host: ChaosHost) -> None:
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            limit = aiohttp.ClientTimeout(total=1)
            async with self.http.get(f"{host.url}/readyz", timeout=limit) as answer:
                host.is_ready = answer.status == 200
        if not host.is_ready and +self.troubles:
            host.started_s = time.monotonic()
        elif not host.is_ready and time.monotonic() - host.started_s > _START_LIMIT_S:
            self.violations.append(f"{host.name} did not start:\n{_tail(host.log)}")
            host.is_going = True
            host.signal(signal.SIGKILL)

    async def _spawned(self) -> ChaosHost:
        self._number += 1
        name = f"h{self._number}"
        link: Link | Wire = Link(self.postgres.port)
        if has_own("net"):
            link = Wire(self._number, self.postgres.port)
        await link.open()
        clock = self.folder / f"{name}.clock"
        clock.write_bytes(bytes(8))
        with clock.open("r+b") as cell:
            shared = mmap.mmap(cell.fileno(), 8)
        port, log = free_port(), self.folder / f"{name}.log"
        argv = [sys.executable, "-m", "tests.chaos.host_main", "--port", str(port)]
        argv += [] if self.plan.has_fence else ["--no-fence"]
        environment = self._environment(name, link.address) | {"CHAOS_CLOCK": str(clock)}
        with log.open("ab") as sink:
            process = subprocess.Popen(  # noqa: ASYNC220 - it belongs to this thread: see PDEATHSIG
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        url = f"http://127.0.0.1:{port}"
        return ChaosHost(name, url, process, link, shared, log, time.monotonic())

    def _environment(self, name: str, postgres: tuple[str, int]) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": self.postgres.dsn(name, at=postgres),
            "TREADLE_DATA_DIR": str(self.data_dir),
            "TREADLE_DATABASE__POOL_SIZE": "5",
            "TREADLE_MODEL__API_KEY": "sk-chaos",
            "TREADLE_MODEL__BASE_URL": self.model_url,
            "TREADLE_MODEL__EXTRA_HEADERS": json.dumps({HOST_HEADER: name}),
            "TREADLE_MODEL__MAX_RETRIES": "4",
            "TREADLE_MODEL__FIRST_BYTE_S": "10",
            "TREADLE_MODEL__IDLE_S": "10",
            "TREADLE_ENGINE__LEASE_S": str(self.plan.lease_s),
            "TREADLE_ENGINE__HEARTBEAT_S": str(self.plan.heartbeat_s),
            "TREADLE_ENGINE__POLL_S": "0.3",
            "TREADLE_ENGINE__DRAIN_S": str(self.plan.drain_s),
            "TREADLE_STREAM__HEARTBEAT_S": "1",
            "TREADLE_WORKSPACE__SANDBOX_UID": str(self.sandbox_uid),
            "TREADLE_AUTH__BOOTSTRAP_KEY": KEY,
        }


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace")[-2500:].splitlines()[-12:])
