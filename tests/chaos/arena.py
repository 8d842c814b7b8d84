"""The whole of a chaos run: set up, do harm, let it become quiet, look at what is left."""

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from app.store.engine import open_database
from app.store.migrate import migrate
from tests.chaos import checks_beside, checks_engine, checks_log
from tests.chaos.evidence import Evidence, collect, errors_of
from tests.chaos.faults import Faults
from tests.chaos.fleet import Fleet
from tests.chaos.ground import Ground, lay_ground, take_up_ground
from tests.chaos.load import TRACE, Load
from tests.chaos.namespaces import has_own
from tests.chaos.plan import Plan
from tests.chaos.postgres import TcpPostgres, free_port
from tests.chaos.watch import watch
from tests.chaos.wire import Wire, make_room

Say = Callable[[str], None]
_SHOWN = 12
"""Violations of one check that are printed, and how long each may be."""
_LONGEST = 2000
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|run_\w+")
_READERS_S = 10
"""How long readers may take for what is in the log already."""


@dataclass(frozen=True, slots=True)
class Arena:
    """Everything that runs."""

    plan: Plan
    folder: Path
    ground: Ground
    postgres: TcpPostgres
    model_log: Path
    load: Load
    working: "asyncio.Task[None]"
    """The clients; over when each reader has read what it waits for."""

    @property
    def fleet(self) -> Fleet:
        return self.load.fleet

    @property
    def dsn(self) -> str:
        return self.postgres.dsn("harness")


async def run(plan: Plan, say: Say) -> int:
    """Do it all; give the exit status."""
    say(f"seed {plan.seed}: {plan.seconds:g} s of {', '.join(plan.kinds)}; {plan.hosts} hosts")
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with set_up(plan) as arena:
        net = "a wire of network devices" if has_own("net") else "a proxy"
        say(f"disk: {arena.ground.means}; net: {net} for each host; clock: of each process")
        faults = await _harm(arena, say)
        flaws = await _quiet(arena)
        found, checks = await _look(arena, faults)
        checks = {"became quiet": flaws, **checks}
        is_kept = any(checks.values()) and plan.has_fence
        kept = _keep(arena, found, chain(*checks.values())) if is_kept else None
    _report(found, arena, faults, checks, say)
    if any(checks.values()):
        say(f"FAILED with seed {plan.seed}" + (f"; logs and rows are in {kept}" if kept else ""))
        return 1
    if missing := [kind for kind in plan.must if not faults.counts[kind]]:
        say(f"never happened: {', '.join(missing)} (seed {plan.seed})")
        return 3
    say(f"no violations (seed {plan.seed})")
    return 0


def _keep(arena: Arena, found: Evidence, flaws: Iterable[str]) -> Path:
    """Copy what the hosts said, and the rows of sessions with a flaw, to where it outlives the run."""
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{arena.plan.seed}-"))
    for log in arena.folder.glob("*.log"):
        shutil.copy(log, folder)
    told = set(_ID.findall(" ".join(flaws)))
    named = {run["session_id"] for id_, run in found.runs.items() if id_ in told}
    for session in (told | named) & found.sessions.keys():
        lines = (json.dumps(dict(row), default=str) for row in found.rows_of(session))
        (folder / f"{session}.jsonl").write_text("\n".join(lines))
    return folder


async def _harm(arena: Arena, say: Say) -> Faults:
    began = time.monotonic()

    def told(text: str) -> None:
        say(f"{time.monotonic() - began:6.1f} {text}")

    dice = random.Random(f"{arena.plan.seed} faults")  # noqa: S311 - it has to be repeatable
    faults = Faults(arena.plan, arena.fleet, arena.ground, dice, told)
    await faults.do_harm(began + arena.plan.seconds)
    arena.load.stopping.set()
    return faults


async def _quiet(arena: Arena) -> list[str]:
    """Wait until all runs have ended. Nobody may wait for an owner longer than a lease and 2 s."""
    flaws: list[str] = []
    await arena.fleet.until_up(arena.plan.hosts)
    connection = await asyncpg.connect(arena.dsn)
    try:
        await asyncio.sleep(arena.plan.lease_s + 2)
        stuck = await connection.fetch(_UNOWNED)
        flaws += [f"run {row['id']} has had no owner for a lease and 2 s" for row in stuck]
        give_up = time.monotonic() + arena.plan.quiet_s
        while left := await connection.fetch(_GOING_ON):
            if time.monotonic() > give_up:
                when = f"after {arena.plan.quiet_s:g} s of quiet"
                flaws += [f"{row['what']} {row['id']} is {row['state']} {when}" for row in left]
                break
            await asyncio.sleep(0.2)
    finally:
        await connection.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(arena.working), _READERS_S)
    return flaws


_UNOWNED = """
SELECT r.id FROM runs r JOIN sessions s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
WHERE r.status <> 'finished' AND NOT r.is_parked AND (s.owner IS NULL OR s.lease_expires_at < clock_timestamp())
  AND coalesce(s.lease_expires_at, s.updated_at) < clock_timestamp() - interval '2 s'
"""


_GOING_ON = """
SELECT 'run' AS what, id, status || CASE WHEN is_untold THEN ', untold' ELSE '' END AS state
FROM runs WHERE status <> 'finished' OR is_untold
UNION ALL SELECT 'session', id, 'owned' FROM sessions WHERE owner IS NOT NULL
"""
"""A run that follows is there in the commit that lets its session go, or that ends what it tells of."""


async def _look(arena: Arena, faults: Faults) -> tuple[Evidence, dict[str, list[str]]]:
    """Stop the hosts, then check everything."""
    left = list(_left(arena, await _evidence(arena)))
    await arena.fleet.end()
    found = await _evidence(arena)
    found.full_s = faults.full_s
    readers = arena.load.readers
    checks: dict[str, Iterator[str]] = {
        "seq is dense": checks_log.dense(found),
        "each call has one result": checks_log.calls_answered(found),
        "each run has one result": checks_log.one_result(found),
        "runs do not overlap": checks_log.apart(found),
        "prompts are taken once": checks_log.prompts_taken_once(found),
        "subagents end once, and are counted": checks_log.subagents_end_once(found),
        "ends in the background are told once": checks_beside.told_once(found),
        "runs hear of those they wait for": checks_beside.waited_for(found),
        "effects happen once": checks_log.effects_once(found),
        "an approved call ran once": checks_log.approved_calls_run_once(found),
        "readers saw the log": checks_log.readers_saw_the_log(found, readers),
        "one owner at a time": checks_engine.one_owner(found),
        "requests by owners": checks_engine.requests_by_owners(found),
        "nobody owns a session": checks_engine.nobody_owns(found),
        "money": checks_engine.money(found),
        "nothing is lost": checks_engine.nothing_lost(found, arena.load.acknowledged),
        "nothing is left": iter([*left, *_left(arena, found)]),
        "hosts": iter(arena.fleet.violations),
        "hosts' logs": iter(found.errors),
        "answers": iter(arena.load.flaws),
    }
    return found, {name: list(check) for name, check in checks.items()}


def _left(arena: Arena, found: Evidence) -> Iterator[str]:
    return checks_engine.nothing_left(
        found, arena.ground.folder, arena.load.sleep_mark, arena.fleet.sandbox_uid
    )


async def _evidence(arena: Arena) -> Evidence:
    found = await collect(arena.dsn, arena.model_log, arena.ground.folder / "sessions", TRACE)
    hosts = [*arena.fleet.hosts, *arena.fleet.gone.values()]
    found.hurts = {host.name: host.hurts for host in hosts}
    found.errors = [line for host in hosts if not host.is_excused for line in errors_of(host.log)]
    return found


def _report(
    found: Evidence, arena: Arena, faults: Faults, checks: dict[str, list[str]], say: Say
) -> None:
    counted: dict[str, Any] = checks_engine.outcomes(found)
    waits = counted["waits_s"]
    connections = sum(reader.connections for reader in arena.load.readers)
    say(f"faults: {_counts(faults.counts)}")
    say(f"hosts: {len(arena.fleet.gone)} started; load: {_counts(arena.load.done)}")
    say(f"runs: {len(found.runs)}: {_counts(counted['ends'])}")
    say(f"sessions moved: {_counts(counted['moves'])}")
    if waits:
        middle = waits[len(waits) // 2]
        say(f"taken over after the lease's end: median {middle:.2f} s, longest {waits[-1]:.2f} s")
    say(
        f"checked: {sum(map(len, found.journal.values()))} rows, {len(found.ledger)} ledger rows, "
        f"{len(found.children)} subagents in the background, {len(found.actions)} approvals, {len(found.requests)} model requests, {sum(map(len, found.traces.values()))} effects, "
        f"{found.felt_full} results of a full disk, {len(arena.load.readers)} readers over {connections} connections"
    )
    for name, flaws in checks.items():
        if flaws:
            say(f"VIOLATION {name}: {len(flaws)}")
        for flaw in flaws[:_SHOWN]:
            say(f"    {flaw[:_LONGEST]}")


def _counts(counts: Any) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items())) or "none"


@asynccontextmanager
async def set_up(plan: Plan) -> AsyncIterator[Arena]:
    """Start everything; end everything afterwards, whatever happens."""
    folder = _folder()
    ground = lay_ground(folder / "data")
    address = await _wired(free_port())
    postgres = TcpPostgres(folder / "pg", address, is_apart=has_own("net"))
    try:
        await asyncio.to_thread(postgres.make)
        await postgres.start()
        await postgres.create_database()
        dsn = postgres.dsn("harness")
        async with open_database(dsn, pool_size=1, connect_s=30) as database:
            await migrate(database.engine)
        await watch(dsn)
        async with _model(folder / "model.log") as url, _http() as http:
            dice = random.Random(f"{plan.seed} fleet")  # noqa: S311 - repeatable
            fleet = Fleet(plan, folder, ground.folder, postgres, url, dice, http)
            load = Load(fleet, http, plan.seed, f"{os.getpid():07d}1")
            async with _going_on(fleet, load) as working:
                yield Arena(plan, folder, ground, postgres, folder / "model.log", load, working)
    finally:
        postgres.thaw()
        await postgres.stop(signal.SIGQUIT)
        take_up_ground(ground)
        shutil.rmtree(folder, ignore_errors=True)


async def _wired(port: int) -> tuple[str, int]:
    """Give the address under which Postgres will listen; it never is cut for the harness."""
    if not has_own("net"):
        return "127.0.0.1", port
    await asyncio.to_thread(make_room)
    wire = Wire(0, port)
    await wire.open()
    return wire.address


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.chmod(0o755)
    (folder / "pg").mkdir(mode=0o755)
    return folder


@asynccontextmanager
async def _going_on(fleet: Fleet, load: Load) -> AsyncIterator["asyncio.Task[None]"]:
    """Keep the hosts at their number and the clients at work; gives the clients' task."""
    keeping = asyncio.create_task(fleet.keep())
    try:
        await fleet.until_up(fleet.plan.hosts)
        working = asyncio.create_task(load.run(fleet.plan.clients))
        answering = asyncio.create_task(load.answer_forever())
        try:
            yield working
        finally:
            for task in (working, answering):
                task.cancel()
            await asyncio.gather(working, answering, return_exceptions=True)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        fleet.kill_all()


@asynccontextmanager
async def _http() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as http:
        yield http


@asynccontextmanager
async def _model(log: Path) -> AsyncIterator[str]:
    process = subprocess.Popen(  # noqa: ASYNC220 - it belongs to this thread: see PDEATHSIG
        [sys.executable, "-m", "tests.chaos.model", str(log)], stdout=subprocess.PIPE
    )
    try:
        if process.stdout is None:
            raise RuntimeError("no output")
        yield (await asyncio.to_thread(process.stdout.readline)).decode().strip()
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)
