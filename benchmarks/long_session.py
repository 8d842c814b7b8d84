"""A session of thousands of turns: `python -m benchmarks.long_session [--turns 2000]`.

One run of that many Reads, on the floor and on the service in turns. The model counts what it is
sent, and its window is such that the service compacts twice on the way; the floor never does, and
sends all of it. Then the session is resumed in a process that has done nothing else.

A turn's own time is a gap: from the last byte of an answer to the last byte of the next request.
The turns in which a summary was asked for are left out of it.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from statistics import median

from benchmarks.client import Followed, Peer, RunFailed, follow_run
from benchmarks.plan import Plan
from benchmarks.processes import Server
from benchmarks.scripted_model import summaries_id
from benchmarks.stage import Stage, set_stage
from benchmarks.table import table

TURNS = 2_000
TOKENS_A_TURN = 75
"""Of the window, a little over half of what a turn really adds: so two compactions are enough."""
SHARE = 10
"""The first and the last tenth of the turns are compared."""
_LIMIT_S = 3_600

Figures = dict[str, float]


async def long_run(stage: Stage, peer: Peer, server: Server, turns: int) -> tuple[Figures, str]:
    """Do the turns; give the figures, and the session to resume."""
    warm = Plan(turns=2)
    await follow_run(stage.http, peer, warm)
    await stage.log()
    plan = Plan(turns=turns, long=True)
    part = turns // SHARE
    before_ms = server.cpu_ms()
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(follow_run(stage.http, peer, plan))
        early = tasks.create_task(_pss_mib(stage, server, plan, part))
        late = tasks.create_task(_pss_mib(stage, server, plan, turns))
    cpu_ms = server.cpu_ms() - before_ms
    log = await stage.log()
    times, summaries = log[plan.id], log.get(summaries_id(plan), [])
    if len(times) != plan.requests:
        raise RunFailed(f"{peer.name}: {len(times)} requests for {plan}")
    first, last = _gaps_ms(times[: part + 1], summaries), _gaps_ms(times[-part - 1 :], summaries)
    return {
        "compactions": len(summaries),
        f"turns 1 to {part}, own ms": median(first),
        f"the last {part}, own ms": median(last),
        "growth of a turn": median(last) / median(first),
        "CPU ms a turn": cpu_ms / plan.requests,
        f"MiB at turn {part}": early.result(),
        f"MiB at turn {turns}": late.result(),
        "growth MiB": late.result() - early.result(),
    }, run.result().session_id


async def _pss_mib(stage: Stage, server: Server, plan: Plan, turn: int) -> float:
    await stage.arrived(plan.id, turn)
    return server.pss_mib()


def _gaps_ms(times: Sequence[Sequence[int]], summaries: Sequence[Sequence[int]]) -> list[float]:
    return [
        (after[0] - before[1]) / 1e6
        for before, after in pairwise(times)
        if not any(before[1] < asked[0] < after[0] for asked in summaries)
    ]


async def resume(stage: Stage, peer: Peer, server: Server, session_id: str) -> Figures:
    """Prompt the session in this process, which knows nothing of it yet."""
    plan = Plan(hold=True, long=True)
    before_ms = server.cpu_ms()
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(follow_run(stage.http, peer, plan, session_id=session_id))
        await stage.arrived(plan.id, 1)
        cpu_ms = server.cpu_ms() - before_ms
        await stage.release()
    seen: Followed = run.result()
    arrived_ns = (await stage.log())[plan.id][0][0]
    return {
        "resume, POST to model ms": (arrived_ns - seen.posted_ns) / 1e6,
        "resume, CPU ms": cpu_ms,
    }


def start(stage: Stage, name: str, turns: int) -> AbstractAsyncContextManager[tuple[Peer, Server]]:
    """Start one of the two, as a new process."""
    if name == "floor":
        return stage.floor()
    window = {"claude-sonnet-5": {"context_window": TOKENS_A_TURN * turns}}
    settings = {
        "MODEL__PRICES": json.dumps(window),
        "LIMITS__CEILING_MAX_TURNS": "10000",
    }
    return stage.service(settings=settings)


async def measure(turns: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Both, in turns; each resume in a process of its own."""
    samples: dict[str, dict[str, list[float]]] = {"floor": {}, "ours": {}}
    async with asyncio.timeout(_LIMIT_S), set_stage() as stage:
        for number in range(rounds):
            for name in ("floor", "ours") if number % 2 == 0 else ("ours", "floor"):
                async with start(stage, name, turns) as (peer, server):
                    figures, session_id = await long_run(stage, peer, server, turns)
                async with start(stage, name, turns) as (peer, server):
                    figures |= await resume(stage, peer, server, session_id)
                for figure, value in figures.items():
                    samples[name].setdefault(figure, []).append(value)
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_session", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    given = parser.parse_args()
    text, missed = table(asyncio.run(measure(given.turns, given.rounds)))
    print(text)
    return 1 if missed and given.strict else 0


if __name__ == "__main__":
    sys.exit(main())
