"""The moment at which a run begins a subagent in the background: what comes in it ends neither."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from app.agent.effects import Effects, Inbox
from app.agent.state import RunInfo
from app.domain.journal import Batch, ServiceEvent
from app.runs.attempt import Stop
from app.runs.background import Background
from app.runs.beside import Yard
from app.runs.clock import SystemClock
from app.runs.crew import Crew
from app.runs.desk import Desk, WaitingRules
from app.runs.execute import Execution
from app.runs.live import Hub
from app.store import claims
from app.store.beside import take_orphans, untold
from app.store.bus import Bus
from app.store.claims import Claim
from app.store.engine import Database
from app.store.group_commit import GroupCommit
from app.store.leases import Lease
from app.store.rows import Row
from app.store.runs import Work
from app.tools.shells import Shells
from tests.agent.threads import agent, threads
from tests.fakes.effects import Answer, Stalled, response, text
from tests.runs.test_worker import BrokenParts
from tests.store.seeds import A, B, enqueue, new_session, rows


def world(child: Answer) -> Effects:
    """A run that begins a subagent in the background, and goes on."""
    main = [
        response(agent("A", "child", run_in_background=True)),
        response(text("done")),
        response(text("heard")),
    ]
    return threads({"main": main, "child": [child]})[0]


@dataclass(frozen=True, slots=True)
class ScriptedParts(BrokenParts):
    world: Effects = field(default_factory=lambda: world(response(text("report"))))

    @asynccontextmanager
    async def open(
        self, claim: Claim, work: Work, info: RunInfo, inbox: Inbox, shells: Shells, desk: Desk
    ) -> AsyncIterator[Effects]:
        del claim, work, info, shells, desk
        yield replace(self.world, inbox=inbox, clock=SystemClock())


@dataclass(slots=True)
class Meanwhile(GroupCommit):
    """Something comes while a launch is being stored."""

    comes: Callable[[], None] = lambda: None

    async def append(
        self,
        lease: Lease,
        batch: Batch,
        *,
        first: Sequence[ServiceEvent] = (),
        on_mail: Callable[[], None] | None = None,
        keeps_session: bool = False,
        is_beside: bool = False,
    ) -> list[Row]:
        if batch.launches:
            self.comes()
        return await GroupCommit.append(
            self,
            lease,
            batch,
            first=first,
            on_mail=on_mail,
            keeps_session=keeps_session,
            is_beside=is_beside,
        )


async def driven_while_launching(
    database: Database, why: Stop, parts: ScriptedParts | None = None
) -> Execution:
    """Drive a run to where it launches its subagent, and stop it in that moment."""
    _, enqueued = await enqueue(database, await new_session(database), A, prompts=("main",))
    assert enqueued.claim is not None
    hub, parts = Hub(database, Bus(database, A.id), 1.0, 100), parts or ScriptedParts()
    appends = Meanwhile(database)
    yard = Yard(A, database, hub, parts, appends, 3, WaitingRules(), 8)
    background = Background(Shells(), Crew(yard, enqueued.claim.lease))
    driven = Execution(enqueued.claim, A, database, hub, parts, appends, 3, background)

    def stop() -> None:
        if why == "drain":
            driven.drain()
        driven.stop(why)

    appends.comes = stop
    async with asyncio.timeout(10):
        await driven.run()
    return driven


async def lives(database: Database) -> list[dict[str, Any]]:
    return await rows(
        database,
        "SELECT origin, status, end_reason, is_untold, attempt FROM runs ORDER BY origin",
    )


async def told_ends(database: Database) -> int:
    (told,) = await rows(
        database, "SELECT count(*)::int AS n FROM journal WHERE subtype = 'task_notification'"
    )
    return int(told["n"])


async def test_a_cancel_in_that_moment_ends_both_and_tells_of_it(database: Database) -> None:
    await driven_while_launching(database, "cancel", ScriptedParts(world=world(Stalled())))
    run, child = await lives(database)
    for life in (run, child):
        assert (life["status"], life["end_reason"]) == ("finished", "cancelled")
    assert not child["is_untold"]
    assert await told_ends(database) == 1


async def test_a_host_that_stops_in_that_moment_leaves_both_to_another(database: Database) -> None:
    driven = await driven_while_launching(database, "drain")
    run, child = await lives(database)
    assert (run["status"], child["status"]) == ("queued", "queued")
    assert child["attempt"] == 0
    assert await told_ends(database) == 0
    assert await take_orphans(database, B) is None  # who claims the run takes it
    claim = await claims.claim(database, B)
    assert claim is not None
    (waits,) = await untold(database, *claim.lease.session)
    assert waits.parent_run_id == driven.claim.lease.run_id


async def test_a_lease_that_is_lost_in_that_moment_loses_neither(database: Database) -> None:
    driven = await driven_while_launching(database, "lost")
    await database.raw.execute("UPDATE sessions SET lease_expires_at = now()")
    claim = await claims.claim(database, B)
    assert claim is not None
    yard = Yard(
        B,
        database,
        driven.hub,
        driven.parts,
        GroupCommit(database),
        3,
        WaitingRules(),
        8,
    )
    again = Background(Shells(), Crew(yard, claim.lease))
    async with asyncio.timeout(10):
        await Execution(claim, B, database, driven.hub, driven.parts, yard.appends, 3, again).run()
    run, child = await lives(database)
    assert (run["status"], run["end_reason"]) == ("finished", "completed")
    assert await told_ends(database) + child["is_untold"] == (child["status"] == "finished")


@pytest.mark.parametrize("why", ["cancel", "drain", "lost"])
async def test_nothing_is_launched_twice(database: Database, why: Stop) -> None:
    await driven_while_launching(database, why)
    (begun,) = await rows(
        database, "SELECT count(*)::int AS n FROM journal WHERE subtype = 'task_started'"
    )
    assert (begun["n"], len(await lives(database))) == (1, 2)
