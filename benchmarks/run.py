"""The benchmark: `python -m benchmarks.run [--quick] [--only W1,W2] [--floor-only] [--strict]`.

The floor and the service do the same work on the same database server and the same scripted
model, in turns (floor, ours, ours, floor, ...), so that what else the machine does hits both.
Trust the ratios first, CPU next, wall times last.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

from benchmarks import workloads
from benchmarks.client import Peer
from benchmarks.processes import Server
from benchmarks.stage import Stage, set_stage
from benchmarks.table import table
from benchmarks.workloads import Bench, Figures

_LIMIT_S = 360


@dataclass(frozen=True, slots=True)
class Workload:
    """`amount` is runs a round, or sessions."""

    measure: Callable[[Bench, int], Awaitable[Figures]]
    rounds: int
    amount: int
    quick_rounds: int
    quick_amount: int

    def times(self, *, quick: bool) -> tuple[int, int]:
        return (self.quick_rounds, self.quick_amount) if quick else (self.rounds, self.amount)


SHARED = {
    "W1": Workload(workloads.w1, 5, 10, 3, 5),
    "W2": Workload(workloads.w2, 5, 4, 3, 2),
    "W3": Workload(workloads.w3, 5, 3, 3, 1),
    "W5": Workload(workloads.w5, 3, 1, 1, 1),
    "W8b": Workload(workloads.w8b, 5, 5, 3, 3),
}
"""Measured on servers that run for all of them."""
FRESH = {
    "memory": Workload(workloads.memory, 1, 50, 1, 20),
    "W7": Workload(workloads.w7, 3, 1, 1, 1),
}
"""Measured on a new process each time, when the others are gone. W7 resumes sessions of W5."""

Samples = dict[str, dict[str, list[float]]]
Sessions = dict[str, list[str]]
"""The long sessions of each peer."""


@dataclass(frozen=True, slots=True)
class Choice:
    names: frozenset[str]
    quick: bool
    peers: tuple[str, ...]

    def rounds(self, name: str, workload: Workload) -> Iterator[tuple[tuple[str, ...], int]]:
        """For each round, the peers in their order, and the amount."""
        rounds, amount = workload.times(quick=self.quick)
        started = time.monotonic()
        for number in range(rounds):
            yield self.peers if number % 2 == 0 else self.peers[::-1], amount
        print(f"{name}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


def _start(stage: Stage, name: str) -> AbstractAsyncContextManager[tuple[Peer, Server]]:
    return stage.floor() if name == "floor" else stage.service()


async def _measure_shared(stage: Stage, choice: Choice, samples: Samples) -> Sessions:
    async with AsyncExitStack() as servers:
        benches = {
            name: Bench(stage, *await servers.enter_async_context(_start(stage, name)))
            for name in choice.peers
        }
        for bench in benches.values():
            await workloads.warm_up(bench)
        for name, workload in SHARED.items():
            if name in choice.names:
                for peers, amount in choice.rounds(name, workload):
                    for peer in peers:
                        _keep(samples, peer, await workload.measure(benches[peer], amount))
        if "W7" in choice.names and "W5" not in choice.names:
            for bench in benches.values():
                await workloads.w5(bench, 1)
        return {name: bench.long_sessions for name, bench in benches.items()}


async def _measure_fresh(
    stage: Stage, choice: Choice, samples: Samples, sessions: Sessions
) -> None:
    for name, workload in FRESH.items():
        if name in choice.names:
            for peers, amount in choice.rounds(name, workload):
                for peer in peers:
                    async with _start(stage, peer) as running:
                        bench = Bench(stage, *running, sessions[peer])
                        _keep(samples, peer, await workload.measure(bench, amount))


def _keep(samples: Samples, peer: str, figures: Figures) -> None:
    for figure, value in figures.items():
        samples[peer].setdefault(figure, []).append(value)


async def measure(choice: Choice) -> Samples:
    samples: Samples = {name: {} for name in choice.peers}
    async with asyncio.timeout(_LIMIT_S), set_stage() as stage:
        sessions = await _measure_shared(stage, choice, samples)
        await _measure_fresh(stage, choice, samples, sessions)
    return samples


def main() -> int:
    names = [*SHARED, *FRESH]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under 90 s")
    parser.add_argument("--only", default=",".join(names), help="comma-separated workloads")
    parser.add_argument("--floor-only", action="store_true", help="leave the service out")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    given = parser.parse_args()
    chosen = frozenset(given.only.split(","))
    if unknown := chosen - set(names):
        parser.error(f"unknown workloads {sorted(unknown)}; there are {names}")
    peers = ("floor",) if given.floor_only else ("floor", "ours")
    text, missed = table(asyncio.run(measure(Choice(chosen, given.quick, peers))))
    print(text)
    return 1 if missed and given.strict else 0


if __name__ == "__main__":
    sys.exit(main())
