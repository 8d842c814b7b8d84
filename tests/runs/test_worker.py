"""The worker of a host: slots, its own lost leases, and failures of parts that are no database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn

import pytest

from app.agent.effects import Effects, Inbox
from app.agent.results import LOST_TEXT
from app.agent.state import RunInfo
from app.domain.briefing import Briefing
from app.domain.model import Hear, ModelRequest, ModelResponse, StreamPart, unheard
from app.domain.options import AgentOptions
from app.domain.tools import ToolResult, ToolSpec
from app.domain.usage import Usage
from app.runs.background import Background
from app.runs.beside import Yard
from app.runs.crew import Crew
from app.runs.desk import Desk, WaitingRules
from app.runs.execute import Execution
from app.runs.live import Hub
from app.store import leases
from app.store.bus import Bus
from app.store.claims import Claim
from app.store.engine import Database
from app.store.group_commit import GroupCommit
from app.store.leases import Lease
from app.store.runs import Work, marks_of_options
from app.tools.shells import Shells
from app.tools.tool import Tool, ToolContext, ToolInput, tool
from tests.conftest import MakeSettings
from tests.fakes.effects import MODEL, effects, response, text
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, host
from tests.runs.prompts import finished, scripted, start
from tests.store.seeds import RealStamps, begun, rows, until


@dataclass(slots=True)
class Gate:
    """A tool whose first call waits until it is stopped; later ones end at once."""

    calls: int = 0
    stopped: int = 0
    is_in: asyncio.Event = field(default_factory=asyncio.Event)

    def tool(self, *, read_only: bool) -> Tool[ToolInput]:
        async def hold(_: ToolInput, __: ToolContext) -> ToolResult:
            self.calls += 1
            if self.calls == 1:
                self.is_in.set()
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    self.stopped += 1
            return ToolResult("passed")

        make = tool(name="Hold", description="Waits.", input_model=ToolInput, read_only=read_only)
        return make(hold)


async def test_many_prompts_at_once_never_take_more_slots_than_there_are(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    async with host(make_settings(engine={"max_runs": 2})) as service:
        prompt = scripted({"text": "done", "delay": 0.1})
        runs = await asyncio.gather(*(start(service.client, prompt) for _ in range(8)))
        for run in runs:
            assert (await finished(service.client, run["id"]))["result_subtype"] == "success"
    times = [(r.started, 1) for r in messages_api.requests]
    times += [(r.ended or 0.0, -1) for r in messages_api.requests]
    running, most = 0, 0
    for _, change in sorted(times):
        running += change
        most = max(most, running)
    assert (len(messages_api.requests), most) == (8, 2)


@pytest.mark.parametrize("is_read_only", [False, True])
async def test_a_host_that_takes_its_own_run_again_stops_its_older_attempt(
    make_settings: MakeSettings, database: Database, is_read_only: bool
) -> None:
    gate = Gate()
    slow_heart = make_settings(engine={"lease_s": 60.0, "heartbeat_s": 30.0, "poll_s": 0.1})
    async with host(slow_heart, extra_tools=[gate.tool(read_only=is_read_only)]) as service:
        prompt = scripted({"tool": "Hold"}, {"text": "done"})
        run = await start(service.client, prompt, allowed_tools=["Hold"])
        await asyncio.wait_for(gate.is_in.wait(), 10)
        await database.raw.execute("UPDATE sessions SET lease_expires_at = now()")
        ended = await finished(service.client, run["id"])
        assert (ended["result_subtype"], ended["attempt"]) == ("success", 2)
        assert (gate.calls, gate.stopped) == ((2, 1) if is_read_only else (1, 1))

        async def is_idle() -> bool:
            return service.service.worker is not None and service.service.worker.running == 0

        await until(is_idle)
    results = await rows(database, "SELECT body FROM journal WHERE body LIKE '%tool_result\"%'")
    assert len(results) == 1
    assert ("passed" if is_read_only else LOST_TEXT) in results[0]["body"]
    ends = await rows(database, "SELECT count(*) AS n FROM journal WHERE type = 'result'")
    assert ends == [{"n": 1}]


async def test_a_host_on_its_way_out_takes_no_run_but_accepts_it_for_others(
    make_settings: MakeSettings,
) -> None:
    async with host(make_settings()) as leaving:
        await leaving.service.drain()
        run = await start(leaving.client, scripted({"text": "done"}))
        assert run["status"] == "queued"
        async with host(make_settings()) as staying:
            ended = await finished(staying.client, run["id"])
    assert (ended["result_subtype"], ended["attempt"]) == ("success", 1)


async def test_a_host_that_only_serves_leaves_runs_to_workers(make_settings: MakeSettings) -> None:
    async with host(make_settings(), "api") as api:
        run = await start(api.client, scripted({"text": "done"}))
        assert run["status"] == "queued"
        async with host(make_settings()):
            assert (await finished(api.client, run["id"]))["result_subtype"] == "success"


async def test_three_hosts_lost_without_progress_end_a_run_as_lost(
    service: Host, database: Database
) -> None:
    worker = service.service.worker
    assert worker is not None
    created = await service.client.post("/v1/sessions", json={})
    session_id = created.json()["id"]
    await database.raw.execute(
        "UPDATE sessions SET owner = 'gone', lease_expires_at = now() + interval '60 s'"
    )
    answer = await service.client.post(f"/v1/sessions/{session_id}/runs", json={"prompt": "x"})
    run_id = answer.json()["run"]["id"]
    await database.raw.execute(  # as three dead hosts leave it
        "UPDATE runs SET status = 'running', attempt = 3, stalled_attempts = 2,"
        " claim_seq = queued_seq, started_at = now()"
    )
    await database.raw.execute("UPDATE sessions SET lease_expires_at = now()")
    ended = await finished(service.client, run_id)
    assert (ended["result_subtype"], ended["end_reason"]) == (
        "error_during_execution",
        "worker_lost",
    )
    assert ended["attempt"] == 4


# -- one execution, with parts of the test's choice -------------------------------------------


class BrokenModel:
    """Fails like a broken disk, not like a database."""

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        hear(StreamPart({"type": "message_start"}, f"msg_{len(request.messages)}"))
        raise OSError(28, "No space left on device")


@dataclass(frozen=True, slots=True)
class BrokenParts:
    stamps: RealStamps = field(default_factory=RealStamps)

    def describe(self, lease: Lease, work: Work) -> RunInfo:
        options = AgentOptions.model_validate({"model": MODEL, **work.options})
        return RunInfo(lease.session_id, lease.run_id, options)

    async def first_look(
        self, info: RunInfo, work: Work
    ) -> tuple[Briefing, Sequence[ToolSpec]] | None:
        del info, work
        return Briefing(), ()

    @asynccontextmanager
    async def open(
        self, claim: Claim, work: Work, info: RunInfo, inbox: Inbox, shells: Shells, desk: Desk
    ) -> AsyncIterator[Effects]:
        del claim, work, info, inbox, shells, desk
        yield replace(effects(), model=BrokenModel())


class BoundlessModel:
    """Answers with a count that no column holds."""

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        del request, hear
        return response(text("hello"), usage=Usage(2**70, 1))


@dataclass(frozen=True, slots=True)
class ShutParts(BrokenParts):
    """Cannot be opened, for a reason that nobody thought of."""

    def open(
        self, claim: Claim, work: Work, info: RunInfo, inbox: Inbox, shells: Shells, desk: Desk
    ) -> NoReturn:
        del claim, work, info, inbox, shells, desk
        raise RuntimeError("shut")


@dataclass(frozen=True, slots=True)
class BoundlessParts(BrokenParts):
    @asynccontextmanager
    async def open(
        self, claim: Claim, work: Work, info: RunInfo, inbox: Inbox, shells: Shells, desk: Desk
    ) -> AsyncIterator[Effects]:
        del claim, work, info, inbox, shells, desk
        yield replace(effects(), model=BoundlessModel())


async def attempt(database: Database, claim: Claim, parts: BrokenParts) -> None:
    """Drive a run as its host would."""
    hub = Hub(database, Bus(database, "host_1"), 1.0, 100)
    host, appends = leases.Host("host_1", 30.0), GroupCommit(database)
    yard = Yard(host, database, hub, parts, appends, 3, WaitingRules(), 8)
    background = Background(Shells(), Crew(yard, claim.lease))
    async with asyncio.timeout(10):
        await Execution(claim, host, database, hub, parts, appends, 3, background).run()


async def test_what_the_database_can_never_take_ends_the_run_instead_of_being_tried_for_ever(
    database: Database,
) -> None:
    claim = await begun(database)
    await attempt(database, claim, BoundlessParts())
    (run,) = await rows(database, "SELECT status, end_reason FROM runs")
    assert run == {"status": "finished", "end_reason": "internal"}


@pytest.mark.parametrize("parts", [BrokenParts(), ShutParts()])
async def test_a_run_that_no_attempt_can_read_or_open_is_given_up(
    database: Database, parts: BrokenParts
) -> None:
    claim = replace(await begun(database), is_new_session=False)
    if not isinstance(parts, ShutParts):
        await database.raw.execute(
            """WITH s AS (UPDATE sessions SET last_seq = last_seq + 1 RETURNING tenant_id, id, last_seq)
               INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
               SELECT tenant_id, id, last_seq, $1, 'message', 'user', '{"type":"from elsewhere"}' FROM s""",
            claim.lease.run_id,
        )
    with pytest.raises(Exception, match=r"elsewhere|shut"):
        await attempt(database, claim, parts)
    lost = replace(claim, attempt=4, stalled_attempts=3, was_lost=True)
    await attempt(database, lost, parts)
    (run,) = await rows(database, "SELECT status, end_reason FROM runs")
    assert run == {"status": "finished", "end_reason": "worker_lost"}
    (ended,) = await rows(database, "SELECT count(*) AS n FROM journal WHERE type = 'result'")
    assert ended["n"] == 1


async def test_a_failure_that_is_no_outage_ends_the_run_once_instead_of_repeating_it(
    database: Database,
) -> None:
    claim = await begun(database)
    await attempt(database, claim, BrokenParts())
    (run,) = await rows(database, "SELECT status, end_reason FROM runs")
    assert run == {"status": "finished", "end_reason": "internal"}
    kinds = [row["type"] for row in await rows(database, "SELECT type FROM journal ORDER BY seq")]
    assert kinds.count("result") == 1
    assert kinds.count("system") == 1


async def test_options_whose_word_was_lost_are_found_by_a_heartbeat(
    make_settings: MakeSettings, database: Database
) -> None:
    is_in, may_end = asyncio.Event(), asyncio.Event()

    async def hold(_: ToolInput, __: ToolContext) -> ToolResult:
        is_in.set()
        await may_end.wait()
        return ToolResult("passed")

    held = tool(name="Hold", description="Waits.", input_model=ToolInput, read_only=True)(hold)
    settings = make_settings(engine={"heartbeat_s": 0.2, "poll_s": 0.1})
    async with host(settings, extra_tools=[held]) as service:
        prompt = scripted({"tool": "Hold"}, {"text": "done"})
        run = await start(service.client, prompt, allowed_tools=["Hold"])
        async with asyncio.timeout(10):
            await is_in.wait()
        await asyncio.sleep(0.5)  # heartbeats that find nothing new
        await database.raw.execute(
            """UPDATE runs SET options = jsonb_set(options, '{model}', '"claude-other"')"""
        )
        await asyncio.sleep(0.5)
        may_end.set()
        await finished(service.client, run["id"])
    told = await rows(database, "SELECT 1 FROM journal WHERE body LIKE '%Set model to%'")
    assert len(told) == 1


async def test_a_heartbeat_has_options_looked_up_only_when_they_are_others(
    database: Database,
) -> None:
    claim = await begun(database)
    marks = [(await marks_of_options(database, [claim.lease])).popitem() for _ in range(2)]
    await database.raw.execute("UPDATE runs SET status = 'running', num_turns = 7")
    marks.append((await marks_of_options(database, [claim.lease])).popitem())
    await database.raw.execute("UPDATE runs SET options = jsonb_set(options, '{model}', '\"m\"')")
    changed = (await marks_of_options(database, [claim.lease])).popitem()
    assert {key for key, _ in [*marks, changed]} == {(claim.lease.tenant_id, claim.lease.run_id)}
    same, other = marks[0][1], changed[1]
    assert [mark for _, mark in marks] == [same] * 3
    assert other != same

    hub = Hub(database, Bus(database, "host_1"), 1.0, 100)
    owner, appends = leases.Host("owner1", 30.0), GroupCommit(database)
    yard = Yard(owner, database, hub, BrokenParts(), appends, 3, WaitingRules(), 8)
    background = Background(Shells(), Crew(yard, claim.lease))
    execution = Execution(claim, owner, database, hub, yard.parts, appends, 3, background)
    looked = []
    for mark in (same, same, other, other, None):
        execution.options_are(mark)
        looked.append(execution._desk._has_news)
        execution._desk._has_news = False
    assert looked == [True, False, True, False, True]
