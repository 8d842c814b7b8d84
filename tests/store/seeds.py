"""What store tests begin with: a database, sessions, runs, batches."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import asyncpg
from ulid import ULID

from app.agent.result_batch import result_batch
from app.agent.state import LoopState, RunInfo
from app.domain.blocks import TextBlock
from app.domain.journal import Batch, Entry
from app.domain.messages import Prompt, UserContent, UserMessage
from app.domain.options import AgentOptions
from app.domain.usage import LedgerRow
from app.providers.pricing import PriceTable
from app.runs.clock import SystemClock
from app.store import queue
from app.store.claims import Claim
from app.store.engine import Database, open_database
from app.store.keys import ensure_tenant
from app.store.leases import Host
from app.store.queue import Enqueued, NewRun
from app.store.sessions import NewSession, create_session

TENANT = "default"
A, B = Host("host_a", 30.0), Host("host_b", 30.0)
DYING = Host("host_dying", 0.0)
"""Its leases have run out as soon as they are made."""


@dataclass(frozen=True, slots=True)
class RealStamps:
    clock: SystemClock = field(default_factory=SystemClock)
    models: PriceTable = field(default_factory=PriceTable)


@asynccontextmanager
async def opened(url: str, *, pool_size: int = 4) -> AsyncIterator[Database]:
    async with open_database(url, pool_size=pool_size, connect_s=10) as database:
        async with database.begin() as connection:
            await ensure_tenant(connection, TENANT, allow_bypass=False)
        yield database


def over(connection: "asyncpg.Connection[Any]", database: Database) -> Database:
    """The same database, all of whose raw statements go through one connection of the test."""
    return Database(database.engine, cast("Any", connection), database.dsn)


async def new_session(database: Database, tenant: str = TENANT) -> str:
    session_id = str(uuid.uuid4())
    created = '{"type":"session.created"}'
    async with database.begin() as connection:
        await create_session(connection, tenant, NewSession(session_id, None, {}, {}, {}, created))
    return session_id


async def enqueue(
    database: Database,
    session_id: str,
    host: Host | None = None,
    *,
    tenant: str = TENANT,
    limit: int = 20,
    prompts: Sequence[str] = ("hello",),
) -> tuple[str, Enqueued]:
    """Put a run into a session; give its id, and what became of it."""
    run_id = f"run_{ULID()}"
    waiting = [Prompt(f"in_{ULID()}", str(uuid.uuid4()), text) for text in prompts]
    run = NewRun(run_id, {}, waiting, {}, '{"type":"run.queued"}')
    async with database.begin() as connection:
        enqueued = await queue.enqueue(
            connection, tenant, session_id, run, queue_limit=limit, host=host
        )
    return run_id, enqueued


async def begun(database: Database, host: Host = A, *, tenant: str = TENANT) -> Claim:
    """A run of a new session, claimed on the spot."""
    _, enqueued = await enqueue(database, await new_session(database, tenant), host, tenant=tenant)
    assert enqueued.claim is not None
    return enqueued.claim


def note(claim: Claim, text: str = "hi", facts: dict[str, Any] | None = None) -> Entry:
    message = UserMessage(
        session_id=claim.lease.session_id,
        uuid=str(uuid.uuid4()),
        message=UserContent(content=[TextBlock(text=text)]),
        timestamp="2030-01-01T00:00:00.000Z",
    )
    return Entry.of(message, facts)


def last_batch(claim: Claim, ledger: tuple[LedgerRow, ...] = ()) -> Batch:
    """The batch that ends a run."""
    info = RunInfo(claim.lease.session_id, claim.lease.run_id, AgentOptions())
    return result_batch(LoopState(info), RealStamps(), ledger=ledger)


async def until(condition: Callable[[], Awaitable[object]], *, within_s: float = 30.0) -> None:
    """Ask again and again until the answer is true. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


def dice(seed: int) -> random.Random:
    """Chance that repeats itself."""
    return random.Random(seed)  # noqa: S311 - chooses cases, guards nothing


async def rows(database: Database, sql: str, *arguments: object) -> list[dict[str, Any]]:
    return [dict(row) for row in await database.raw.fetch(sql, *arguments)]


async def dump(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Everything that a write could change."""
    return {
        table: await rows(database, f"SELECT * FROM {table} ORDER BY {key}")  # noqa: S608
        for table, key in (
            ("sessions", "id"),
            ("runs", "id"),
            ("journal", "session_id, seq"),
            ("ledger", "id"),
            ("inbox", "id"),
        )
    }
