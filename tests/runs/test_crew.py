"""The subagents in the background of one session: what a crew knows, counts, and hands on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest

from app.agent.effects import Effects, Inbox
from app.agent.state import LoopState, RunInfo
from app.domain.briefing import Briefing
from app.domain.journal import Batch, Launch
from app.domain.model import Hear, ModelRequest, ModelResponse, unheard
from app.domain.options import AgentOptions
from app.domain.usage import LedgerRow, Usage
from app.errors import LeaseLost
from app.runs.background import Background
from app.runs.beside import Yard
from app.runs.crew import Crew
from app.runs.desk import Desk, WaitingRules
from app.runs.execute import Execution
from app.runs.keeping import Keeper
from app.runs.live import Hub
from app.store import claims
from app.store.actions import park
from app.store.append import append
from app.store.beside import cancelled, take_orphans, tell_no_more, untold
from app.store.bus import Bus
from app.store.claims import Claim
from app.store.engine import Database
from app.store.group_commit import GroupCommit
from app.store.leases import Lease
from app.store.runs import Work
from app.tools.shells import Shells
from tests.fakes.effects import MODEL, effects, response, text
from tests.runs.test_worker import BrokenParts
from tests.store.seeds import TENANT, A, B, begun, last_batch, note, rows, until

AGENT, CHILD = "a0123456789abcdef", "run_child"
LAUNCHED: dict[str, Any] = {
    "call_id": "toolu_1",
    "agent_id": AGENT,
    "agent_type": "helper",
    "description": "helps",
    "depth": 1,
    "tools": [],
    "parent_agent_id": None,
    "window": 200_000,
    "options": {"model": MODEL},
    "prompt": "Help.",
    "prompt_uuid": "0b0f9a52-6f2b-4b3e-9f5f-0d5f3c1b2a10",
    "asked_at": "2030-01-01T00:00:00.000Z",
    "hooks": {},
    "known": Briefing().since(Briefing()).to_json(),
    "cwd": "",
    "servers": {},
}


class OneAnswer:
    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        del request, hear
        return response(text("report"))


class NoAnswer:
    """Is asked, and never answers."""

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        del request, hear
        await asyncio.get_running_loop().create_future()
        return response(text("never"))


@dataclass(frozen=True, slots=True)
class Parts(BrokenParts):
    """Cannot be opened for the first times, like a disk that is full for a while."""

    fails: int = 0
    answers: OneAnswer | NoAnswer = field(default_factory=OneAnswer)
    opened: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def open(
        self, claim: Claim, work: Work, info: RunInfo, inbox: Inbox, shells: Shells, desk: Desk
    ) -> AsyncIterator[Effects]:
        del work, info, inbox, shells, desk
        self.opened.append(claim.attempt)
        if len(self.opened) <= self.fails:
            raise OSError(28, "No space left on device")
        yield replace(effects(), model=self.answers)


async def launched(database: Database) -> Claim:
    """A run that has begun a subagent in the background."""
    claim = await begun(database)
    launch = Launch(CHILD, {"model": MODEL}, LAUNCHED)
    await append(database, claim.lease, Batch((note(claim),), launches=(launch,)))
    return claim


def crew_of(database: Database, lease: Lease, parts: Parts, *, pause_s: float = 0.01) -> Crew:
    hub = Hub(database, Bus(database, A.id), 1.0, 100)
    appends = GroupCommit(database)
    return Crew(Yard(A, database, hub, parts, appends, 3, WaitingRules(), 8, pause_s), lease)


async def has_ended(crew: Crew) -> None:
    async with asyncio.timeout(30):
        await crew.changed(lambda: crew.end_of(AGENT) is not None)


async def child_row(database: Database) -> dict[str, Any]:
    (row,) = await rows(
        database, "SELECT status, attempt, end_reason, is_untold FROM runs WHERE id = $1", CHILD
    )
    return row


async def test_one_that_failed_for_no_known_reason_is_begun_again(database: Database) -> None:
    claim, parts = await launched(database), Parts(fails=2)
    crew = crew_of(database, claim.lease, parts)
    crew.start(CHILD, AGENT)
    await has_ended(crew)
    assert parts.opened == [1, 2, 3]
    end = crew.end_of(AGENT)
    assert end is not None
    assert (end.status, end.report) == ("completed", "report")
    row = await child_row(database)
    assert (row["status"], row["end_reason"], row["is_untold"]) == ("finished", "completed", True)


async def test_one_that_fails_each_time_is_given_up(database: Database) -> None:
    claim, parts = await launched(database), Parts(fails=1000)
    crew = crew_of(database, claim.lease, parts)
    crew.start(CHILD, AGENT)
    await has_ended(crew)
    assert parts.opened == [1, 2, 3]
    row = await child_row(database)
    assert (row["status"], row["end_reason"]) == ("finished", "worker_lost")


async def make_unreadable(database: Database, lease: Lease) -> None:
    """Give the subagent a row that no program of ours has written."""
    await database.raw.execute(
        """WITH s AS (UPDATE sessions SET last_seq = last_seq + 1 WHERE id = $1 RETURNING last_seq)
           INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body, facts)
           SELECT $2, $1, last_seq, $3, 'aside', 'user', '{"type":"from elsewhere"}',
             '{"thread":"toolu_1","of":null}' FROM s""",
        lease.session_id,
        lease.tenant_id,
        CHILD,
    )


async def test_one_whose_rows_cannot_be_read_is_given_up_after_as_many_attempts(
    database: Database,
) -> None:
    claim, parts = await launched(database), Parts()
    await make_unreadable(database, claim.lease)
    crew = crew_of(database, claim.lease, parts)
    crew.start(CHILD, AGENT)
    await has_ended(crew)
    assert parts.opened == []
    end, row = crew.end_of(AGENT), await child_row(database)
    assert end is not None
    assert end.status == "failed"
    assert (row["status"], row["end_reason"], row["attempt"]) == ("finished", "worker_lost", 4)


@pytest.mark.parametrize("lacks", [["known", "tools"], list(LAUNCHED)])
async def test_one_that_another_version_has_launched_otherwise_is_given_up_too(
    database: Database, lacks: list[str]
) -> None:
    claim, parts = await launched(database), Parts()
    await database.raw.execute(
        "UPDATE runs SET launched = launched - $2::text[] WHERE id = $1", CHILD, lacks
    )
    crew = crew_of(database, claim.lease, parts)
    await crew.take_up()
    (agent_id,) = crew.running
    async with asyncio.timeout(30):
        await crew.changed(lambda: crew.end_of(agent_id) is not None)
    assert parts.opened == []
    end, row = crew.end_of(agent_id), await child_row(database)
    assert end is not None
    assert (end.status, row["end_reason"], row["attempt"]) == ("failed", "worker_lost", 4)
    (result,) = await rows(database, "SELECT body FROM journal WHERE type = 'result'")
    assert "3 hosts were lost" in result["body"]


@pytest.mark.parametrize("lacks", [[], list(LAUNCHED)])
async def test_an_end_that_cannot_be_read_is_known_all_the_same(
    database: Database, lacks: list[str]
) -> None:
    claim = await launched(database)
    await make_unreadable(database, claim.lease)
    await database.raw.execute(
        "UPDATE runs SET launched = launched - $2::text[] WHERE id = $1", CHILD, lacks
    )
    await database.raw.execute(
        """UPDATE runs SET status = 'finished', is_untold = true, end_reason = 'completed',
             started_at = now(), finished_at = now() WHERE id = $1""",
        CHILD,
    )
    crew = crew_of(database, claim.lease, Parts())
    await crew.take_up()
    end = crew.end_of(CHILD if lacks else AGENT)
    assert end is not None
    assert end.status == "failed"


async def test_one_that_is_found_over_has_the_end_that_is_stored(database: Database) -> None:
    claim = await launched(database)
    await database.raw.execute(
        """UPDATE runs SET status = 'finished', is_untold = true, end_reason = 'cancelled',
             started_at = now(), finished_at = now() WHERE id = $1""",
        CHILD,
    )
    crew = crew_of(database, claim.lease, Parts())
    crew.start(CHILD, AGENT)
    await has_ended(crew)
    end = crew.end_of(AGENT)
    assert end is not None
    assert (end.status, end.killer) == ("killed", "user")


async def test_one_that_waits_for_its_next_attempt_can_be_cancelled_meanwhile(
    database: Database,
) -> None:
    claim, parts = await launched(database), Parts(fails=1)
    crew = crew_of(database, claim.lease, parts, pause_s=60)
    crew.start(CHILD, AGENT)
    await until_opened(parts)
    crew.cancel(CHILD)
    await has_ended(crew)
    assert (await child_row(database))["end_reason"] == "cancelled"


async def test_one_that_is_launched_while_its_host_stops_is_left_to_the_next(
    database: Database,
) -> None:
    claim, parts = await launched(database), Parts()
    crew = crew_of(database, claim.lease, parts)
    parent = LoopState(parts.describe(claim.lease, Work({}, {}, None, 0, allows_bypass=False)))
    crew.drain()
    crew.launch([Launch(CHILD, {"model": MODEL}, LAUNCHED)], parent)
    assert crew.running == ()
    await crew.leave()
    assert Background(Shells(), crew).end_of(AGENT) is None
    assert (parts.opened, (await child_row(database))["status"]) == ([], "queued")
    await crew.stop_all()  # its run was cancelled before its host had let it go
    assert crew.end_of(AGENT) is not None


async def until_opened(parts: Parts) -> None:
    async def is_open() -> bool:
        return bool(parts.opened)

    await until(is_open, within_s=10)


async def test_one_that_was_let_go_has_no_end_and_is_not_taken_up_again(database: Database) -> None:
    claim, parts = await launched(database), Parts(answers=NoAnswer())
    crew = crew_of(database, claim.lease, parts)
    background = Background(Shells(), crew)
    crew.start(CHILD, AGENT)
    await until_opened(parts)
    crew.hurry()
    await crew.leave()
    assert crew.running == ()
    assert background.end_of(AGENT) is None
    assert background.end_of("another") is not None
    await crew.take_up()
    assert crew.running == ()
    assert (await child_row(database))["status"] == "queued"


async def test_one_that_was_let_go_ends_with_its_run_all_the_same(database: Database) -> None:
    claim, parts = await launched(database), Parts(answers=NoAnswer())
    crew = crew_of(database, claim.lease, parts)
    crew.start(CHILD, AGENT)
    await until_opened(parts)
    crew.hurry()
    await crew.leave()
    async with asyncio.timeout(10):
        await crew.stop_all()  # the run was cancelled before its host had let it go
    end = crew.end_of(AGENT)
    assert end is not None
    assert (end.status, end.killer) == ("killed", "user")
    row = await child_row(database)
    assert (row["status"], row["end_reason"]) == ("finished", "cancelled")


async def test_who_waits_for_ends_waits_no_more_once_the_session_is_lost(
    database: Database,
) -> None:
    claim, parts = await launched(database), Parts(answers=NoAnswer())
    crew = crew_of(database, claim.lease, parts)
    background = Background(Shells(), crew)
    yard = crew.yard
    driven = Execution(claim, A, database, yard.hub, parts, yard.appends, 3, background)
    crew.start(CHILD, AGENT)
    await until_opened(parts)
    await database.raw.execute("UPDATE sessions SET epoch = epoch + 1")  # another host has it
    waiting = asyncio.create_task(crew.stop_all())
    await asyncio.sleep(0.3)
    assert not waiting.done()
    driven.stop("lost")
    async with asyncio.timeout(10):
        await waiting
    assert (await child_row(database))["status"] == "running"
    with pytest.raises(LeaseLost):
        await crew.moved(claim.lease.epoch)


async def test_they_go_on_under_the_next_epoch(database: Database) -> None:
    claim, parts = await launched(database), Parts()
    crew = crew_of(database, claim.lease, parts)
    await database.raw.execute("UPDATE sessions SET epoch = epoch + 1")  # a run follows, here
    crew.start(CHILD, AGENT)
    await asyncio.sleep(0.3)
    assert parts.opened == []
    crew.hold(replace(claim.lease, epoch=claim.lease.epoch + 1))
    await has_ended(crew)
    assert parts.opened == [1]


async def test_a_cancel_that_a_heartbeat_brings_ends_its_own_run_alone(database: Database) -> None:
    claim, parts = await launched(database), Parts(answers=NoAnswer())
    crew = crew_of(database, claim.lease, parts)
    crew.start(CHILD, AGENT)
    await until_opened(parts)
    await database.raw.execute("UPDATE runs SET cancel_requested_at = now() WHERE id = $1", CHILD)
    assert await cancelled(database, []) == set()
    assert await cancelled(database, [("another", CHILD)]) == set()
    asked = await cancelled(database, [(TENANT, CHILD), (TENANT, claim.lease.run_id)])
    assert asked == {(TENANT, CHILD)}
    crew.heard(1.0, {("another", CHILD), (TENANT, "run_other")})
    await asyncio.sleep(0.1)
    assert crew.running == (AGENT,)
    crew.heard(2.0, asked)
    await has_ended(crew)
    assert (await child_row(database))["end_reason"] == "cancelled"


async def test_the_budget_that_they_share_stops_all_but_the_one_that_reached_it(
    database: Database,
) -> None:
    claim, parts = await launched(database), Parts(answers=NoAnswer())
    run_id = claim.lease.run_id
    await database.raw.execute(
        """UPDATE runs SET options = '{"max_budget_usd": 1}' WHERE id = $1""", run_id
    )
    crew = crew_of(database, claim.lease, parts)
    await crew.take_up()
    await until_opened(parts)
    options = AgentOptions(max_budget_usd=1)
    share = crew.purses.share(run_id, options)
    crew.paid(CHILD, [LedgerRow(MODEL, Usage(1), Decimal("0.3"))])
    crew.drawn(run_id, Decimal("0.2"))
    assert share.others_usd() == Decimal("0.3")
    assert crew.meter.cost_usd == Decimal("0.3")
    left = crew.purses.left_of(run_id, options.stored())["max_budget_usd"]
    assert Decimal(left) == Decimal("0.5")
    assert crew.running == (AGENT,)
    crew.drawn(run_id, Decimal("0.7"))
    await has_ended(crew)
    assert (await child_row(database))["end_reason"] == "max_budget_run"


async def test_an_end_that_is_shown_nowhere_is_told_no_more_and_only_under_the_fence(
    database: Database,
) -> None:
    lease = (await launched(database)).lease
    await database.raw.execute(
        "UPDATE runs SET status = 'finished', is_untold = true WHERE id = $1", CHILD
    )
    await tell_no_more(database, lease, [CHILD])
    await tell_no_more(database, replace(lease, epoch=lease.epoch - 1), [])
    assert (await child_row(database))["is_untold"]
    await tell_no_more(database, lease, [])
    assert not (await child_row(database))["is_untold"]


@asynccontextmanager
async def kept_by_b(database: Database) -> AsyncIterator[Keeper]:
    """A host that keeps what orphans it finds, and has no slot for runs."""
    started: list[Claim] = []
    keeper = Keeper(B, database, 0.05, nullcontext, started.append, lambda _, __: None)
    yield keeper
    await keeper.close()
    assert started == []


async def adopted(database: Database, keeper: Keeper) -> Lease:
    found = await take_orphans(database, B)
    assert found is not None
    crew = crew_of(database, found.lease, Parts())
    crew.yard = replace(crew.yard, host=B)
    await keeper.adopt(found, Background(Shells(), crew))
    return found.lease


async def is_free(database: Database) -> bool:
    (session,) = await rows(database, "SELECT owner FROM sessions")
    return session["owner"] is None


async def test_a_session_that_is_kept_for_subagents_of_a_parked_run_is_let_go_with_their_end(
    database: Database,
) -> None:
    lease = (await launched(database)).lease
    await park(database, lease, ["act_1"])
    async with kept_by_b(database) as keeper:
        await adopted(database, keeper)
        await until(lambda: is_free(database), within_s=5)
        assert (keeper.crews, keeper.leases()) == ([], [])
        assert await take_orphans(database, B) is None
        assert await claims.claim(database, A) is None
    assert (await child_row(database))["is_untold"]
    await database.raw.execute("UPDATE runs SET is_parked = false WHERE is_parked")
    taken = await claims.claim(database, A)
    assert taken is not None
    assert taken.lease.run_id == lease.run_id


async def test_an_end_waits_untold_while_its_session_is_archived(database: Database) -> None:
    claim = await launched(database)
    await append(database, claim.lease, last_batch(claim))
    async with kept_by_b(database) as keeper:
        await database.raw.execute("UPDATE sessions SET archived_at = now()")
        await adopted(database, keeper)
        await until(lambda: is_free(database), within_s=5)
        assert await take_orphans(database, B) is None
        await database.raw.execute("UPDATE sessions SET archived_at = NULL")
        kept = await adopted(database, keeper)
        await until(lambda: is_free(database), within_s=5)
    queued = await rows(database, "SELECT parent_run_id FROM runs WHERE status = 'queued'")
    assert queued == [{"parent_run_id": kept.run_id}]
    assert await claims.claim(database, A) is not None


async def test_of_two_hosts_one_takes_the_orphans_of_a_session(database: Database) -> None:
    claim = await launched(database)
    await append(database, claim.lease, last_batch(claim))
    found = await asyncio.gather(*(take_orphans(database, host) for host in (A, B) * 4))
    (taken,) = [each for each in found if each is not None]
    (session,) = await rows(database, "SELECT owner, epoch FROM sessions")
    assert session["epoch"] == taken.lease.epoch == claim.lease.epoch + 1


async def test_a_host_that_stops_keeps_nothing_that_it_finds_late(database: Database) -> None:
    claim = await launched(database)
    await append(database, claim.lease, last_batch(claim))
    async with kept_by_b(database) as keeper:
        await keeper.close()
        await adopted(database, keeper)
        assert keeper.crews == []
        assert await is_free(database)
    assert (await child_row(database))["attempt"] == 0


@pytest.mark.parametrize("stored", ['{"from":"elsewhere"}', '{"max_budget_usd":"much"}'])
async def test_a_session_whose_options_cannot_be_read_is_kept_and_a_run_follows(
    database: Database, stored: str
) -> None:
    claim = await launched(database)
    await append(database, claim.lease, last_batch(claim))
    await database.raw.execute(
        "UPDATE runs SET options = $2::jsonb WHERE id = $1", claim.lease.run_id, stored
    )
    async with kept_by_b(database) as keeper:
        kept = await adopted(database, keeper)
        await until(lambda: is_free(database), within_s=5)
    assert (await child_row(database))["status"] == "finished"
    queued = await rows(database, "SELECT parent_run_id FROM runs WHERE status = 'queued'")
    assert queued == [{"parent_run_id": kept.run_id}]


async def test_a_session_tells_ends_of_its_own_alone(database: Database) -> None:
    lease, other = (await launched(database)).lease, await begun(database)
    await database.raw.execute(
        "UPDATE runs SET status = 'finished', is_untold = true WHERE id = $1", CHILD
    )
    await append(database, other.lease, Batch((note(other),), told=(CHILD,)))
    assert [found.run_id for found in await untold(database, *lease.session)] == [CHILD]
