"""The desk of a run: calls of one id, and what is withdrawn while somebody waits for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.errors import Parked
from app.runs.desk import Desk, T, WaitingRules
from app.runs.live import Hub
from app.store.bus import Bus
from app.store.claims import Claim
from app.store.engine import Database
from tests.store.seeds import A, begun, rows, until
from tests.store.test_actions import answer, request


async def once(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


def desk_of(database: Database, claim: Claim, *, hold_s: float = 60) -> Desk:
    hub = Hub(database, Bus(database, A.id), 1.0, 100)
    desk = Desk(database, claim.lease, hub, WaitingRules(hold_s, poll_s=0.01), once)
    desk.expects(2)
    return desk


async def told(database: Database) -> list[str]:
    log = await rows(
        database,
        "SELECT type FROM journal WHERE type LIKE 'action.%' OR type LIKE 'run.re%' ORDER BY seq",
    )
    return [row["type"] for row in log]


async def waits(database: Database) -> bool:
    return "run.requires_action" in await told(database)


async def pending(database: Database) -> list[dict[str, Any]]:
    return await rows(database, "SELECT id, sha256 FROM actions WHERE status = 'pending'")


@pytest.mark.parametrize("other", [b"x", b"y"])
async def test_two_calls_of_one_id_are_asked_one_after_the_other(
    database: Database, other: bytes
) -> None:
    claim = await begun(database)
    desk = desk_of(database, claim)

    def asks(sha256: bytes) -> "asyncio.Task[Any]":
        asked = desk.answer(request(sha256=sha256), may_have_run=False, can_repeat=False)
        return asyncio.create_task(asked)

    calls = [asks(b"x"), asks(other)]
    for number in (0, 1):
        await until(lambda: pending(database), within_s=10)
        (action,) = await pending(database)
        if not number:  # all wait: the second for its turn
            await until(lambda: waits(database), within_s=10)
        assert action["sha256"] == (b"x", other)[number]
        await answer(database, claim, action["id"])
        desk.ring()
        async with asyncio.timeout(10):
            assert (await calls[number]).action_id == action["id"]
    opened = ["action.opened", "run.requires_action", "action.resolved", "run.resumed"]
    assert (await told(database))[:3] == opened[:3]
    assert (await told(database)).count("action.withdrawn") == 0


async def test_who_waits_for_a_turn_is_let_go_with_the_run(database: Database) -> None:
    claim = await begun(database)
    desk = desk_of(database, claim, hold_s=0)
    calls = [
        desk.answer(request(sha256=each), may_have_run=False, can_repeat=False)
        for each in (b"x", b"y")
    ]
    async with asyncio.timeout(10):
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends] == [Parked, Parked]
    assert [action["id"] for action in await pending(database)] == desk.parked_for


async def test_what_is_withdrawn_while_somebody_waits_for_it_is_asked_again(
    database: Database,
) -> None:
    claim = await begun(database)
    desk = desk_of(database, claim)
    asked = desk.answer(request(), may_have_run=False, can_repeat=False)
    call = asyncio.create_task(asked)
    await until(lambda: pending(database), within_s=10)
    await database.raw.execute("UPDATE actions SET status = 'withdrawn'")
    await until(lambda: pending(database), within_s=10)
    (again,) = await pending(database)
    await answer(database, claim, again["id"])
    async with asyncio.timeout(10):
        found = await call
    assert found is not None
    assert found.action_id == again["id"]
