"""Runs that wait for an approval: `python -m benchmarks.actions [--runs 10000]`.

One host; each run asks the demo model, calls a tool that needs an approval, and is let go. Then: what
the host holds for them (slots, memory), what a claim and an idle poll cost beside them, and how soon an
answered one ends. Exits with 1 when a waiting run costs a slot, or more than a trace of memory.
"""

import argparse
import asyncio
import sys
import time
from statistics import median
from typing import Any

import aiohttp
import asyncpg

from app.store.claims import CLAIMABLE
from benchmarks.client import Peer
from benchmarks.processes import Server
from benchmarks.stage import Stage, set_stage

RUNS = 10_000
WARM = 300
AT_ONCE = 24
ANSWERED = 50
MAX_KIB_EACH = 2.0
"""Of a host's memory, for each run that waits. Pools and caches that grow to their bounds are in it."""
_BODY = {
    "prompt": 'Write "hello" to hello.txt',
    "options": {"model": "demo", "actions": {"permissions": "ask", "hold_seconds": 0}},
}


async def start(http: aiohttp.ClientSession, peer: Peer, number: int) -> None:
    """Start so many runs."""
    left = iter(range(number))

    async def some() -> None:
        for _ in left:
            async with http.post(f"{peer.url}/v1/runs", json=_BODY, headers=_key(peer)) as said:
                assert said.status == 202, await said.text()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def until_parked(database: asyncpg.Connection, number: int) -> None:
    while True:
        parked = await database.fetchval("SELECT count(*) FROM runs WHERE is_parked")
        if parked >= number:
            return
        await asyncio.sleep(0.2)


async def answered_ms(http: aiohttp.ClientSession, peer: Peer, action: dict[str, Any]) -> float:
    """Answer an action; give the time until its run has ended."""
    began = time.perf_counter()
    path = f"{peer.url}/v1/actions/{action['id']}/resolve"
    async with http.post(path, json={"behavior": "allow"}, headers=_key(peer)) as said:
        assert said.status == 200, await said.text()
    path = f"{peer.url}/v1/runs/{action['run_id']}?wait=30"
    async with http.get(path, headers=_key(peer)) as said:
        run = await said.json()
    assert (run["status"], run["result_subtype"]) == ("finished", "success"), run
    return (time.perf_counter() - began) * 1000


async def claim_ms(database: asyncpg.Connection) -> float:
    """Give how long it takes to see that there is nothing to claim."""
    times = []
    for _ in range(20):
        began = time.perf_counter()
        assert not await database.fetch(f"SELECT r.id {CLAIMABLE}")
        times.append((time.perf_counter() - began) * 1000)
    return median(times)


async def measure(stage: Stage, peer: Peer, server: Server, runs: int) -> bool:
    database = await asyncpg.connect(stage.service_dsn)
    try:
        await start(stage.http, peer, WARM)
        await until_parked(database, WARM)
        await asyncio.sleep(2)
        before_mib = server.pss_mib()
        began = time.perf_counter()
        await start(stage.http, peer, runs - WARM)
        await until_parked(database, runs)
        took_s = time.perf_counter() - began
        await asyncio.sleep(2)
        await database.execute("ANALYZE")
        grown_kib = (server.pss_mib() - before_mib) * 1024 / (runs - WARM)
        owned = await database.fetchval("SELECT count(*) FROM sessions WHERE owner IS NOT NULL")
        cpu_ms, began = server.cpu_ms(), time.perf_counter()
        await asyncio.sleep(5)
        idle = (server.cpu_ms() - cpu_ms) / (time.perf_counter() - began) / 10
        print(f"{runs:,} runs wait after {took_s:.0f} s; the host owns {owned} of their sessions")
        print(f"memory for each: {grown_kib:.2f} KiB (PSS, {before_mib:.0f} MiB before)")
        print(
            f"nothing to claim is seen in {await claim_ms(database):.2f} ms; idle CPU {idle:.1f} %"
        )
        rows = await database.fetch(
            "SELECT id, run_id FROM actions ORDER BY random() LIMIT $1", ANSWERED
        )
        times = [await answered_ms(stage.http, peer, dict(row)) for row in rows]
        print(f"answered to ended: median {median(times):.0f} ms, longest {max(times):.0f} ms")
    finally:
        await database.close()
    return owned == 0 and grown_kib <= MAX_KIB_EACH


def _key(peer: Peer) -> dict[str, str]:
    return {"x-api-key": peer.key}


async def main(runs: int) -> int:
    async with set_stage() as stage, stage.service() as (peer, server):
        return 0 if await measure(stage, peer, server, runs) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs that wait for an approval.")
    parser.add_argument("--runs", type=int, default=RUNS)
    sys.exit(asyncio.run(main(parser.parse_args().runs)))
