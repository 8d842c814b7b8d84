"""W6, many sessions at once: `python -m benchmarks.sessions [--full] [--only 10,50]`.

N sessions of ten Reads begin together, the model takes 0.5 s for each answer, so 5.5 s would be
ideal. Measured on one host of the service and on two, beside the floor. The floor gets a free list
of HTTP clients here: one pooled client scans all its connections for each request, and with
hundreds of them it measures nothing else.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

import aiohttp
import asyncpg
import httpx
import uvicorn
from starlette.applications import Starlette

from benchmarks.client import Followed, Peer, RunFailed, follow_run
from benchmarks.floor import make_app
from benchmarks.plan import Plan
from benchmarks.processes import Server, free_port, running_server
from benchmarks.stage import Stage, set_stage

SIZES = (10, 50, 200, 500)
FULL = (*SIZES, 1000)
TURNS, DELAY_MS = 10, 500
IDEAL_S = (TURNS + 1) * DELAY_MS / 1000
_LIMIT_S = 600
_LOOK_EVERY_S = 0.5
_KNOCK_EVERY_S = 0.05
_CHANNEL = "treadle"


# -- the floor with a free list -----------------------------------------------------------------


@dataclass(slots=True)
class FreeList:
    """Clients that are each used by one request at a time; stands in for the floor's client."""

    base_url: str
    free: list[httpx.AsyncClient] = field(default_factory=list)

    @asynccontextmanager
    async def stream(self, method: str, path: str, **given: Any) -> AsyncIterator[httpx.Response]:  # noqa: ANN401 - as httpx has it
        client = (
            self.free.pop()
            if self.free
            else httpx.AsyncClient(base_url=self.base_url, timeout=None)  # noqa: S113 - the harness bounds each run
        )
        async with client.stream(method, path, **given) as answer:
            yield answer
        self.free.append(client)


def serve_floor(port: int, dsn: str, model_url: str) -> None:
    """Serve the floor with a free list in this process."""
    app = make_app(dsn, model_url)
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with inner(app):
            pooled, app.state.floor.model = app.state.floor.model, FreeList(model_url)
            await pooled.aclose()
            yield

    app.router.lifespan_context = lifespan
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        log_level="warning",
        access_log=False,
        loop="uvloop",
        http="httptools",
        backlog=4096,
    )


# -- servers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that are compared: one server, or two on one database."""

    name: str
    peers: tuple[Peer, ...]
    servers: tuple[Server, ...]
    health: str
    """A path that asks only the event loop."""

    def cpu_ms(self) -> float:
        return sum(server.cpu_ms() for server in self.servers)

    def pss_mib(self) -> float:
        return sum(server.pss_mib() for server in self.servers)


@asynccontextmanager
async def floor_side(stage: Stage) -> AsyncIterator[Side]:
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.sessions", "--serve-floor"]
    argv += [str(port), stage.floor_dsn, stage.model_url]
    async with running_server(argv, port=port, log=stage.folder / "floor.log") as server:
        peer = Peer("floor", server.url, "none", str(stage.workspace))
        yield Side("floor", (peer,), (server,), "/readyz")


@asynccontextmanager
async def our_side(stage: Stage, hosts: int) -> AsyncIterator[Side]:
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(stage.service(f"host-{n}", settings=_UNLIMITED))
            for n in range(hosts)
        ]
        name = "one host" if hosts == 1 else f"{hosts} hosts"
        peers, servers = tuple(peer for peer, _ in opened), tuple(server for _, server in opened)
        yield Side(name, peers, servers, "/healthz")


# What is measured is the load, not the limits.
_UNLIMITED = {
    "ENGINE__MAX_RUNS": "2000",
    "STREAM__MAX_PER_KEY": "5000",
}


# -- measuring ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """One size on one side."""

    side: str
    sessions: int
    failed: int
    why: str
    p50_s: float
    p95_s: float
    first_message_ms: float
    cpu_ms: float
    """Of one session; the database's and the model's are not in it."""
    pss_mib: float
    """Growth at its highest, of one session."""
    lag_p99_ms: float
    """How long a request that asks nothing but the event loop waits, on the slowest server."""
    notifies: float
    """A second."""


@dataclass(slots=True)
class Watch:
    """Looks at the servers from outside while they work."""

    stage: Stage
    side: Side
    peak_mib: float = 0.0
    lags_ms: list[float] = field(default_factory=list)
    notifies: int = 0

    async def look(self) -> None:
        """Note the memory, until cancelled."""
        while True:
            self.peak_mib = max(self.peak_mib, self.side.pss_mib())
            await asyncio.sleep(_LOOK_EVERY_S)

    async def knock(self, server: Server) -> None:
        """Note how long the event loop takes to answer, until cancelled."""
        while True:
            asked = time.monotonic()
            with suppress(aiohttp.ClientError):
                async with self.stage.http.get(server.url + self.side.health) as answer:
                    await answer.read()
                self.lags_ms.append((time.monotonic() - asked) * 1000)
            await asyncio.sleep(_KNOCK_EVERY_S)

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        listener = await asyncpg.connect(self.stage.service_dsn)
        await listener.add_listener(_CHANNEL, self._heard)
        tasks = [asyncio.create_task(self.look())]
        tasks += [asyncio.create_task(self.knock(server)) for server in self.side.servers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await listener.close()

    def _heard(self, *_: object) -> None:
        self.notifies += 1


async def measure(stage: Stage, side: Side, sessions: int) -> Figures:
    """Run so many sessions at once."""
    for peer in side.peers:  # nothing of the start is to be measured
        await follow_run(stage.http, peer, Plan(turns=2))
    watch = Watch(stage, side)
    before_mib, before_ms, began = side.pss_mib(), side.cpu_ms(), time.monotonic()
    plan = Plan(turns=TURNS, delay_ms=DELAY_MS)
    async with watch.under_way():
        work = [
            _session(stage, side.peers[number % len(side.peers)], plan.again())
            for number in range(sessions)
        ]
        ended = await asyncio.gather(*work, return_exceptions=True)
    took_s = time.monotonic() - began
    cpu_ms = side.cpu_ms() - before_ms
    good = [each for each in ended if not isinstance(each, BaseException)]
    bad = [each for each in ended if isinstance(each, BaseException)]
    await stage.log()
    return Figures(
        side.name,
        sessions,
        len(bad),
        f"{type(bad[0]).__name__}: {bad[0]}"[:200] if bad else "",
        _share([took for took, _ in good], 50),
        _share([took for took, _ in good], 95),
        median((s.first_message_ns - s.posted_ns) / 1e6 for _, s in good) if good else 0,
        cpu_ms / sessions,
        max(0.0, watch.peak_mib - before_mib) / sessions,
        _share(watch.lags_ms, 99),
        watch.notifies / took_s,
    )


async def _session(stage: Stage, peer: Peer, plan: Plan) -> tuple[float, Followed]:
    began = time.monotonic()
    try:
        seen = await follow_run(stage.http, peer, plan)
    except TimeoutError as error:
        raise RunFailed("it took too long") from error
    return time.monotonic() - began, seen


def _share(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]


# -- the table ----------------------------------------------------------------------------------

_HEAD = (
    *("N", "side", "failed", "p50 s", "p95 s", "x floor", "first message ms", "CPU ms a session"),
    *("x floor", "x N=10", "PSS MiB a session", "loop lag p99 ms", "NOTIFY/s"),
)


def table(all_figures: Sequence[Figures]) -> str:
    """Show everything, with the ratios that the targets speak of."""
    rows = [list(_HEAD)]
    by = {(each.side, each.sessions): each for each in all_figures}
    for each in all_figures:
        floor, smallest = by.get(("floor", each.sessions)), by.get((each.side, 10))
        rows.append(
            [
                str(each.sessions),
                each.side,
                str(each.failed),
                f"{each.p50_s:.2f}",
                f"{each.p95_s:.2f}",
                _ratio(each.p50_s, floor.p50_s if floor else None),
                f"{each.first_message_ms:.0f}",
                f"{each.cpu_ms:.1f}",
                _ratio(each.cpu_ms, floor.cpu_ms if floor else None),
                _ratio(each.cpu_ms, smallest.cpu_ms if smallest else None),
                f"{each.pss_mib:.2f}",
                f"{each.lag_p99_ms:.0f}",
                f"{each.notifies:.0f}",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _ratio(value: float, beside: float | None) -> str:
    return f"{value / beside:.2f}x" if beside else "-"


async def run(sizes: Sequence[int], sides: Sequence[str]) -> list[Figures]:
    """Measure every size on every side."""
    found: list[Figures] = []
    async with asyncio.timeout(_LIMIT_S), set_stage() as stage:
        openings = {
            "floor": lambda: floor_side(stage),
            "one": lambda: our_side(stage, 1),
            "two": lambda: our_side(stage, 2),
        }
        for name in sides:
            async with openings[name]() as side:
                for sessions in sizes:
                    found.append(await measure(stage, side, sessions))
                    print(found[-1], file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sessions", description=__doc__)
    parser.add_argument("--full", action="store_true", help="1,000 sessions too")
    parser.add_argument("--only", help="comma-separated numbers of sessions")
    parser.add_argument("--sides", default="floor,one,two")
    parser.add_argument("--serve-floor", nargs=3, metavar=("PORT", "DSN", "MODEL"))
    given = parser.parse_args()
    if given.serve_floor:
        port, dsn, model_url = given.serve_floor
        serve_floor(int(port), dsn, model_url)
        return 0
    sizes = (
        [int(n) for n in given.only.split(",")] if given.only else (FULL if given.full else SIZES)
    )
    found = asyncio.run(run(sizes, given.sides.split(",")))
    print(f"ideal {IDEAL_S:.1f} s\n\n{table(found)}")
    return 1 if any(each.failed for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
