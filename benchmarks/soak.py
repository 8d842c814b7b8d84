"""The soak: `python -m benchmarks.soak [--runs 20] [--readers 200] [--seed N]`.

Two replicas on one database drive the runs; the readers are spread over both, are cut at random
points (also in the middle of what was sent) and come back with `Last-Event-ID` on either. Each
must end with the exact journal: nothing twice, nothing missing, nothing altered. The same runs
go first without readers, so that the cost of a delivered event can be told from that of the runs.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import quantiles
from typing import Any

import aiohttp
import orjson

from benchmarks.client import Peer
from benchmarks.plan import Plan
from benchmarks.processes import Server
from benchmarks.reader import Delivered, Reader
from benchmarks.stage import Stage, set_stage

_LIMIT_S = 120
_PLAN = Plan(turns=30, parallel=3, delay_ms=300)

Entry = dict[str, Any]  # wire JSON: {seq, at, run_id, kind, data}


class Differs(Exception):
    """A reader did not get the journal."""


@dataclass(frozen=True, slots=True)
class Posted:
    run_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Replicas:
    stage: Stage
    peers: tuple[Peer, ...]
    servers: tuple[Server, ...]

    def cpu_ms(self) -> float:
        return sum(server.cpu_ms() for server in self.servers)

    async def post(self, number: int) -> Posted:
        peer = self.peers[number % len(self.peers)]
        body = {
            "prompt": _PLAN.again().prompt,
            "workspace": {"source": "directory", "path": peer.workspace},
            "options": {"max_turns": 100, "max_budget_usd": "50"},
        }
        headers = {"authorization": f"Bearer {peer.key}", "content-type": "application/json"}
        async with self.stage.http.post(
            f"{peer.url}/v1/runs", data=orjson.dumps(body), headers=headers
        ) as answer:
            made = orjson.loads(await answer.read())
            if answer.status != 202:
                raise Differs(f"POST /v1/runs: {answer.status} {made}")
        return Posted(made["run"]["id"], made["session"]["id"])

    async def finished(self, posted: Posted) -> None:
        run = {"status": ""}
        while run["status"] != "finished":
            run = await self._get(0, f"/v1/runs/{posted.run_id}?wait=30")
        if run["result_subtype"] != "success":
            raise Differs(f"{posted.run_id} ended with {run}")

    async def journal(self, posted: Posted) -> list[Entry]:
        entries: list[Entry] = []
        more = True
        while more:
            after = entries[-1]["seq"] if entries else 0
            query = f"run_id={posted.run_id}&after={after}&limit=200"
            page = await self._get(0, f"/v1/sessions/{posted.session_id}/events?{query}")
            entries += page["data"]
            more = page["has_more"]
        return entries

    async def _get(self, number: int, path: str) -> dict[str, Any]:  # wire JSON
        peer = self.peers[number]
        headers = {"authorization": f"Bearer {peer.key}"}
        async with self.stage.http.get(peer.url + path, headers=headers) as answer:
            answer.raise_for_status()
            body: dict[str, Any] = orjson.loads(await answer.read())
            return body


def lags_ms(journal: Sequence[Entry], delivered: Sequence[Delivered]) -> list[float]:
    """From the commit to the reader, of what was not a replay; raises Differs if not equal."""
    got = [(each.seq, each.kind, orjson.loads(each.data)) for each in delivered]
    want = [(entry["seq"], entry["kind"], entry["data"]) for entry in journal]
    if got != want:
        seqs = [seq for seq, _, _ in got], [seq for seq, _, _ in want]
        raise Differs(f"a reader got seqs {seqs[0]}, the journal has {seqs[1]}")
    stamps = [datetime.fromisoformat(entry["at"]).timestamp() for entry in journal]
    return [
        (each.received_s - at_s) * 1000
        for each, at_s in zip(delivered, stamps, strict=True)
        if at_s > each.connected_s
    ]


async def without_readers(replicas: Replicas, runs: int) -> float:
    """CPU in ms of the runs alone."""
    before_ms = replicas.cpu_ms()
    posted = [await replicas.post(number) for number in range(runs)]
    await asyncio.gather(*(replicas.finished(each) for each in posted))
    return replicas.cpu_ms() - before_ms


async def with_readers(
    replicas: Replicas, runs: int, readers: int, dice: random.Random
) -> tuple[list[Posted], list[Reader], float, float]:
    """The runs, their readers, CPU in ms and seconds."""
    before_ms, started = replicas.cpu_ms(), time.monotonic()
    posted = [await replicas.post(number) for number in range(runs)]
    all_readers = [
        Reader(posted[number % runs].run_id, replicas.peers, random.Random(dice.random()))  # noqa: S311 - where to cut is no secret
        for number in range(readers)
    ]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http, asyncio.TaskGroup() as tasks:
        for reader in all_readers:
            tasks.create_task(reader.read(http))
    await asyncio.gather(*(replicas.finished(each) for each in posted))
    return posted, all_readers, replicas.cpu_ms() - before_ms, time.monotonic() - started


async def soak(runs: int, readers: int, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - where to cut is no secret
    async with (
        asyncio.timeout(_LIMIT_S),
        set_stage() as stage,
        stage.service() as (peer_a, server_a),
        stage.service() as (peer_b, server_b),
    ):
        replicas = Replicas(stage, (peer_a, peer_b), (server_a, server_b))
        alone_ms = await without_readers(replicas, runs)
        posted, all_readers, cpu_ms, wall_s = await with_readers(replicas, runs, readers, dice)
        journals = {each.run_id: await replicas.journal(each) for each in posted}
    lags = [lag for each in all_readers for lag in lags_ms(journals[each.run_id], each.delivered)]
    events = sum(len(each.delivered) for each in all_readers)
    cuts = sum(each.cuts for each in all_readers)
    refused = sum(each.refused for each in all_readers)
    cost_us = (cpu_ms - alone_ms) * 1000 / events
    steps = quantiles(lags, n=100)
    print(f"{readers} readers on {runs} runs over 2 replicas: every one got the exact journal")
    print(f"{sum(map(len, journals.values()))} rows, {events} delivered in {wall_s:.1f} s")
    print(f"{events / wall_s:.0f} events/s; {cuts} cuts, {refused} refused at the stream limit")
    print(f"CPU {cost_us:.0f} us a delivered event (the runs alone: {alone_ms / runs:.0f} ms each)")
    print(f"lag from commit to reader: p50 {steps[49]:.1f} ms, p99 {steps[98]:.1f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))  # noqa: S311 - no secret
    given = parser.parse_args()
    print(f"seed {given.seed}")
    try:
        asyncio.run(soak(given.runs, given.readers, given.seed))
    except Differs as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
