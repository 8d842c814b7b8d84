"""Statements that lock several rows take them in one order: nothing waits in a circle (ADR 19)."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest
from asyncpg.pool import PoolConnectionProxy

from app.agent.broken_off import abandoned
from app.agent.state import LoopState, RunInfo
from app.domain.actions import Request
from app.domain.journal import Batch
from app.domain.options import AgentOptions
from app.domain.results import ErrorResult
from app.domain.usage import LedgerRow, Usage
from app.errors import LeaseLost
from app.store import actions, beside, cancels, claims, idempotency, search
from app.store.claims import Claim
from app.store.engine import Database
from app.store.group_commit import GroupCommit
from app.store.leases import Host, release, renew
from app.store.session_edits import SessionEdit, edit_run_options, edit_session
from app.store.settling import expire_due
from app.store.waiting import hold_session, hold_sessions_of, unfinished_runs
from tests.store.seeds import (
    TENANT,
    RealStamps,
    begun,
    dice,
    enqueue,
    last_batch,
    new_session,
    note,
    opened,
    rows,
    until,
)

ROUNDS = 12
ROW = LedgerRow("a-model", Usage(1), None)


async def cancel(database: Database, _: str, run_id: str) -> None:
    async with database.begin() as connection:
        await cancels.request_cancel(connection, TENANT, run_id, None)


async def cancel_all(database: Database, run_ids: Sequence[str]) -> None:
    async with database.begin() as connection:
        for run_id in await hold_sessions_of(connection, TENANT, run_ids):
            await cancels.request_cancel(connection, TENANT, run_id, None)


async def finish(database: Database, session_id: str, run_id: str) -> None:
    info = RunInfo(session_id, run_id, AgentOptions())
    batch = abandoned(LoopState(info), RealStamps(), end_reason="cancelled", why="Cancelled.")
    result = batch.entries[-1].message
    assert isinstance(result, ErrorResult)
    async with database.begin() as connection:
        await cancels.finish_unstarted(
            connection, TENANT, run_id, result=result, end_reason="cancelled", finished_body="{}"
        )


async def change(database: Database, session_id: str, chance: random.Random) -> None:
    title = str(chance.random())
    async with database.begin() as connection:
        await hold_session(connection, TENANT, session_id)
        edit = SessionEdit(title, {}, {}, (), is_archived=False)
        await edit_session(connection, TENANT, session_id, edit, [])
        for run_id in await unfinished_runs(
            connection, TENANT, session_id=session_id, statuses=(), limit=10
        ):
            await edit_run_options(connection, TENANT, run_id, {"title": title})
        await search.index_title(connection, TENANT, session_id)


async def serve(database: Database, host: Host, chance: random.Random) -> None:
    """Do what a host does, all of it, in any order."""
    appends = GroupCommit(database)
    held: list[Claim] = []

    async def write(claim: Claim, batch: Batch) -> None:
        try:
            await appends.append(claim.lease, batch)
        except LeaseLost:
            held.remove(claim)

    for _ in range(ROUNDS):
        held += await claims.claim_many(database, host, 4)
        await asyncio.gather(
            renew(database, host, [claim.lease for claim in chance.sample(held, len(held))]),
            *(write(claim, Batch((note(claim),), (ROW,))) for claim in list(held)),
            expire_due(database),
            search.index_prompts(database),
            search.index_messages(database),
            idempotency.forget_old(database),
        )
        for claim in chance.sample(held, len(held) // 2):
            match chance.choice(["end", "release", "park"]):
                case "end":
                    await write(claim, last_batch(claim))
                case "release":
                    await release(database, claim.lease)
                case _:
                    await park(database, claim)
            held = [each for each in held if each is not claim]


async def park(database: Database, claim: Claim) -> None:
    action_id = f"act_{claim.lease.run_id}_{claim.attempt}"
    asks = Request("permission", action_id, "Bash", b"x", {"input": {}}, 0, "deny")
    try:
        await actions.open_action(database, claim.lease, action_id, asks)
        await actions.park(database, claim.lease, [action_id])
    except LeaseLost:
        return


async def prompt(database: Database, sessions: Sequence[str], chance: random.Random) -> None:
    """Do what clients do."""
    for _ in range(ROUNDS):
        made = [
            (session_id, (await enqueue(database, session_id, limit=1000))[0])
            for session_id in chance.sample(sessions, 3)
        ]
        await cancel(database, *made[0])
        await finish(database, *made.pop())
        chance.shuffle(made)
        await cancel_all(database, [run_id for _, run_id in made])
        await change(database, chance.choice(sessions), chance)


async def test_hosts_and_clients_that_do_everything_at_once_never_wait_in_a_circle(
    database_url: str,
) -> None:
    async with opened(database_url, pool_size=16) as database:
        sessions = [await new_session(database) for _ in range(6)]
        a, b = Host("host_a", 30.0), Host("host_b", 0.0)
        # A circle ends with an error in one of them.
        await asyncio.gather(
            *(serve(database, host, dice(n)) for n, host in enumerate((a, b, a))),
            *(prompt(database, sessions, dice(10 + n)) for n in range(4)),
        )


@pytest.mark.parametrize("end", [cancel, finish])
async def test_who_ends_a_run_waits_for_its_session_before_the_run_is_locked(
    database: Database, end: Callable[[Database, str, str], Awaitable[None]]
) -> None:
    session_id = await new_session(database)
    run_id, _ = await enqueue(database, session_id)
    async with held_session(database, session_id) as connection:
        ending = asyncio.ensure_future(end(database, session_id, run_id))
        await until(lambda: somebody_waits(database))
        await connection.execute("SELECT 1 FROM runs WHERE id = $1 FOR UPDATE NOWAIT", run_id)
    await ending


async def test_a_subagents_run_is_let_go_under_the_fence_alone(database: Database) -> None:
    lease = (await begun(database)).lease
    async with held_session(database, lease.session_id) as connection:
        letting_go = asyncio.create_task(beside.let_go(database, lease))
        await until(lambda: somebody_waits(database))
        await connection.execute("SELECT 1 FROM runs WHERE id = $1 FOR UPDATE NOWAIT", lease.run_id)
        await connection.execute("UPDATE sessions SET epoch = epoch + 1")  # another host has it now
    await letting_go
    assert await rows(database, "SELECT status FROM runs") == [{"status": "running"}]


async def test_runs_at_their_deadline_that_somebody_holds_are_left_for_the_next_time(
    database: Database,
) -> None:
    run_ids = [(await enqueue(database, await new_session(database)))[0] for _ in range(2)]
    await database.raw.execute("UPDATE runs SET is_parked = true, deadline_at = clock_timestamp()")
    async with database.raw.acquire() as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM runs WHERE id = $1 FOR NO KEY UPDATE", run_ids[0])
        await expire_due(database)
    parked = await rows(database, "SELECT id FROM runs WHERE is_parked")
    assert parked == [{"id": run_ids[0]}]


async def test_hosts_take_prompts_into_the_search_in_the_order_of_their_sessions(
    database: Database,
) -> None:
    session_ids = sorted([await new_session(database) for _ in range(8)])
    for session_id in reversed(session_ids):
        await enqueue(database, session_id)
    await database.raw.execute("UPDATE runs SET created_at = created_at - interval '5 s'")
    async with database.raw.acquire() as connection, connection.transaction():
        indexing = None
        for session_id in session_ids:
            await connection.execute(
                """INSERT INTO search (tenant_id, session_id, seq, words, at)
                   VALUES ($1, $2, 0, '', clock_timestamp())""",
                TENANT,
                session_id,
            )
            if indexing is None:
                indexing = asyncio.create_task(search.index_prompts(database))
                await until(lambda: somebody_waits(database))
    assert indexing is not None
    assert await indexing == len(session_ids)


@asynccontextmanager
async def held_session(
    database: Database, session_id: str
) -> AsyncIterator["PoolConnectionProxy[asyncpg.Record]"]:
    async with database.raw.acquire() as connection, connection.transaction():
        await connection.execute(
            "SELECT 1 FROM sessions WHERE id = $1 FOR NO KEY UPDATE", session_id
        )
        yield connection


async def somebody_waits(database: Database) -> bool:
    found: bool = await database.raw.fetchval(
        """SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'
             AND datname = current_database())"""
    )
    return found
