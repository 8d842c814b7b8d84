"""Actions in the tables: opened under the fence, settled once, and what a run that waits is worth."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.domain.actions import Request
from app.errors import LeaseLost
from app.store import actions, cancels, claims
from app.store.claims import Claim
from app.store.engine import Database
from app.store.leases import release
from app.store.settling import expire_due, resolve_action
from app.store.waiting import hold_sessions_of
from tests.store.seeds import TENANT, A, B, begun, dump, rows

ALLOW = {"behavior": "allow"}


def request(call_id: str = "toolu_1", sha256: bytes = b"x", **fields: Any) -> Request:
    return replace(
        Request("permission", call_id, "Bash", sha256, {"input": {}}, 60, "deny"), **fields
    )


async def asked(database: Database, claim: Claim, action_id: str = "act_1", **fields: Any) -> str:
    await actions.open_action(database, claim.lease, action_id, request(**fields))
    return action_id


async def answer(database: Database, claim: Claim, action_id: str = "act_1") -> None:
    lease = claim.lease
    async with database.begin() as connection:
        await hold_sessions_of(connection, TENANT, [lease.run_id])
        await resolve_action(
            connection, TENANT, lease.session_id, lease.run_id, action_id, answer=ALLOW, by="key_1"
        )


async def run_of(database: Database) -> tuple[str, bool]:
    (run,) = await rows(database, "SELECT status, is_parked FROM runs")
    return run["status"], run["is_parked"]


async def test_a_run_that_is_let_go_is_claimed_once_it_is_answered(database: Database) -> None:
    claim = await begun(database)
    action = await asked(database, claim)
    await actions.tell_waits(database, claim.lease, waits=True, action_ids=[action])
    await actions.park(database, claim.lease, [action])
    assert await run_of(database) == ("requires_action", True)
    assert await claims.claim(database, B) is None
    await answer(database, claim)
    assert await run_of(database) == ("queued", False)
    taken = await claims.claim(database, B)
    assert taken is not None
    assert (taken.has_waited, taken.was_lost, taken.stalled_attempts) == (True, False, 0)
    assert await run_of(database) == ("running", False)


@pytest.mark.parametrize("what", ["answer", "cancel"])
async def test_what_comes_just_before_a_run_is_let_go_keeps_it_claimable(
    database: Database, what: str
) -> None:
    claim = await begun(database)
    action = await asked(database, claim)
    if what == "answer":
        await answer(database, claim)
    else:
        async with database.begin() as connection:
            await cancels.request_cancel(connection, TENANT, claim.lease.run_id, None)
    await actions.park(database, claim.lease, [action])
    taken = await claims.claim(database, B)
    assert taken is not None
    assert (taken.has_waited, taken.is_cancelled) == (True, what == "cancel")


async def test_of_an_answer_and_a_run_that_is_let_go_at_once_neither_is_missed(
    database: Database,
) -> None:
    for number in range(12):
        claim = await begun(database)
        action = await asked(database, claim, f"act_{number}")
        await asyncio.gather(
            actions.park(database, claim.lease, [action]), answer(database, claim, action)
        )
        taken = await claims.claim(database, A)
        assert taken is not None
        assert taken.lease.run_id == claim.lease.run_id


async def test_while_another_thing_is_asked_the_run_still_waits(database: Database) -> None:
    claim = await begun(database)
    both = [await asked(database, claim, f"act_{n}", call_id=f"toolu_{n}") for n in (1, 2)]
    await actions.park(database, claim.lease, both)
    await answer(database, claim, "act_1")
    assert await run_of(database) == ("requires_action", False)  # it takes the one, then waits
    await answer(database, claim, "act_2")
    assert await run_of(database) == ("queued", False)


async def test_who_lost_the_session_can_neither_ask_nor_take_an_answer(database: Database) -> None:
    claim = await begun(database)
    await asked(database, claim)
    await answer(database, claim)
    stale = replace(claim, lease=replace(claim.lease, epoch=claim.lease.epoch - 1))
    before = await dump(database)
    for write in (
        asked(database, stale, "act_2", call_id="toolu_2"),
        actions.use_answer(database, stale.lease, "act_1"),
        actions.tell_waits(database, stale.lease, waits=True, action_ids=[]),
        actions.withdraw_pending(database, stale.lease),
    ):
        with pytest.raises(LeaseLost):
            await write
    await actions.park(database, stale.lease, ["act_1"])
    assert await dump(database) == before


async def test_another_input_withdraws_what_was_asked_before(database: Database) -> None:
    claim = await begun(database)
    await asked(database, claim)
    await asked(database, claim, "act_2", sha256=b"y")
    found = await rows(database, "SELECT id, status FROM actions ORDER BY id")
    assert [row["status"] for row in found] == ["withdrawn", "pending"]
    newest = await actions.newest_of_call(database, claim.lease, "toolu_1")
    assert newest is not None
    assert (newest.id, newest.answer) == ("act_2", None)


async def test_what_nobody_answers_expires_by_the_databases_clock_once(database: Database) -> None:
    claim = await begun(database)
    action = await asked(database, claim)
    await actions.park(database, claim.lease, [action])
    assert await expire_due(database) == []
    await database.raw.execute("UPDATE actions SET expires_at = clock_timestamp()")
    settled = await asyncio.gather(*(expire_due(database) for _ in range(3)))
    again = await expire_due(database)
    assert len([due for some in (*settled, again) for due in some]) == 1
    found = await actions.find_open(database, claim.lease, action)
    assert found.answer is not None
    assert (found.status, found.answer.is_expired, found.answer.ends_run) == (
        "expired",
        True,
        False,
    )
    assert await run_of(database) == ("queued", False)


async def test_a_run_that_is_let_go_comes_back_at_its_deadline(database: Database) -> None:
    claim = await begun(database)
    action = await asked(database, claim)
    await actions.park(database, claim.lease, [action])
    await database.raw.execute("UPDATE runs SET deadline_at = clock_timestamp()")
    await expire_due(database)
    assert await claims.claim(database, B) is not None


async def test_a_run_that_waits_goes_on_to_wait_when_its_session_is_let_go(
    database: Database,
) -> None:
    claim = await begun(database)
    action = await asked(database, claim)
    await actions.park(database, claim.lease, [action])
    await release(database, claim.lease)  # by a host that held it for the sake of others
    assert await run_of(database) == ("requires_action", True)


async def test_the_call_that_began_last_is_noted_under_the_fence(database: Database) -> None:
    claim = await begun(database)

    async def which() -> list[bool]:
        return [await actions.may_have_begun(database, claim.lease, each) for each in ("a", "b")]

    assert await which() == [False, False]
    await actions.note_begun(database, claim.lease, "a")
    assert await which() == [True, False]
    await actions.note_begun(database, claim.lease, "b")
    assert await which() == [False, True]
    stale = replace(claim.lease, epoch=claim.lease.epoch - 1)
    with pytest.raises(LeaseLost):
        await actions.note_begun(database, stale, "a")
    assert await which() == [False, True]


async def test_what_has_begun_is_told_by_the_note_and_by_answers_that_were_taken(
    database: Database,
) -> None:
    claim = await begun(database)
    lease, calls = claim.lease, ["plain", "asked", "taken", "server", "client"]

    async def which(*, is_noted: bool) -> set[str]:
        return set(await actions.begun_among(database, lease, calls, is_noted=is_noted))

    await asked(database, claim, "act_1", tool_use_id="asked")
    await answer(database, claim)
    await asked(database, claim, "act_2", tool_use_id="taken")
    await actions.use_answer(database, lease, "act_2")
    await asked(database, claim, "act_3", tool_use_id="server", type="elicitation")
    await asked(database, claim, "act_4", tool_use_id="client", type="client_tool")
    assert await which(is_noted=False) == {"plain", "taken", "server", "client"}
    assert await which(is_noted=True) == set()
    await actions.note_begun(database, lease, "asked")
    assert await which(is_noted=True) == {"asked"}
    await database.raw.execute("UPDATE runs SET begun_call = NULL")
    assert await which(is_noted=True) == set(calls)


async def test_of_a_run_that_is_older_than_the_note_nothing_is_certain(database: Database) -> None:
    claim = await begun(database)
    await database.raw.execute("UPDATE runs SET begun_call = NULL")
    await actions.note_begun(database, claim.lease, "a")
    assert await actions.may_have_begun(database, claim.lease, "b")
