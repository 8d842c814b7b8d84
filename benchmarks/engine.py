"""The engine's own figures: `python -m benchmarks.engine [--only append,dispatch,...]`.

*append*: rows a second, and CPU of client and database, with the fence, without one (the least
statement that could store the same rows), and as the service does it under load (group commit).
*dispatch*: runs that wait when a host comes; how fast it begins them.
*readers*: a thousand readers of one session, against the same run without readers.
*cancel*: 200 runs on one host, each cancelled through the other; from the POST to its result.
*agents*: what a turn of a subagent costs beside a turn of the session itself.
*takeover*: a host with 50 runs is killed; how long after the end of its leases they go on.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from statistics import median, quantiles
from typing import Any
from uuid import uuid4

import aiohttp
import asyncpg
import orjson
import uvloop
from ulid import ULID

from app.domain.journal import Batch, Entry
from app.domain.messages import Prompt, UserContent, UserMessage
from app.domain.usage import LedgerRow, Usage
from app.store import queue
from app.store.append import append as append_one
from app.store.claims import Claim
from app.store.engine import Database, open_database
from app.store.group_commit import GroupCommit
from app.store.keys import DEFAULT_TENANT
from app.store.leases import Host, Lease
from app.store.queue import NewRun
from app.store.rows import Row, columns, ledger_columns, new_rows
from app.store.sessions import NewSession, create_session
from benchmarks.client import Peer
from benchmarks.plan import Plan
from benchmarks.processes import Server
from benchmarks.stage import Stage, set_stage

_LIMIT_S = 600
_LEASE_S = 6.0
_HEARTBEAT_S = 2.0


def host(
    stage: Stage, name: str, *, role: str = "serve"
) -> AbstractAsyncContextManager[tuple[Peer, Server]]:
    """One host of the service, without limits and with a short lease."""
    settings = {
        "ENGINE__MAX_RUNS": "2000",
        "ENGINE__LEASE_S": str(_LEASE_S),
        "ENGINE__HEARTBEAT_S": str(_HEARTBEAT_S),
        "STREAM__MAX_PER_SESSION": "2000",
        "STREAM__MAX_PER_KEY": "5000",
    }
    return stage.service(name, role=role, settings=settings)


async def ask(stage: Stage, peer: Peer, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - wire JSON
    headers = {"authorization": f"Bearer {peer.key}", "content-type": "application/json"}
    data = None if body is None else orjson.dumps(body)
    timeout = aiohttp.ClientTimeout(total=120)
    async with stage.http.request(
        method, peer.url + path, data=data, headers=headers, timeout=timeout
    ) as answer:
        answer.raise_for_status()
        return orjson.loads(await answer.read())


async def post(stage: Stage, peer: Peer, plan: Plan) -> dict[str, Any]:
    """Begin a run in a session of its own; give the 202's body."""
    body = {
        "prompt": plan.prompt,
        "workspace": {"source": "directory", "path": peer.workspace},
        "options": {"max_turns": 500, "max_budget_usd": "50"},
    }
    made: dict[str, Any] = await ask(stage, peer, "POST", "/v1/runs", body)
    return made


def share(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


# -- append -------------------------------------------------------------------------------------

_UNFENCED = """
WITH j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, subtype, uuid,
                       parent_tool_use_id, body, facts)
  SELECT $1, $2, $3 + o, $4, k, t, s, u, p, b, x
  FROM unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
              $11::text[]) WITH ORDINALITY AS n(k, t, s, u, p, b, x, o))
INSERT INTO ledger (tenant_id, session_id, run_id, thread, purpose, model, request_id,
    http_status, input_tokens, output_tokens, cache_read_tokens, cache_write_5m_tokens,
    cache_write_1h_tokens, thinking_tokens, web_search_requests, cost_usd, is_estimated,
    duration_ms)
  SELECT $1, $2, $4, n.* FROM unnest($12::text[], $13::text[], $14::text[], $15::text[],
    $16::int[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[],
    $22::bigint[], $23::bigint[], $24::numeric[], $25::bool[], $26::int[]) AS n"""
"""The same rows; no epoch, no sums, and whoever writes must know the next seq."""

Append = Callable[[Claim, int, Batch], Awaitable[object]]


async def appends(stage: Stage) -> None:
    """Alternate steps of a model answer (one row and its ledger row) and of a tool result."""
    async with AsyncExitStack() as stack:
        async with host(stage, "migrates"):
            pass
        database = await stack.enter_async_context(
            open_database(stage.service_dsn, pool_size=10, connect_s=10)
        )
        server = Server(_postmaster(stage), "")
        group = GroupCommit(database)

        async def unfenced(claim: Claim, last_seq: int, batch: Batch) -> None:
            lease = claim.lease
            rows = new_rows(batch, lease.session_id, lease.run_id, _now())
            await database.raw.execute(
                _UNFENCED,
                *(lease.tenant_id, lease.session_id, last_seq, lease.run_id),
                *columns(rows),
                *ledger_columns(batch.ledger),
            )

        async def fenced(claim: Claim, _: int, batch: Batch) -> list[Row]:
            return await append_one(database, claim.lease, batch)

        async def grouped(claim: Claim, _: int, batch: Batch) -> list[Row]:
            return await group.append(claim.lease, batch)

        ways: dict[str, Append] = {"no fence": unfenced, "fence": fenced, "grouped": grouped}
        print("writers  way       appends/s  x no fence  client us  database us")
        for writers in (1, 16, 200):
            first = 0.0
            for name, append in ways.items():
                figures = [await _append_round(database, server, append, writers) for _ in range(3)]
                rate, client, theirs = (median(column) for column in zip(*figures, strict=True))
                first = first or rate
                print(
                    f"{writers:7}  {name:8}  {rate:9.0f}  {rate / first:9.2f}x"
                    f"  {client:9.0f}  {theirs:11.0f}"
                )


async def _append_round(
    database: Database, server: Server, append: Append, writers: int
) -> tuple[float, float, float]:
    """Appends a second; CPU us of an append here and in the database."""
    claims = [await _claimed(database) for _ in range(writers)]
    steps = max(6, 1200 // writers // 2)
    before, cpu_s, theirs_ms = time.perf_counter(), time.process_time(), server.cpu_ms()
    await asyncio.gather(*(_steps(append, claim, steps) for claim in claims))
    count = writers * steps * 2
    return (
        count / (time.perf_counter() - before),
        (time.process_time() - cpu_s) / count * 1e6,
        (server.cpu_ms() - theirs_ms) / count * 1e3,
    )


async def _steps(append: Append, claim: Claim, steps: int) -> None:
    spent = LedgerRow("claude-sonnet-5", Usage(1000, 100), Decimal("0.01"), request_id="req")
    seq = claim.last_seq
    for _ in range(steps):
        await append(claim, seq, Batch((_note(claim, "short"),), (spent,)))
        await append(claim, seq + 1, Batch((_note(claim, "x" * 3000),)))
        seq += 2


def _note(claim: Claim, text: str) -> Entry:
    message = UserMessage(
        session_id=claim.lease.session_id,
        uuid=str(uuid4()),
        message=UserContent(content=text),
        timestamp="2030-01-01T00:00:00.000Z",
    )
    return Entry.of(message)


async def _claimed(database: Database) -> Claim:
    session_id, run_id = await _queued(database, Host("host_bench", 600))
    found = await database.raw.fetchrow(
        "SELECT epoch, last_seq FROM sessions WHERE tenant_id = $1 AND id = $2",
        DEFAULT_TENANT,
        session_id,
    )
    assert found is not None
    lease = Lease(DEFAULT_TENANT, session_id, run_id, found["epoch"])
    return Claim(lease, 1, 0, found["last_seq"])


async def _queued(database: Database, claimer: Host | None, prompt: str = "hi") -> tuple[str, str]:
    """A session with a run; a `claimer` takes it."""
    session_id, run_id = str(uuid4()), f"run_{ULID()}"
    created = '{"type":"session.created"}'
    run = NewRun(
        run_id, {}, [Prompt(f"in_{ULID()}", str(uuid4()), prompt)], {}, '{"type":"run.queued"}'
    )
    async with database.begin() as connection:
        await create_session(
            connection, DEFAULT_TENANT, NewSession(session_id, None, {}, {}, {}, created)
        )
        await queue.enqueue(
            connection, DEFAULT_TENANT, session_id, run, queue_limit=20, host=claimer
        )
    return session_id, run_id


def _now() -> datetime:
    return datetime.now(UTC)


def _postmaster(stage: Stage) -> int:
    """The embedded server's pid; 0, and so no figure, for a server that is not ours."""
    for file in (stage.folder / "pg").rglob("postmaster.pid"):
        return int(file.read_text().split()[0])
    return 0


# -- dispatch -----------------------------------------------------------------------------------


async def dispatch(stage: Stage, runs: int = 300) -> None:
    """Accepted by a host that drives none; then one comes that does."""
    async with host(stage, "accepts", role="api") as (peer, _):
        began = time.perf_counter()
        for start in range(0, runs, 20):
            size = min(20, runs - start)
            await asyncio.gather(*(post(stage, peer, Plan()) for _ in range(size)))
        accepted = runs / (time.perf_counter() - began)
        async with host(stage, "drives") as (_, server):
            before_ms = server.cpu_ms()
            unfinished = runs
            while unfinished:
                await asyncio.sleep(0.05)
                unfinished = await _one(
                    stage, "SELECT count(*) FROM runs WHERE status <> 'finished'"
                )
            cpu_ms = (server.cpu_ms() - before_ms) / runs
        span_s = await _one(
            stage,
            "SELECT extract(epoch FROM max(started_at) - min(started_at))::float FROM runs",
        )
        whole_s = await _one(
            stage,
            "SELECT extract(epoch FROM max(finished_at) - min(started_at))::float FROM runs",
        )
    print(f"accepted {accepted:.0f} runs/s (queued, committed)")
    print(f"begun    {runs / span_s:.0f} runs/s; {runs} runs of one answer each")
    print(f"ended    {runs / whole_s:.0f} runs/s; CPU {cpu_ms:.1f} ms a run, its start included")


async def _one(stage: Stage, sql: str) -> Any:  # noqa: ANN401 - a figure
    connection = await asyncpg.connect(stage.service_dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


# -- readers ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Follower:
    """A reader that only counts, and notes when each row came."""

    seqs: list[int]
    at_s: list[float]
    refused: int = 0
    """Answers 503: too many came at once, and it came again."""

    async def follow(self, http: aiohttp.ClientSession, peer: Peer, run_id: str) -> None:
        while not await self._followed(http, peer, run_id):
            self.refused += 1
            await asyncio.sleep(1)

    async def _followed(self, http: aiohttp.ClientSession, peer: Peer, run_id: str) -> bool:
        headers = {"authorization": f"Bearer {peer.key}"}
        rest = b""
        async with http.get(
            f"{peer.url}/v1/runs/{run_id}/stream",
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=120),
        ) as answer:
            if answer.status == 503:
                return False
            answer.raise_for_status()
            async for data in answer.content.iter_any():
                *frames, rest = (rest + data).split(b"\n\n")
                now = time.time()
                for frame in frames:
                    for line in frame.split(b"\n"):
                        if line.startswith(b"id: "):
                            self.seqs.append(int(line[4:]))
                            self.at_s.append(now)
        return True


async def readers(stage: Stage, count: int = 1000) -> None:
    """The same run twice: alone, and with so many readers."""
    plan = Plan(turns=20, delay_ms=500)
    async with host(stage, "read") as (peer, server):
        await _finished(stage, peer, (await post(stage, peer, Plan(turns=2)))["run"]["id"])
        before_ms = server.cpu_ms()
        made = await post(stage, peer, plan.again())
        await _finished(stage, peer, made["run"]["id"])
        alone_ms = server.cpu_ms() - before_ms
        before_ms, before_mib = server.cpu_ms(), server.pss_mib()
        made = await post(stage, peer, plan.again())
        run_id, session_id = made["run"]["id"], made["session"]["id"]
        followers = [Follower([], []) for _ in range(count)]
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
            asyncio.TaskGroup() as tasks,
        ):
            for follower in followers:
                tasks.create_task(follower.follow(http, peer, run_id))
            await asyncio.sleep(5)
            peak_mib = server.pss_mib() - before_mib
        cpu_ms = server.cpu_ms() - before_ms
        page = await ask(
            stage, peer, "GET", f"/v1/sessions/{session_id}/events?run_id={run_id}&limit=500"
        )
    rows = {row["seq"]: datetime.fromisoformat(row["at"]).timestamp() for row in page["data"]}
    wrong = sum(follower.seqs != list(rows) for follower in followers)
    late = list(rows)[len(rows) // 2 :]  # by then all had connected
    lags = [
        (at - rows[seq]) * 1000
        for follower in followers
        for seq, at in zip(follower.seqs, follower.at_s, strict=True)
        if seq in late
    ]
    events = sum(len(follower.seqs) for follower in followers)
    print(f"{count} readers of one session, {len(rows)} rows each; not the exact rows: {wrong}")
    print(
        f"{sum(follower.refused for follower in followers)} answers 503 while all connected at once"
    )
    print(f"CPU {(cpu_ms - alone_ms) * 1000 / events:.0f} us a delivered row, connecting included")
    print(f"the run alone: {alone_ms:.0f} ms; memory {peak_mib / count * 1024:.0f} KiB a reader")
    print(f"lag from commit to reader: p50 {share(lags, 50):.0f} ms, p99 {share(lags, 99):.0f} ms")


async def _finished(stage: Stage, peer: Peer, run_id: str) -> dict[str, Any]:
    while True:
        run: dict[str, Any] = await ask(stage, peer, "GET", f"/v1/runs/{run_id}?wait=30")
        if run["status"] == "finished":
            return run


# -- cancel -------------------------------------------------------------------------------------


async def cancel(stage: Stage, runs: int = 200) -> None:
    """All runs wait in a model call on one host; the other is asked to cancel each."""
    async with host(stage, "drives") as (driver, _), host(stage, "cancels") as (other, _):
        plans = [Plan(turns=1, hold=True) for _ in range(runs)]
        made = [await post(stage, driver, plan) for plan in plans]
        for plan in plans:
            await stage.arrived(plan.id, plan.requests)

        async def one(run_id: str) -> float:
            began = time.perf_counter()
            await ask(stage, other, "POST", f"/v1/runs/{run_id}/cancel", {})
            await _finished(stage, other, run_id)
            return (time.perf_counter() - began) * 1000

        ids = [each["run"]["id"] for each in made]
        single = [await one(run_id) for run_id in ids[: runs // 2]]
        at_once = await asyncio.gather(*(one(run_id) for run_id in ids[runs // 2 :]))
        await stage.release()
    for name, took in (("one after the other", single), ("all at once", at_once)):
        print(
            f"{len(took)} cancels through another host, {name}: p50 {share(took, 50):.0f} ms, "
            f"p99 {share(took, 99):.0f} ms (target 2,000), with up to {runs} running sessions"
        )


# -- takeover -----------------------------------------------------------------------------------


async def takeover(stage: Stage, runs: int = 50) -> None:
    """The host of all runs is killed; the other goes on with them."""
    async with AsyncExitStack() as stack:
        other, _ = await stack.enter_async_context(host(stage, "survives"))
        driver, server = await stack.enter_async_context(host(stage, "dies"))
        plans = [Plan(turns=2, delay_ms=1500) for _ in range(runs)]
        made = [await post(stage, driver, plan) for plan in plans]
        await stage.arrived(plans[-1].id, 1)
        killed_s = time.time()
        os.kill(server.pid, signal.SIGKILL)
        waits = []
        for each in made:
            run = await _finished(stage, other, each["run"]["id"])
            path = f"/v1/sessions/{each['session']['id']}/events?run_id={run['id']}&limit=500"
            events = (await ask(stage, other, "GET", path))["data"]
            taken = [row["at"] for row in events if row["data"]["type"] == "run.attempt"]
            waits += [datetime.fromisoformat(at).timestamp() - killed_s for at in taken]
            if run["result_subtype"] != "success":
                print(f"{run['id']} ended with {run['result_subtype']}", file=sys.stderr)
    print(
        f"{len(waits)} of {runs} runs were taken over: p50 {share(waits, 50):.1f} s, last "
        f"{max(waits):.1f} s after the kill (lease {_LEASE_S:.0f} s, target lease + 2 s)"
    )


# -- agents -------------------------------------------------------------------------------------


async def agents(stage: Stage, turns: int = 40, runs: int = 5) -> None:
    """The same turns by the session itself, and by a subagent."""
    async with host(stage, "drives") as (peer, server):

        async def cpu_ms(plan: Plan) -> float:
            took = []
            for _ in range(runs + 1):
                before_ms = server.cpu_ms()
                made = await post(stage, peer, plan.again())
                await _finished(stage, peer, made["run"]["id"])
                await asyncio.sleep(0.2)  # what a run still does after its end belongs to it
                took.append(server.cpu_ms() - before_ms)
            return median(took[1:])

        least = await cpu_ms(Plan(turns=1))
        own = (await cpu_ms(Plan(turns=turns)) - least) / (turns - 1)
        theirs = (await cpu_ms(Plan(turns=turns, agent=True)) - least) / (turns + 1)
    print(
        f"CPU a turn: of the session {own:.2f} ms, of a subagent {theirs:.2f} ms: "
        f"{theirs / own:.2f} times (target 1.5)"
    )


PARTS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "append": appends,
    "dispatch": dispatch,
    "readers": readers,
    "agents": agents,
    "cancel": cancel,
    "takeover": takeover,
}


async def run(names: Sequence[str]) -> None:
    """Each part on a stage of its own."""
    for name in names:
        print(f"-- {name}", flush=True)
        async with asyncio.timeout(_LIMIT_S), set_stage() as stage:
            await PARTS[name](stage)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := set(names) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    uvloop.run(run(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
