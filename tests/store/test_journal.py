"""The append: dense, fenced, whole; and what it costs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import asyncpg
import orjson
import pytest

from app.domain.journal import Batch, ServiceEvent
from app.domain.usage import LedgerRow, Usage
from app.errors import LeaseLost
from app.store import cancels, claims, inbox, journal
from app.store.append import append, was_stored
from app.store.claims import Claim
from app.store.engine import Database
from app.store.leases import release
from app.store.ledger import spends
from app.store.rows import BEGINNING, LogRange, Row
from tests.store.seeds import (
    DYING,
    TENANT,
    A,
    B,
    begun,
    dice,
    dump,
    enqueue,
    last_batch,
    note,
    opened,
    over,
    rows,
    until,
)


async def seqs(database: Database, session_id: str) -> list[int]:
    found = await rows(database, "SELECT seq FROM journal WHERE session_id = $1", session_id)
    return sorted(row["seq"] for row in found)


@asynccontextmanager
async def open_transaction(database: Database) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection with an open transaction; the block commits it, or its end rolls it back."""
    connection = await asyncpg.connect(database.dsn)
    try:
        await connection.execute("BEGIN")
        yield connection
    finally:
        await connection.close()


async def until_somebody_waits_for_a_lock(database: Database) -> None:
    await until(
        lambda: database.raw.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
    )


async def test_sixteen_writers_of_four_sessions_leave_no_hole_and_no_double(
    database_url: str,
) -> None:
    async with opened(database_url, pool_size=16) as database:
        claims = [await begun(database) for _ in range(4)]
        sizes = dice(4)

        async def write(claim: Claim) -> list[Row]:
            written: list[Row] = []
            for _ in range(5):
                size = sizes.randint(1, 4)
                batch = Batch(tuple(note(claim) for _ in range(size)))
                got = await append(database, claim.lease, batch)
                assert [row.seq for row in got] == list(range(got[0].seq, got[0].seq + size))
                written += got
            return written

        written = await asyncio.gather(*(write(claims[index % 4]) for index in range(16)))
        for index, claim in enumerate(claims):
            session_id = claim.lease.session_id
            mine = [row for w in range(index, 16, 4) for row in written[w]]
            count = len(mine) + 2  # session.created and run.queued came first
            assert await seqs(database, session_id) == list(range(1, count + 1))
            stored = await journal.read(database, TENANT, session_id, LogRange(2))
            assert {row.seq: row.body for row in stored} == {row.seq: row.body for row in mine}
            (session,) = await rows(
                database, "SELECT last_seq FROM sessions WHERE id = $1", session_id
            )
            assert session["last_seq"] == count


async def test_a_batch_is_stored_in_order_with_its_events_around_it(database: Database) -> None:
    claim = await begun(database)
    batch = Batch((note(claim, "one"), note(claim, "two")), events=(ServiceEvent("last"),))
    given = await append(
        database, claim.lease, batch, first=(ServiceEvent("run.started", {"attempt": 1}),)
    )
    assert [(row.seq, row.type) for row in given] == [
        (3, "run.started"),
        (4, "user"),
        (5, "user"),
        (6, "last"),
    ]
    stored = await journal.read(
        database, TENANT, claim.lease.session_id, LogRange(2), run_id=claim.lease.run_id
    )
    assert [replace(row, at=None) for row in stored] == [replace(row, at=None) for row in given]
    assert [row.body.encode() for row in stored[1:3]] == [entry.body for entry in batch.entries]


async def test_a_stale_epoch_writes_nothing_at_all(database: Database) -> None:
    old = await begun(database, DYING)
    new = await claims.claim(database, B)
    assert new is not None
    assert (new.lease.run_id, new.lease.epoch) == (old.lease.run_id, old.lease.epoch + 1)
    prompts = await inbox.waiting_prompts(database, old.lease)
    before = await dump(database)
    spent = (LedgerRow("m", Usage(1, 1), Decimal(1)),)
    batch = replace(
        last_batch(old, spent),
        consumed=tuple(prompt.id for prompt in prompts),
        events=(ServiceEvent("run.finished"),),
    )
    with pytest.raises(LeaseLost):
        await append(database, old.lease, batch, first=(ServiceEvent("run.started"),))
    assert await dump(database) == before


async def test_a_session_that_was_let_go_takes_nothing_more_under_its_old_epoch(
    database: Database,
) -> None:
    claim = await begun(database)
    await append(database, claim.lease, last_batch(claim))
    before = await dump(database)
    with pytest.raises(LeaseLost):
        await append(database, claim.lease, last_batch(claim))
    assert await dump(database) == before

    released = await begun(database)
    await release(database, released.lease)
    with pytest.raises(LeaseLost):
        await append(database, released.lease, Batch((note(released),)))


async def test_the_end_of_a_run_is_one_transaction(database: Database) -> None:
    claim = await begun(database)
    batch = last_batch(claim)
    async with open_transaction(database) as connection:
        await append(over(connection, database), claim.lease, batch)
        state = "SELECT status, result_subtype, last_seq FROM runs"
        holder = "SELECT owner, lease_expires_at FROM sessions"
        (run,), (session,) = await rows(database, state), await rows(database, holder)
        assert run == {"status": "running", "result_subtype": None, "last_seq": None}
        assert session["owner"] == A.id
        assert len(await seqs(database, claim.lease.session_id)) == 2
        await connection.execute("COMMIT")
    (run,), (session,) = await rows(database, state), await rows(database, holder)
    assert run == {"status": "finished", "result_subtype": "success", "last_seq": 3}
    assert session == {"owner": None, "lease_expires_at": None}
    (result,) = await journal.read(database, TENANT, claim.lease.session_id, LogRange(2))
    assert (result.type, result.body.encode()) == ("result", batch.entries[0].body)


async def test_a_batch_that_postgres_refuses_leaves_no_trace(database: Database) -> None:
    claim = await begun(database)
    before = await dump(database)
    outcome = last_batch(claim).outcome
    assert outcome is not None
    unfit = replace(last_batch(claim), outcome=replace(outcome, result_text="a\0b"))
    with pytest.raises(asyncpg.DataError):
        await append(database, claim.lease, unfit)
    assert await dump(database) == before


async def test_ledger_run_and_session_agree_to_the_last_digit(database: Database) -> None:
    claim = await begun(database)
    session_id = claim.lease.session_id
    figures = dice(9)
    total = Decimal(0)
    for turn in range(12):
        ledger = tuple(
            LedgerRow(
                figures.choice(("m1", "m2")),
                Usage(*(figures.randrange(10**6) for _ in range(7))),
                Decimal(figures.randrange(10**12)).scaleb(-9),
                thread=figures.choice((None, "toolu_1")),
            )
            for _ in range(figures.randint(1, 3))
        )
        total += sum((row.cost_usd or Decimal(0) for row in ledger), Decimal(0))
        batch = Batch((note(claim),), ledger) if turn < 11 else last_batch(claim, ledger)
        await append(database, claim.lease, batch)
    sums = """SELECT sum(cost_usd) AS cost_usd, sum(input_tokens) AS input_tokens,
        sum(output_tokens) AS output_tokens, sum(cache_read_tokens) AS cache_read_tokens,
        sum(cache_write_5m_tokens + cache_write_1h_tokens) AS cache_write_tokens FROM ledger"""
    (ledger_sums,) = await rows(database, sums)
    (run,) = await rows(database, f"SELECT {', '.join(ledger_sums)} FROM runs")  # noqa: S608
    (session,) = await rows(database, "SELECT cost_usd FROM sessions")
    assert run == ledger_sums
    assert session["cost_usd"] == ledger_sums["cost_usd"] == total
    before, spent = await spends(database, TENANT, session_id, claim.lease.run_id)
    assert (before.cost_usd, spent.cost_usd) == (Decimal(0), total)


@pytest.mark.parametrize(
    ("row", "is_estimated"),
    [
        (LedgerRow("m", Usage(1), Decimal(1)), False),
        (LedgerRow("m", Usage(1), Decimal(1), estimated=True), True),
        (LedgerRow("m", Usage(1), None), True),
    ],
)
async def test_a_run_whose_cost_is_not_certain_says_so(
    database: Database, row: LedgerRow, is_estimated: bool
) -> None:
    claim = await begun(database)
    sure = LedgerRow("m", Usage(1), Decimal(2))
    await append(database, claim.lease, Batch((note(claim),), (sure, row)))
    await append(database, claim.lease, last_batch(claim, (sure,)))
    (run,) = await rows(database, "SELECT cost_usd, is_estimated FROM runs")
    assert run == {"cost_usd": 4 + (row.cost_usd or 0), "is_estimated": is_estimated}


async def test_prompts_that_a_batch_holds_are_consumed_and_no_others(database: Database) -> None:
    claim = await begun(database)
    _, enqueued = await enqueue(database, claim.lease.session_id)
    assert enqueued.claim is None
    (prompt,) = await inbox.waiting_prompts(database, claim.lease)
    (stored,) = await append(database, claim.lease, Batch((note(claim),), consumed=(prompt.id,)))
    assert await inbox.waiting_prompts(database, claim.lease) == []
    consumed = await rows(database, "SELECT id, consumed_seq FROM inbox ORDER BY position")
    assert [row["consumed_seq"] for row in consumed] == [stored.seq, None]


async def test_facts_are_folded_but_never_read_by_clients(database: Database) -> None:
    claim = await begun(database)
    entry = note(claim, "seen", {"tool": {"cwd": "/workspace/secret-place"}})
    await append(database, claim.lease, Batch((entry,)))
    session_id = claim.lease.session_id
    shown = await journal.read(database, TENANT, session_id)
    assert "secret-place" not in "".join(row.body for row in shown)
    folded = [row async for row in journal.history(database, TENANT, session_id)]
    assert [(run_id, orjson.loads(facts or "{}")) for run_id, _, facts in folded] == [
        (claim.lease.run_id, entry.facts)
    ]


async def test_a_thousand_messages_fit_into_one_batch_and_pages_give_them_back(
    database: Database,
) -> None:
    claim = await begun(database)
    entries = tuple(note(claim, f"message {n}") for n in range(1000))
    given = await append(database, claim.lease, Batch(entries))
    assert [row.seq for row in given] == list(range(3, 1003))
    bodies = [
        body async for _, body, _ in journal.history(database, TENANT, claim.lease.session_id)
    ]
    assert [body.encode() for body in bodies] == [entry.body for entry in entries]


class Explaining:
    """Runs each statement inside EXPLAIN; keeps its plan and what it touched, not its effect."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.plans: list[dict[str, Any]] = []

    async def fetchrow(self, sql: str, *arguments: object) -> dict[str, int]:
        async with self.pool.acquire() as connection:
            await connection.execute("BEGIN")
            plan = await connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *arguments
            )
            await connection.execute("ROLLBACK")
        self.plans.append(orjson.loads(plan)[0]["Plan"])
        return {"last_seq": 10**6, "pending_steers": 0}


def touched_pages(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def scans(plan: dict[str, Any]) -> set[tuple[str, str]]:
    """The ways in which tables are read in a plan."""
    found = {(plan["Node Type"], plan["Relation Name"])} if "Relation Name" in plan else set()
    return found.union(*(scans(child) for child in plan.get("Plans", ())))


async def test_the_two_thousandth_append_costs_what_the_first_did(database: Database) -> None:
    claim = await begun(database)
    explaining = Explaining(database.raw)
    explained = Database(database.engine, cast("Any", explaining), database.dsn)

    async def explain() -> dict[str, Any]:
        ledger = (LedgerRow("m", Usage(1), Decimal(1)),)
        await append(explained, claim.lease, Batch((note(claim),), ledger))
        return explaining.plans[-1]

    await explain()  # fills the caches
    first = await explain()
    for _ in range(2):
        entries = tuple(note(claim, "x" * 200) for _ in range(1000))
        await append(database, claim.lease, Batch(entries))
    await database.raw.execute("VACUUM ANALYZE")
    await explain()
    last = await explain()
    assert touched_pages(last) <= touched_pages(first) + 10  # a level more of an index or two
    assert not {relation for kind, relation in scans(last) if kind == "Seq Scan"} & {"journal"}


async def test_an_append_whose_answer_was_lost_is_found_also_while_the_server_is_at_it(
    database: Database,
) -> None:
    claim = await begun(database)
    entry = note(claim)
    async with open_transaction(database) as connection:
        await append(over(connection, database), claim.lease, Batch((entry,)))
        looking = asyncio.create_task(was_stored(database, claim.lease, after=claim.last_seq))
        await until_somebody_waits_for_a_lock(database)
        assert not looking.done()
        await connection.execute("COMMIT")
        assert await looking


async def test_an_append_that_was_rolled_back_is_not_found(database: Database) -> None:
    claim = await begun(database)
    entry = note(claim)
    async with open_transaction(database) as connection:
        await append(over(connection, database), claim.lease, Batch((entry,)))
    assert not await was_stored(database, claim.lease, after=claim.last_seq)
    (row,) = await append(database, claim.lease, Batch((entry,)))
    assert await was_stored(database, claim.lease, after=claim.last_seq)
    assert not await was_stored(database, claim.lease, after=row.seq)


async def test_pages_are_cut_by_seq_run_kind_and_type(database: Database) -> None:
    claim = await begun(database)
    await append(database, claim.lease, Batch(tuple(note(claim) for _ in range(5))))

    async def read(span: LogRange = BEGINNING, **filters: Any) -> list[int]:
        found = await journal.read(database, TENANT, claim.lease.session_id, span, **filters)
        return [row.seq for row in found]

    assert await read() == [1, 2, 3, 4, 5, 6, 7]
    assert await read(LogRange(3, 6)) == [4, 5]
    assert await read(LogRange(limit=2, is_descending=True)) == [7, 6]
    assert await read(kind="service") == [1, 2]
    assert await read(types=["run.queued"]) == [2]
    assert await read(LogRange(limit=2), run_id=claim.lease.run_id) == [2, 3]
    other = await journal.read(database, "another-tenant", claim.lease.session_id)
    assert other == []


async def test_that_a_cancel_was_asked_for_is_not_taken_for_an_append_of_the_owner(
    database: Database,
) -> None:
    claim = await begun(database)
    async with database.begin() as connection:
        seq = await cancels.request_cancel(connection, TENANT, claim.lease.run_id, "enough")
    assert seq == claim.last_seq + 1
    assert not await was_stored(database, claim.lease, after=claim.last_seq)
    (row,) = await append(database, claim.lease, Batch((note(claim),)))
    assert row.seq == seq + 1
    assert await was_stored(database, claim.lease, after=claim.last_seq)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 30])
async def test_few_rows_and_many_are_stored_alike(database: Database, count: int) -> None:
    claim = await begun(database)
    spent = LedgerRow("m", Usage(input_tokens=3, cache_write_1h_tokens=2), Decimal("0.25"))
    entries = tuple(
        replace(note(claim, f"text {n}", {"n": n}), audit={"n": n} if n % 2 else None)
        for n in range(count)
    )
    written = await append(database, claim.lease, Batch(entries, (spent,) * max(count, 1)))
    assert [row.body for row in written] == [entry.body.decode() for entry in entries]
    stored = await rows(
        database,
        """SELECT j.seq, j.body, j.facts, a.body AS audit FROM journal j LEFT JOIN audit a
             USING (tenant_id, session_id, seq)
           WHERE session_id = $1 AND seq > $2 ORDER BY seq""",
        claim.lease.session_id,
        claim.last_seq,
    )
    assert [row["seq"] for row in stored] == [row.seq for row in written]
    assert [row["body"] for row in stored] == [row.body for row in written]
    assert [orjson.loads(row["facts"])["n"] for row in stored] == list(range(count))
    audits = [row["audit"] and orjson.loads(row["audit"])["n"] for row in stored]
    assert audits == [n if n % 2 else None for n in range(count)]
    (run,) = await rows(database, "SELECT * FROM runs WHERE id = $1", claim.lease.run_id)
    assert (run["input_tokens"], run["cache_write_tokens"]) == (
        3 * max(count, 1),
        2 * max(count, 1),
    )
    assert run["cost_usd"] == Decimal("0.25") * max(count, 1)
    assert not run["is_estimated"]
