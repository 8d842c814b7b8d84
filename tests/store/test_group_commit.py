"""Appends of many sessions that share a statement: each as if it had been alone."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, cast

import asyncpg
import pytest

from app.domain.journal import Batch, Entry, ServiceEvent
from app.domain.usage import LedgerRow, Usage
from app.errors import LeaseLost
from app.store import claims, journal
from app.store.append import append
from app.store.append_many import Write, append_many
from app.store.claims import Claim
from app.store.engine import Database
from app.store.group_commit import AT_ONCE, GroupCommit
from app.store.leases import release, renew
from app.store.rows import LogRange
from tests.store.seeds import DYING, TENANT, A, B, begun, dice, last_batch, note, rows


def spent(tokens: int, cost: str | None = "0.01") -> LedgerRow:
    return LedgerRow("m", Usage(tokens, 1), Decimal(cost) if cost else None, request_id="req")


def writes(claims: Sequence[Claim], batches: Sequence[Batch]) -> list[Write]:
    return [Write.of(claim.lease, batch, ()) for claim, batch in zip(claims, batches, strict=True)]


@dataclass(slots=True)
class CountingPool:
    """The real pool; counts its statements, and can hold them back."""

    pool: Any
    statements: int = 0
    gate: asyncio.Event | None = None
    trouble: Exception | None = None
    is_busy: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once `AT_ONCE` statements were asked for."""

    async def fetch(self, sql: str, *arguments: object) -> object:
        return await self._asked(self.pool.fetch, sql, arguments)

    async def fetchrow(self, sql: str, *arguments: object) -> object:
        return await self._asked(self.pool.fetchrow, sql, arguments)

    async def _asked(
        self, ask: Callable[..., Awaitable[object]], sql: str, arguments: tuple[object, ...]
    ) -> object:
        self.statements += 1
        if self.statements == AT_ONCE:
            self.is_busy.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.trouble is not None:
            await asyncio.sleep(0)
            raise self.trouble
        return await ask(sql, *arguments)


def counted(database: Database) -> tuple[Database, CountingPool]:
    pool = CountingPool(database.raw)
    return replace(database, raw=cast("Any", pool)), pool


def audited(claim: Claim) -> Entry:
    return replace(note(claim, "b"), audit={"decision": "allow"})


async def test_batches_of_many_sessions_are_stored_as_each_would_be_alone(
    database: Database,
) -> None:
    alone = [await begun(database) for _ in range(3)]
    together = [await begun(database) for _ in range(3)]

    def batches(claims: Sequence[Claim]) -> list[Batch]:
        first, second, third = claims
        return [
            Batch((note(first, "a", {"x": 1}), audited(first)), (spent(5), spent(7, None))),
            Batch((note(second, "c"),)),
            Batch((note(third, "d"),), (spent(9),), events=(ServiceEvent("told"),)),
        ]

    for claim, batch in zip(alone, batches(alone), strict=True):
        await append(database, claim.lease, batch)
    stored = await append_many(database, writes(together, batches(together)))

    async def seen(claims: Sequence[Claim]) -> list[object]:
        found: list[object] = []
        for claim in claims:
            key = (TENANT, claim.lease.session_id)
            found += await rows(
                database,
                """SELECT seq, kind, type, facts, run_id IS NOT NULL AS of_a_run FROM journal
                   WHERE tenant_id = $1 AND session_id = $2 ORDER BY seq""",
                *key,
            )
            found += await rows(
                database,
                """SELECT last_seq, cost_usd FROM sessions WHERE tenant_id = $1 AND id = $2""",
                *key,
            )
            found += await rows(
                database,
                """SELECT input_tokens, output_tokens, cost_usd, is_estimated, status FROM runs
                   WHERE tenant_id = $1 AND session_id = $2""",
                *key,
            )
            found += await rows(
                database,
                """SELECT input_tokens, cost_usd, request_id FROM ledger
                   WHERE tenant_id = $1 AND session_id = $2 ORDER BY id""",
                *key,
            )
            found += await rows(
                database,
                """SELECT seq, body, run_id IS NOT NULL AS of_a_run FROM audit
                   WHERE tenant_id = $1 AND session_id = $2 ORDER BY seq""",
                *key,
            )
        return found

    assert await seen(together) == await seen(alone)
    assert '{"decision":"allow"}' in str(await seen(together))
    for claim, each in zip(together, stored, strict=True):
        assert each is not None
        lease = claim.lease
        read = await journal.read(database, TENANT, lease.session_id, LogRange(claim.last_seq))
        assert [(row.seq, row.body) for row in each.rows] == [(row.seq, row.body) for row in read]


async def test_a_lost_lease_among_them_writes_nothing_and_holds_up_nobody(
    database: Database,
) -> None:
    held, lost = await begun(database, A), await begun(database, DYING)
    taken = await claims.claim(database, B)
    assert taken is not None
    assert taken.lease.session_id == lost.lease.session_id
    before = await rows(database, "SELECT count(*) FROM ledger")
    batches = [Batch((note(lost),), (spent(1),)), Batch((note(held),))]
    stored = await append_many(database, writes([lost, held], batches))
    assert stored[0] is None
    assert stored[1] is not None
    assert (
        await journal.read(database, TENANT, lost.lease.session_id, LogRange(lost.last_seq)) == []
    )
    assert await rows(database, "SELECT count(*) FROM ledger") == before


async def test_a_session_that_was_let_go_takes_no_batch(database: Database) -> None:
    claim = await begun(database)
    await release(database, claim.lease)
    assert await append_many(database, writes([claim], [Batch((note(claim),))])) == [None]


async def test_what_comes_while_others_are_under_way_goes_together(database: Database) -> None:
    claims = [await begun(database) for _ in range(30)]
    watched, pool = counted(database)
    appends = GroupCommit(watched)
    pool.gate = asyncio.Event()
    tasks = [
        asyncio.create_task(appends.append(claim.lease, Batch((note(claim),)))) for claim in claims
    ]
    await pool.is_busy.wait()
    pool.gate.set()
    got = await asyncio.gather(*tasks)
    assert pool.statements == AT_ONCE + 1
    for claim, stored in zip(claims, got, strict=True):
        read = await journal.read(
            database, TENANT, claim.lease.session_id, LogRange(claim.last_seq)
        )
        assert [row.seq for row in stored] == [row.seq for row in read] == [claim.last_seq + 1]


async def test_one_alone_does_not_wait(database: Database) -> None:
    claim = await begun(database)
    watched, pool = counted(database)
    appends = GroupCommit(watched)
    for _ in range(3):
        await appends.append(claim.lease, Batch((note(claim),)))
    assert pool.statements == 3


async def test_two_batches_of_a_session_never_share_a_statement(database: Database) -> None:
    claim = await begun(database)
    others = [await begun(database) for _ in range(AT_ONCE)]
    watched, pool = counted(database)
    appends = GroupCommit(watched)
    pool.gate = asyncio.Event()
    tasks = [
        asyncio.create_task(appends.append(each.lease, Batch((note(each),))))
        for each in (*others, claim, claim)
    ]
    await pool.is_busy.wait()
    pool.gate.set()
    await asyncio.gather(*tasks)
    read = await journal.read(database, TENANT, claim.lease.session_id, LogRange(claim.last_seq))
    assert [row.seq for row in read] == [claim.last_seq + 1, claim.last_seq + 2]


async def test_a_batch_that_is_refused_spoils_no_other(database: Database) -> None:
    bad, *good = [await begun(database) for _ in range(6)]
    others = [await begun(database) for _ in range(AT_ONCE)]
    watched, pool = counted(database)
    appends = GroupCommit(watched)
    pool.gate = asyncio.Event()
    unfit = Batch((note(bad),), (spent(2**70),))  # no column holds it
    tasks = [
        asyncio.create_task(appends.append(each.lease, Batch((note(each),)))) for each in others
    ]
    refused = asyncio.create_task(appends.append(bad.lease, unfit))
    tasks += [
        asyncio.create_task(appends.append(each.lease, Batch((note(each),)))) for each in good
    ]
    await pool.is_busy.wait()
    pool.gate.set()
    assert all(await asyncio.gather(*tasks))
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await refused
    assert await journal.read(database, TENANT, bad.lease.session_id, LogRange(bad.last_seq)) == []


async def test_runs_that_end_keep_no_other_waiting(database: Database) -> None:
    ending = [await begun(database) for _ in range(AT_ONCE + 3)]
    going_on = await begun(database)
    watched, pool = counted(database)
    appends = GroupCommit(watched)
    pool.gate = asyncio.Event()
    ends = [asyncio.create_task(appends.append(claim.lease, last_batch(claim))) for claim in ending]
    await pool.is_busy.wait()
    other = asyncio.create_task(appends.append(going_on.lease, Batch((note(going_on),))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert pool.statements == len(ending) + 1
    pool.gate.set()
    await asyncio.gather(other, *ends)


async def test_when_the_database_goes_all_of_a_group_are_told(database: Database) -> None:
    claims = [await begun(database) for _ in range(AT_ONCE + 4)]

    watched, pool = counted(database)
    pool.trouble = ConnectionResetError()
    appends = GroupCommit(watched)
    got = await asyncio.gather(
        *(appends.append(claim.lease, Batch((note(claim),))) for claim in claims),
        return_exceptions=True,
    )
    assert [type(each) for each in got] == [ConnectionResetError] * len(claims)
    assert pool.statements == AT_ONCE + 1


async def test_mail_is_told_to_the_sessions_that_have_some(database: Database) -> None:
    with_mail, without = await begun(database), await begun(database)
    await database.raw.execute(
        "UPDATE sessions SET pending_steers = 1 WHERE id = $1", with_mail.lease.session_id
    )
    batches = [Batch((note(with_mail),)), Batch((note(without),))]
    stored = await append_many(database, writes([with_mail, without], batches))
    assert [each.has_mail for each in stored if each] == [True, False]


async def test_random_lives_under_load_leave_dense_journals_and_true_sums(
    database: Database,
) -> None:
    chance = dice(11)
    claims = [await begun(database) for _ in range(12)]
    appends = GroupCommit(database)

    async def live(claim: Claim, steps: Sequence[tuple[int, int | None]]) -> None:
        for size, tokens in steps:
            ledger = () if tokens is None else (spent(tokens),)
            entries = tuple(note(claim) for _ in range(size))
            got = await appends.append(claim.lease, Batch(entries, ledger))
            assert len(got) == size
        await appends.append(claim.lease, last_batch(claim))

    lives = [
        [
            (chance.randint(1, 4), chance.choice((None, chance.randint(1, 99))))
            for _ in range(chance.randint(3, 12))
        ]
        for _ in claims
    ]
    renewing = asyncio.create_task(_renew_on_and_on(database, claims))
    await asyncio.gather(*(live(claim, life) for claim, life in zip(claims, lives, strict=True)))
    renewing.cancel()
    for claim, life in zip(claims, lives, strict=True):
        (run,) = await rows(
            database,
            "SELECT status, input_tokens, cost_usd FROM runs WHERE id = $1",
            claim.lease.run_id,
        )
        tokens = [tokens for _, tokens in life if tokens is not None]
        cost = Decimal("0.01") * len(tokens)
        assert run == {"status": "finished", "input_tokens": sum(tokens), "cost_usd": cost}
        key = (TENANT, claim.lease.session_id)
        seqs = await rows(
            database,
            "SELECT seq FROM journal WHERE tenant_id = $1 AND session_id = $2 ORDER BY seq",
            *key,
        )
        assert [row["seq"] for row in seqs] == list(range(1, len(seqs) + 1))
        with pytest.raises(LeaseLost):
            await appends.append(claim.lease, Batch((note(claim),)))


async def _renew_on_and_on(database: Database, claims: Sequence[Claim]) -> None:
    """Heartbeats lock many sessions at once too: the two must never lock each other out."""
    leases = [claim.lease for claim in claims][::-1]
    while True:
        await renew(database, A, leases)
        await asyncio.sleep(0)
