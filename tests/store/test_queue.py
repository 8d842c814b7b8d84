"""Who runs what: order, claims that race, leases that end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from ulid import ULID

from app.agent.broken_off import abandoned
from app.agent.state import LoopState, RunInfo
from app.domain.journal import Batch
from app.domain.options import AgentOptions
from app.domain.results import ErrorResult
from app.errors import LeaseLost, NotFound, QueueFull
from app.store import cancels, claims, journal
from app.store.append import append
from app.store.claims import Claim
from app.store.engine import Database
from app.store.keys import ensure_tenant
from app.store.leases import Host, release, renew
from tests.store.seeds import (
    DYING,
    TENANT,
    A,
    B,
    RealStamps,
    begun,
    dice,
    dump,
    enqueue,
    last_batch,
    new_session,
    note,
    opened,
    over,
    rows,
)


async def claimed_run(database: Database, host: Host = A) -> str | None:
    claim = await claims.claim(database, host)
    return claim.lease.run_id if claim else None


async def expire(database: Database, claim: Claim) -> None:
    await database.raw.execute(
        "UPDATE sessions SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE id = $1",
        claim.lease.session_id,
    )


async def run_state(database: Database, run_id: str) -> tuple[str, int, int]:
    (row,) = await rows(
        database, "SELECT status, attempt, stalled_attempts FROM runs WHERE id = $1", run_id
    )
    return row["status"], row["attempt"], row["stalled_attempts"]


async def cancel(database: Database, run_id: str, reason: str = "changed my mind") -> None:
    async with database.begin() as connection:
        await cancels.request_cancel(connection, TENANT, run_id, reason)


async def finish_unstarted(database: Database, session_id: str, run_id: str) -> int | None:
    info = RunInfo(session_id, run_id, AgentOptions())
    batch = abandoned(LoopState(info), RealStamps(), end_reason="cancelled", why="Cancelled.")
    result = batch.entries[-1].message
    assert isinstance(result, ErrorResult)
    async with database.begin() as connection:
        return await cancels.finish_unstarted(
            connection,
            TENANT,
            run_id,
            result=result,
            end_reason="cancelled",
            finished_body='{"type":"run.finished"}',
        )


@asynccontextmanager
async def open_transaction(database: Database) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(database.dsn)
    try:
        await connection.execute("BEGIN")
        yield connection
    finally:
        await connection.close()


# -- order ------------------------------------------------------------------------------------


async def test_only_the_first_unfinished_run_of_a_session_can_be_claimed(
    database: Database,
) -> None:
    session_id = await new_session(database)
    first, _ = await enqueue(database, session_id)
    second, enqueued = await enqueue(database, session_id)
    assert enqueued.ahead == 1
    claim = await claims.claim(database, A)
    assert claim is not None
    assert claim.lease.run_id == first
    assert await claimed_run(database, B) is None
    await append(database, claim.lease, last_batch(claim))
    assert await claimed_run(database, B) == second


async def test_runs_of_a_session_are_claimed_in_the_order_in_which_they_came(
    database: Database,
) -> None:
    session_id = await new_session(database)
    order = [(await enqueue(database, session_id))[0] for _ in range(5)]
    claimed: list[str] = []
    while claim := await claims.claim(database, A):
        claimed.append(claim.lease.run_id)
        await append(database, claim.lease, last_batch(claim))
    assert claimed == order


async def test_a_run_that_was_begun_comes_before_a_more_urgent_one_of_its_session(
    database: Database,
) -> None:
    session_id = await new_session(database)
    begun_run, _ = await enqueue(database, session_id, DYING)
    urgent, _ = await enqueue(database, session_id)
    late, _ = await enqueue(database, session_id)
    await database.raw.execute("UPDATE runs SET priority = 5 WHERE id = $1", urgent)
    await database.raw.execute("UPDATE runs SET priority = 9 WHERE id = $1", late)
    claim = await claims.claim(database, A)
    assert claim is not None
    assert claim.lease.run_id == begun_run
    await append(database, claim.lease, last_batch(claim))
    assert await claimed_run(database) == late


async def test_priority_comes_before_age(database: Database) -> None:
    older, _ = await enqueue(database, await new_session(database))
    urgent, _ = await enqueue(database, await new_session(database))
    younger, _ = await enqueue(database, await new_session(database))
    await database.raw.execute("UPDATE runs SET priority = 1 WHERE id = $1", urgent)
    assert [await claimed_run(database) for _ in range(4)] == [urgent, older, younger, None]


async def test_the_tenant_with_the_fewest_running_runs_is_next(database: Database) -> None:
    async with database.begin() as connection:
        await ensure_tenant(connection, "quiet", allow_bypass=False)
    busy = [await enqueue(database, await new_session(database)) for _ in range(4)]
    quiet = [
        await enqueue(database, await new_session(database, "quiet"), tenant="quiet")
        for _ in range(2)
    ]
    order = [await claimed_run(database) for _ in range(6)]
    assert order == [busy[0][0], quiet[0][0], busy[1][0], quiet[1][0], busy[2][0], busy[3][0]]


# -- races ------------------------------------------------------------------------------------


async def test_hosts_that_claim_at_once_never_get_the_same_session(database_url: str) -> None:
    async with opened(database_url, pool_size=6) as database:
        for _ in range(25):
            sessions = [await new_session(database) for _ in range(3)]
            waiting = {(await enqueue(database, each))[0] for each in (*sessions, sessions[0])}
            taken: list[Claim] = []
            while len(taken) < 3:  # who finds a row locked goes on without it
                found = await asyncio.gather(
                    *(claims.claim(database, host) for host in (A, B, A, B, A, B))
                )
                taken += [claim for claim in found if claim]
            assert sorted(claim.lease.session_id for claim in taken) == sorted(sessions)
            assert {claim.lease.run_id for claim in taken} < waiting
            for claim in taken:
                await append(database, claim.lease, last_batch(claim))
            rest = await claims.claim(database, A)
            assert rest is not None
            await append(database, rest.lease, last_batch(rest))


async def test_a_claim_passes_over_what_another_host_is_about_to_take(database: Database) -> None:
    first, _ = await enqueue(database, await new_session(database))
    second, _ = await enqueue(database, await new_session(database))
    async with open_transaction(database) as connection:
        taken = await claims.claim(over(connection, database), A)
        assert taken is not None
        assert taken.lease.run_id == first
        assert await claimed_run(database, B) == second
        assert await claimed_run(database, B) is None
        await connection.execute("COMMIT")
    assert await claimed_run(database, B) is None


async def test_a_claim_that_was_rolled_back_leaves_the_run_to_others(database: Database) -> None:
    run_id, _ = await enqueue(database, await new_session(database))
    async with open_transaction(database) as connection:
        assert await claims.claim(over(connection, database), A) is not None
    claim = await claims.claim(database, B)
    assert claim is not None
    assert (claim.lease.run_id, claim.attempt, claim.lease.epoch) == (run_id, 1, 1)


async def test_a_run_that_is_just_ending_is_not_revived(database: Database) -> None:
    claim = await begun(database)
    async with open_transaction(database) as connection:
        await append(over(connection, database), claim.lease, last_batch(claim))
        assert await claimed_run(database, B) is None  # its rows are locked
        await connection.execute("COMMIT")
    assert await claimed_run(database, B) is None
    assert (await run_state(database, claim.lease.run_id))[0] == "finished"


async def test_between_a_late_end_and_a_takeover_exactly_one_wins(database_url: str) -> None:
    wins = {"end": 0, "takeover": 0}
    chance = dice(7)
    async with opened(database_url, pool_size=4) as database:

        async def end(claim: Claim, delay_s: float) -> bool:
            await asyncio.sleep(delay_s)
            try:
                await append(database, claim.lease, last_batch(claim))
            except LeaseLost:
                return False
            return True

        async def take(host: Host, delay_s: float) -> Claim | None:
            await asyncio.sleep(delay_s)
            return await claims.claim(database, host)

        for _ in range(60):
            claim = await begun(database, DYING)
            ended, first, second = await asyncio.gather(
                end(claim, chance.uniform(0, 0.004)),
                take(A, chance.uniform(0, 0.006)),
                take(B, chance.uniform(0, 0.006)),
            )
            taken = [each for each in (first, second) if each]
            assert len(taken) + ended == 1
            status, attempt, _ = await run_state(database, claim.lease.run_id)
            assert (status, attempt) == (("finished", 1) if ended else ("running", 2))
            wins["end" if ended else "takeover"] += 1
            for each in taken:
                await append(database, each.lease, last_batch(each))
        ends = "SELECT count(*) AS n FROM journal WHERE type = 'result' GROUP BY run_id"
        assert {row["n"] for row in await rows(database, ends)} == {1}
    assert min(wins.values()) > 0  # else nothing raced


async def test_between_a_cancel_of_a_queued_run_and_its_claim_exactly_one_wins(
    database_url: str,
) -> None:
    async with opened(database_url, pool_size=4) as database:
        for _ in range(40):
            session_id = await new_session(database)
            run_id, _ = await enqueue(database, session_id)
            claim, seq = await asyncio.gather(
                claims.claim(database, A), finish_unstarted(database, session_id, run_id)
            )
            assert (claim is None) != (seq is None)
            status, attempt, _ = await run_state(database, run_id)
            assert (status, attempt) == (("running", 1) if claim else ("finished", 0))
            if claim:
                await append(database, claim.lease, last_batch(claim))
        ends = "SELECT count(*) AS n FROM journal WHERE type = 'result' GROUP BY run_id"
        assert {row["n"] for row in await rows(database, ends)} == {1}


# -- leases -----------------------------------------------------------------------------------


async def test_an_expired_lease_is_taken_over_with_a_new_epoch_and_attempt(
    database: Database,
) -> None:
    claim = await begun(database)
    assert await claimed_run(database, B) is None
    await expire(database, claim)
    taken = await claims.claim(database, B)
    assert taken is not None
    assert taken.lease.run_id == claim.lease.run_id
    assert (taken.lease.epoch, taken.attempt) == (claim.lease.epoch + 1, claim.attempt + 1)
    (session,) = await rows(database, "SELECT owner FROM sessions")
    assert session["owner"] == B.id


async def test_a_renewed_lease_is_not_taken_over(database: Database) -> None:
    claim = await begun(database)
    await expire(database, claim)
    assert await renew(database, A, [claim.lease]) == {claim.lease: False}
    assert await claimed_run(database, B) is None


async def test_renewing_tells_what_is_lost_and_what_is_to_be_cancelled(
    database: Database,
) -> None:
    kept, lost, unwanted, let_go = [await begun(database) for _ in range(4)]
    await expire(database, lost)
    again = await claims.claim(database, A)
    assert again is not None
    await cancel(database, unwanted.lease.run_id)
    await release(database, let_go.lease)
    held = [each.lease for each in (kept, lost, again, unwanted, let_go)]
    assert await renew(database, A, held) == {
        kept.lease: False,
        again.lease: False,
        unwanted.lease: True,
    }
    assert await renew(database, B, held) == {}


async def test_a_released_run_goes_to_the_next_host_at_once(database: Database) -> None:
    claim = await begun(database)
    await release(database, claim.lease)
    assert (await run_state(database, claim.lease.run_id))[0] == "queued"
    taken = await claims.claim(database, B)
    assert taken is not None
    assert (taken.lease.run_id, taken.attempt) == (claim.lease.run_id, 2)
    before = await dump(database)
    await release(database, claim.lease)  # of the old owner: it has nothing to let go
    assert await dump(database) == before


async def test_hosts_lost_without_progress_are_counted_and_progress_starts_anew(
    database: Database,
) -> None:
    claim = await begun(database, DYING)
    for count in (1, 2, 3):
        await enqueue(database, claim.lease.session_id)  # another's event is no progress
        again = await claims.claim(database, DYING)
        assert again is not None
        assert again.stalled_attempts == count
        claim = again
    await append(database, claim.lease, Batch((note(claim),)))
    taken = await claims.claim(database, A)
    assert taken is not None
    assert (taken.stalled_attempts, taken.attempt) == (0, 5)


async def test_an_orderly_hand_over_is_no_lost_host(database: Database) -> None:
    claim = await begun(database, DYING)
    taken = await claims.claim(database, A)
    assert taken is not None
    assert taken.stalled_attempts == 1
    await release(database, taken.lease)
    taken = await claims.claim(database, DYING)
    assert taken is not None
    assert taken.stalled_attempts == 1
    taken = await claims.claim(database, A)
    assert taken is not None
    assert (taken.stalled_attempts, taken.lease.run_id) == (2, claim.lease.run_id)


# -- enqueue ----------------------------------------------------------------------------------


async def test_a_host_with_a_slot_gets_a_new_run_on_the_spot(database: Database) -> None:
    session_id = await new_session(database)
    run_id, enqueued = await enqueue(database, session_id, A)
    claim = enqueued.claim
    assert claim is not None
    assert (claim.lease.run_id, claim.attempt, claim.is_new_session) == (run_id, 1, True)
    assert await run_state(database, run_id) == ("running", 1, 0)
    assert await renew(database, A, [claim.lease]) == {claim.lease: False}
    await append(database, claim.lease, last_batch(claim))
    _, enqueued = await enqueue(database, session_id, A)
    assert enqueued.claim is not None
    assert not enqueued.claim.is_new_session


async def test_a_run_waits_when_older_work_is_claimable_anywhere(database: Database) -> None:
    older, _ = await enqueue(database, await new_session(database))
    younger, enqueued = await enqueue(database, await new_session(database), A)
    assert enqueued.claim is None
    assert [await claimed_run(database, B), await claimed_run(database, B)] == [older, younger]
    _, enqueued = await enqueue(database, await new_session(database), A)
    assert enqueued.claim is not None  # what other hosts hold does not stand in the way


async def test_a_run_waits_behind_another_one_of_its_session(database: Database) -> None:
    claim = await begun(database)
    _, enqueued = await enqueue(database, claim.lease.session_id, B)
    assert (enqueued.claim, enqueued.ahead) == (None, 1)


async def test_of_many_at_once_one_is_claimed_and_the_limit_holds(database_url: str) -> None:
    async with opened(database_url, pool_size=10) as database:
        session_id = await new_session(database)
        found = await asyncio.gather(
            *(enqueue(database, session_id, A if n % 2 else B, limit=3) for n in range(10)),
            return_exceptions=True,
        )
        refused = [each for each in found if isinstance(each, QueueFull)]
        taken = sorted(
            (each[1] for each in found if isinstance(each, tuple)), key=lambda e: e.ahead
        )
        assert len(refused) == 6
        assert [each.ahead for each in taken] == [0, 1, 2, 3]
        assert [each.claim is not None for each in taken] == [True, False, False, False]
        (counts,) = await rows(database, "SELECT num_runs, last_seq FROM sessions")
        assert counts == {"num_runs": 4, "last_seq": 5}  # what was refused left no trace


async def test_an_unknown_session_and_that_of_another_tenant_are_not_found(
    database: Database,
) -> None:
    session_id = await new_session(database)
    async with database.begin() as connection:
        await ensure_tenant(connection, "other", allow_bypass=False)
    with pytest.raises(NotFound):
        await enqueue(database, session_id, tenant="other")
    with pytest.raises(NotFound):
        await enqueue(database, f"{ULID()}")


# -- cancel -----------------------------------------------------------------------------------


async def test_a_run_that_no_host_has_begun_ends_in_one_step(database: Database) -> None:
    claim = await begun(database)
    session_id = claim.lease.session_id
    run_id, _ = await enqueue(database, session_id)
    seq = await finish_unstarted(database, session_id, run_id)
    assert seq == 5
    ends = await journal.read(database, TENANT, session_id, run_id=run_id)
    assert [(row.seq, row.type) for row in ends] == [
        (3, "run.queued"),
        (4, "result"),
        (5, "run.finished"),
    ]
    (run,) = await rows(
        database,
        "SELECT status, result_subtype, end_reason, is_error, last_seq FROM runs WHERE id = $1",
        run_id,
    )
    assert run == {
        "status": "finished",
        "result_subtype": "error_during_execution",
        "end_reason": "cancelled",
        "is_error": True,
        "last_seq": 5,
    }
    assert await finish_unstarted(database, session_id, run_id) is None
    (row,) = await append(database, claim.lease, Batch((note(claim),)))
    assert row.seq == 6  # the owner of the session's other run goes on behind it


async def test_a_run_that_was_begun_and_let_go_is_ended_by_its_next_owner(
    database: Database,
) -> None:
    claim = await begun(database)
    await release(database, claim.lease)
    await cancel(database, claim.lease.run_id)
    assert await finish_unstarted(database, claim.lease.session_id, claim.lease.run_id) is None
    taken = await claims.claim(database, B)
    assert taken is not None
    assert taken.is_cancelled


async def test_the_first_cancel_is_the_one_that_is_remembered(database: Database) -> None:
    claim = await begun(database)
    await cancel(database, claim.lease.run_id, "first")
    first = await rows(database, "SELECT cancel_requested_at, cancel_reason FROM runs")
    await cancel(database, claim.lease.run_id, "second")
    assert await rows(database, "SELECT cancel_requested_at, cancel_reason FROM runs") == first
    assert first[0]["cancel_reason"] == "first"
    await append(database, claim.lease, last_batch(claim))
    before = await dump(database)
    await cancel(database, claim.lease.run_id, "third")
    assert await dump(database) == before


async def test_hosts_that_claim_many_at_once_share_everything_and_nothing_twice(
    database: Database,
) -> None:
    wanted = {(await enqueue(database, await new_session(database)))[0] for _ in range(40)}
    taken: dict[str, list[str]] = {"host_a": [], "host_b": []}

    async def take(host: Host) -> None:
        while found := await claims.claim_many(database, host, 3):
            taken[host.id] += [claim.lease.run_id for claim in found]

    for _ in range(3):  # all that one sees may be what the other is just taking
        await asyncio.gather(take(A), take(B))
    both = taken["host_a"] + taken["host_b"]
    assert len(both) == len(set(both)) == 40
    assert set(both) == wanted
