"""The workloads, each measured once per call; `run.py` repeats them and takes medians.

A gap is the time from the last byte of a model answer to the arrival of the next request: what
the program itself takes for a turn.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from benchmarks.client import Followed, Peer, RunFailed, follow_run
from benchmarks.plan import Plan
from benchmarks.processes import Server
from benchmarks.stage import Stage

DELTAS = 2_000
LONG_TURNS = 200
IDLE_SHARE = 8
"""Sessions that become idle for one that runs at once."""
_SETTLE_S = 0.15
"""What a run still does after its last frame belongs to it."""

Figures = dict[str, float]


@dataclass(slots=True)
class Bench:
    """One peer, its running server, and what it needs."""

    stage: Stage
    peer: Peer
    server: Server
    long_sessions: list[str] = field(default_factory=list)
    """Sessions of W5, for W7 to resume."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some runs of one plan, one after the other."""

    cpu_ms: float
    """Of one run."""
    seen: tuple[Followed, ...]
    times: tuple[Sequence[Sequence[int]], ...]
    """For each run, arrival and answer of its model requests (ns)."""

    def gaps_ms(self, first: int = 1, last: int | None = None) -> Iterator[float]:
        """The gaps after the answers `first` to `last`, counted from 1."""
        for run in self.times:
            pairs = list(pairwise(run))[first - 1 : last]
            yield from ((after[0] - before[1]) / 1e6 for before, after in pairs)


async def run_block(bench: Bench, runs: int, plan: Plan) -> Block:
    """Do the plan so many times; the model must have been asked as often as it says."""
    plans = [plan.again() for _ in range(runs)]
    await asyncio.sleep(_SETTLE_S)
    before_ms = bench.server.cpu_ms()
    seen = [await follow_run(bench.stage.http, bench.peer, plan) for plan in plans]
    await asyncio.sleep(_SETTLE_S)
    cpu_ms = (bench.server.cpu_ms() - before_ms) / runs
    log = await bench.stage.log()
    for each in plans:
        if len(log.get(each.id, ())) != each.requests:
            raise RunFailed(f"{bench.peer.name}: {len(log.get(each.id, ()))} requests for {each}")
    return Block(cpu_ms, tuple(seen), tuple(log[each.id] for each in plans))


async def warm_up(bench: Bench) -> None:
    await run_block(bench, 3, Plan(turns=2))
    await run_block(bench, 1, Plan(deltas=DELTAS, previews=True))


async def w1(bench: Bench, runs: int) -> Figures:
    """One text. The start is counted from the POST, so from before the run was accepted."""
    block = await run_block(bench, runs, Plan())
    to_model = [
        times[0][0] - seen.posted_ns for seen, times in zip(block.seen, block.times, strict=True)
    ]
    return {
        "W1 first message ms": _ms(seen.first_message_ns - seen.posted_ns for seen in block.seen),
        "W1 first assistant ms": _ms(
            seen.first_assistant_ns - seen.posted_ns for seen in block.seen
        ),
        "W1 CPU ms": block.cpu_ms,
        "P47 POST to model ms": _ms(to_model),
    }


async def w2(bench: Bench, runs: int) -> Figures:
    """Ten turns of one Read."""
    block = await run_block(bench, runs, Plan(turns=10))
    return {"W2 CPU ms a turn": block.cpu_ms / 11, "W2 gap ms": median(block.gaps_ms())}


async def w3(bench: Bench, runs: int) -> Figures:
    """Ten turns of five Reads at once."""
    block = await run_block(bench, runs, Plan(turns=10, parallel=5))
    return {"W3 CPU ms a turn": block.cpu_ms / 11, "W3 gap ms": median(block.gaps_ms())}


async def w5(bench: Bench, runs: int) -> Figures:
    """Two hundred turns of one Read: the gap must not grow with the history."""
    block = await run_block(bench, runs, Plan(turns=LONG_TURNS))
    bench.long_sessions += [seen.session_id for seen in block.seen]
    early, late = median(block.gaps_ms(1, 20)), median(block.gaps_ms(181, 200))
    return {
        "W5 CPU ms a turn": block.cpu_ms / (LONG_TURNS + 1),
        "W5 gap 1-20 ms": early,
        "W5 gap 181-200 ms": late,
        "W5 growth": late / early,
    }


async def w8b(bench: Bench, runs: int) -> Figures:
    """Deltas as fast as they are taken."""
    block = await run_block(bench, runs, Plan(deltas=DELTAS, previews=True))
    return {"W8b CPU us a delta": block.cpu_ms * 1000 / DELTAS}


async def memory(bench: Bench, sessions: int) -> Figures:
    """Sessions that wait in a model call after ten Reads; then what idle ones leave behind.

    Wants a young server. The idle figure is the growth over many sessions one after the other,
    after some more: what a wave of runs leaves in the allocator's hands is not a session's.
    """
    await warm_up(bench)
    before = bench.server.pss_mib()
    running = await _held_mib(bench, sessions)
    await run_block(bench, sessions, Plan(turns=1))
    idle_once = bench.server.pss_mib()
    await run_block(bench, sessions * IDLE_SHARE, Plan(turns=1))
    growth = bench.server.pss_mib() - idle_once
    return {
        "memory MiB a running session": (running - before) / sessions,
        "memory MiB an idle session": growth / sessions / IDLE_SHARE,
        "memory MiB server, idle": idle_once,
    }


async def _held_mib(bench: Bench, sessions: int) -> float:
    plans = [Plan(turns=10, hold=True) for _ in range(sessions)]
    async with asyncio.TaskGroup() as readers:
        for plan in plans:
            readers.create_task(follow_run(bench.stage.http, bench.peer, plan))
        for plan in plans:
            await bench.stage.arrived(plan.id, plan.requests)
        await asyncio.sleep(_SETTLE_S)
        held_mib = bench.server.pss_mib()
        await bench.stage.release()
    await asyncio.sleep(_SETTLE_S)
    await bench.stage.log()
    return held_mib


async def w7(bench: Bench, sessions: int) -> Figures:
    """Resume a long session in a process that has done nothing else yet."""
    assert sessions == 1
    plan, session_id = Plan(hold=True), bench.long_sessions[0]
    started_ms = bench.server.cpu_ms()
    async with asyncio.TaskGroup() as readers:
        readers.create_task(follow_run(bench.stage.http, bench.peer, plan, session_id=session_id))
        await bench.stage.arrived(plan.id, 1)
        asked_ms = bench.server.cpu_ms()
        await bench.stage.release()
    await bench.stage.log()
    return {
        "W7 CPU ms to first request": asked_ms - started_ms,
        "W7 CPU ms with start": asked_ms,
    }


def _ms(values_ns: Iterable[int]) -> float:
    return median(values_ns) / 1e6
