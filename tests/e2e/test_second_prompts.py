"""A second prompt while a run goes on: it waits, is refused, takes over, or goes into the run."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import httpx
import pytest

from app.agent.broken_off import INTERRUPT_MARKER_TOOLS
from app.agent.draft import STEER_NOTICE
from app.domain.tools import ToolResult
from app.store.engine import Database
from app.store.words import MailArrived, Word
from app.tools.tool import Tool, ToolContext, ToolInput, tool
from tests.api.stage import problem
from tests.conftest import MakeSettings
from tests.e2e.test_replicas import check_session, events_of
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, host
from tests.runs.prompts import finished, messages, scripted
from tests.store.seeds import dice, rows

OK = scripted({"text": "ok"}, text="Then this.")
LATE = scripted({"blocks": [{"text": "late"}], "delay": 60})
"""Its answer comes when the model is told to hurry."""


@dataclass(slots=True)
class Door:
    """A read-only tool that is in a call until the door is opened."""

    is_in: asyncio.Event = field(default_factory=asyncio.Event)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    def tool(self) -> Tool[ToolInput]:
        async def look(_: ToolInput, __: ToolContext) -> ToolResult:
            self.is_in.set()
            await self.is_open.wait()
            return ToolResult("looked")

        make = tool(name="Door", description="Looks.", input_model=ToolInput, read_only=True)
        return make(look)

    async def entered(self) -> None:
        await asyncio.wait_for(self.is_in.wait(), 10)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two hosts on one database, each with the door."""

    a: Host
    b: Host
    door: Door
    api: MessagesApi
    mail: asyncio.Event
    """Set when A has heard from B that a prompt was sent into a run."""

    @property
    def database(self) -> Database:
        return self.a.service.database

    async def inside(self, *then: object, **options: Any) -> dict[str, Any]:
        """Start a run that is behind the door; afterwards it answers as told."""
        script = scripted({"tool": "Door"}, *(then or ({"text": "done"},)))
        body = {"prompt": script, "options": {"allowed_tools": ["Door"], **options}}
        run: dict[str, Any] = (await self.a.client.post("/v1/runs", json=body)).json()["run"]
        await self.door.entered()
        return run

    async def send(
        self, session_id: str, prompt: str = OK, *, to: Host | None = None, **body: Any
    ) -> httpx.Response:
        client = (to or self.b).client
        return await client.post(f"/v1/sessions/{session_id}/runs", json={"prompt": prompt, **body})

    async def runs(self, session_id: str) -> list[dict[str, Any]]:
        """The runs of a session, in the order in which they began."""
        page = await self.a.client.get(f"/v1/sessions/{session_id}/runs", params={"limit": 200})
        found: list[dict[str, Any]] = page.json()["data"]
        return sorted(found, key=lambda run: run["started_at"] or "~")

    async def quiet(self, session_id: str) -> list[dict[str, Any]]:
        """Wait until nothing is left to do; give the runs."""
        async with asyncio.timeout(30):
            while True:
                runs = await self.runs(session_id)
                if all(run["status"] == "finished" for run in runs):
                    return runs
                await asyncio.sleep(0.05)


@pytest.fixture
async def pair(make_settings: MakeSettings, messages_api: MessagesApi) -> AsyncIterator[Pair]:
    door = Door()
    async with AsyncExitStack() as stack:
        a, b = [
            await stack.enter_async_context(host(make_settings(), extra_tools=[door.tool()]))
            for _ in range(2)
        ]
        mail = asyncio.Event()

        def hear(word: Word) -> None:
            if isinstance(word, MailArrived):
                mail.set()

        a.service.controls.teller.bus.on_word(hear)
        yield Pair(a, b, door, messages_api, mail)
        door.is_open.set()


def said(transcript: list[dict[str, Any]]) -> list[str]:
    """The prompts in a transcript, as they were taken in."""
    return [m["message"]["content"] for m in transcript if m.get("isReplay")]


def message(text: str, uuid_: str | None = None) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, "uuid": uuid_}


# -- the four modes, each with its reply ------------------------------------------------------


async def test_queue_waits_its_turn(pair: Pair) -> None:
    first = await pair.inside()
    answer = await pair.send(first["session_id"])
    assert answer.status_code == 202
    body = answer.json()
    assert (body["run"]["status"], body["run"]["queue_position"]) == ("queued", 1)
    assert (body["session"]["queued_runs"], body["steered_into"]) == (1, None)
    pair.door.is_open.set()
    runs = await pair.quiet(first["session_id"])
    assert [run["id"] for run in runs] == [first["id"], body["run"]["id"]]
    assert [run["end_reason"] for run in runs] == ["completed"] * 2
    await check_session(pair.database, first["session_id"])


async def test_reject_is_409_and_stores_nothing(pair: Pair) -> None:
    first = await pair.inside()
    session = f"/v1/sessions/{first['session_id']}"
    before = (await pair.a.client.get(session)).json()
    answer = await pair.send(first["session_id"], on_busy="reject")
    found = problem(answer, 409, "session_busy")
    assert found["context"] == {"active_run_id": first["id"]}
    assert first["id"] in found["detail"]
    assert answer.headers["x-should-retry"] == "false"
    assert (await pair.a.client.get(session)).json() == before
    pair.door.is_open.set()
    await pair.quiet(first["session_id"])
    idle = await pair.send(first["session_id"], on_busy="reject")
    assert idle.status_code == 202
    await finished(pair.a.client, idle.json()["run"]["id"])


async def test_interrupt_takes_the_place_of_the_run_that_goes_on(pair: Pair) -> None:
    first = await pair.inside()
    session_id = first["session_id"]
    waiting = (await pair.send(session_id, scripted({"text": "w"}, text="I wait."))).json()["run"]
    answer = await pair.send(session_id, on_busy="interrupt")
    assert answer.status_code == 202
    taking = answer.json()["run"]
    assert taking["queue_position"] in {0, 1}
    assert answer.json()["steered_into"] is None
    runs = await pair.quiet(session_id)
    assert [run["id"] for run in runs] == [first["id"], taking["id"], waiting["id"]]
    assert [run["end_reason"] for run in runs] == ["superseded", "completed", "completed"]
    assert runs[0]["terminal_reason"] == "aborted_tools"
    assert not pair.door.is_open.is_set()
    asked = pair.api.bodies()[1]["messages"]
    assert [m["role"] for m in asked] == ["user", "assistant", "user"]
    assert [block["type"] for block in asked[2]["content"]] == ["tool_result", "text", "text"]
    assert asked[2]["content"][1]["text"] == INTERRUPT_MARKER_TOOLS
    await check_session(pair.database, session_id)


async def test_steer_goes_into_the_run_at_its_next_request(pair: Pair) -> None:
    first = await pair.inside()
    session_id = first["session_id"]
    chosen = str(uuid.uuid4())
    answer = await pair.b.client.post(
        f"/v1/sessions/{session_id}/runs",
        json={"messages": [message("Also blue.", chosen)], "on_busy": "steer"},
    )
    assert answer.status_code == 202
    body = answer.json()
    assert (body["steered_into"], body["run"]["id"]) == (first["id"], first["id"])
    assert body["links"]["run"] == answer.headers["location"] == f"/v1/runs/{first['id']}"
    again = await pair.a.client.post(
        f"/v1/sessions/{session_id}/runs",
        json={"messages": [message("Also blue.", chosen)], "on_busy": "steer"},
    )
    problem(again, 409, "id_taken")
    await asyncio.wait_for(pair.mail.wait(), 10)
    pair.door.is_open.set()
    (run,) = await pair.quiet(session_id)
    assert (run["end_reason"], run["num_turns"]) == ("completed", 2)
    asked = pair.api.bodies()[1]["messages"][-1]["content"]
    assert [block["type"] for block in asked] == ["tool_result", "text"]
    assert asked[1]["text"] == STEER_NOTICE + "Also blue."
    transcript = await messages(pair.a.client, session_id)
    assert said(transcript)[1:] == ["Also blue."]
    (result,) = [m for m in transcript if m["type"] == "result"]
    assert result["user_message_uuids"] == [chosen]
    kinds = await events_of(pair.a.client, run)
    assert kinds == ["run.queued", "run.started", "run.finished"]
    await check_session(pair.database, session_id)


@pytest.mark.parametrize("mode", ["queue", "reject", "interrupt", "steer"])
async def test_every_mode_starts_a_run_of_its_own_when_nothing_goes_on(
    pair: Pair, mode: str
) -> None:
    session = (await pair.a.client.post("/v1/sessions", json={})).json()["id"]
    for to in (pair.a, pair.b):
        answer = await pair.send(session, to=to, on_busy=mode, wait=20)
        assert answer.status_code == 200, answer.text
        assert answer.json()["steered_into"] is None
        assert answer.json()["run"]["end_reason"] == "completed"
    assert len(await pair.runs(session)) == 2


# -- steering: taken in once, by the run or by its own ----------------------------------------


async def test_a_steer_that_comes_too_late_makes_a_run_of_its_own(pair: Pair) -> None:
    body = {"prompt": LATE, "metadata": {"k": "v"}, "options": {"max_turns": 7}}
    first = (await pair.a.client.post("/v1/runs", json=body)).json()["run"]
    await pair.api.until(lambda: len(pair.api.requests) == 1)
    answer = await pair.send(first["session_id"], on_busy="steer")
    assert answer.json()["steered_into"] == first["id"]
    pair.api.hurry()
    own, last = sorted(await pair.quiet(first["session_id"]), key=lambda run: run["first_seq"])
    assert (own["id"], own["result"]["text"]) == (first["id"], "late")
    assert (last["end_reason"], last["result"]["text"]) == ("completed", "ok")
    assert (last["prompt"], last["metadata"]) == (OK, {"k": "v"})
    assert last["options"] == own["options"]
    transcript = await messages(pair.a.client, first["session_id"])
    assert said(transcript) == [LATE, OK]
    assert [m["type"] for m in transcript].count("result") == 2
    await check_session(pair.database, first["session_id"])


async def test_a_steer_that_the_turn_limit_leaves_over_starts_a_count_of_its_own(
    pair: Pair,
) -> None:
    first = await pair.inside({"tool": "Door"}, max_turns=1)
    again = scripted({"tool": "Door"}, {"text": "no"}, text="Go on.")
    answer = await pair.send(first["session_id"], again, on_busy="steer")
    assert answer.json()["steered_into"] == first["id"]
    pair.door.is_open.set()
    runs = await pair.quiet(first["session_id"])
    assert [run["result_subtype"] for run in runs] == ["error_max_turns"] * 2
    assert [run["num_turns"] for run in runs] == [1, 1]
    assert [run["prompt"] for run in runs][1] == again
    await check_session(pair.database, first["session_id"])


async def test_messages_after_the_first_are_sent_into_the_run_they_came_with(pair: Pair) -> None:
    door = scripted({"tool": "Door"}, {"text": "done"}, text="first")
    body = {
        "messages": [message(door), message("second"), message("third")],
        "options": {"allowed_tools": ["Door"]},
    }
    pair.door.is_open.set()
    session = (await pair.a.client.post("/v1/sessions", json={})).json()["id"]
    for path in ("/v1/runs", f"/v1/sessions/{session}/runs"):
        pair.api.requests.clear()
        answer = await pair.a.client.post(path, json=body | {"wait": 20})
        assert answer.status_code == 200, answer.text
        (run,) = await pair.runs(answer.json()["session"]["id"])
        assert (run["end_reason"], run["num_turns"], run["prompt"]) == ("completed", 2, door)
        one, two = (request["messages"] for request in pair.api.bodies())
        assert one[-1]["content"][-1]["text"] == door
        assert [block["type"] for block in two[-1]["content"]] == ["tool_result", "text", "text"]
        assert [block["text"] for block in two[-1]["content"][1:]] == [
            STEER_NOTICE + "second",
            STEER_NOTICE + "third",
        ]
        await check_session(pair.database, run["session_id"])


async def test_a_waiting_run_with_several_messages_does_not_hold_up_the_one_before_it(
    pair: Pair,
) -> None:
    first = await pair.inside()
    door = scripted({"tool": "Door"}, {"text": "done"}, text="first")
    body = {
        "messages": [message(door), message("second")],
        "options": {"allowed_tools": ["Door"]},
    }
    path = f"/v1/sessions/{first['session_id']}/runs"
    waiting = (await pair.b.client.post(path, json=body)).json()["run"]
    changed = {"messages": [message(door), message("2nd"), message("3rd")]}
    assert (await pair.b.client.patch(f"/v1/runs/{waiting['id']}", json=changed)).status_code == 200
    pair.door.is_open.set()
    runs = await pair.quiet(first["session_id"])
    assert [run["id"] for run in runs] == [first["id"], waiting["id"]]
    assert [run["end_reason"] for run in runs] == ["completed"] * 2
    assert said(await messages(pair.a.client, first["session_id"]))[1:] == [door, "2nd", "3rd"]
    await check_session(pair.database, first["session_id"])


@pytest.mark.parametrize("waits", [False, True])
async def test_messages_that_no_request_could_take_in_make_runs_of_their_own(
    pair: Pair, *, waits: bool
) -> None:
    first = await pair.inside() if waits else None
    words = [scripted({"text": f"answer {n}"}, text=f"prompt {n}") for n in range(3)]
    body = {"messages": [message(text) for text in words]}
    path = f"/v1/sessions/{first['session_id']}/runs" if first else "/v1/runs"
    new = (await pair.b.client.post(path, json=body)).json()["run"]
    pair.door.is_open.set()
    async with asyncio.timeout(20):
        runs: list[dict[str, Any]] = []
        while len(runs) < 3 + waits or not all(run["status"] == "finished" for run in runs):
            runs = await pair.runs(new["session_id"])
            await asyncio.sleep(0.05)
    assert [run["prompt"] for run in runs[waits:]] == words
    assert [run["result"]["text"] for run in runs[waits:]] == ["answer 0", "answer 1", "answer 2"]
    assert said(await messages(pair.a.client, new["session_id"]))[waits:] == words
    await check_session(pair.database, new["session_id"])


async def test_a_removed_run_takes_its_further_messages_with_it(pair: Pair) -> None:
    first = await pair.inside()
    path = f"/v1/sessions/{first['session_id']}/runs"
    body = {"messages": [message("one"), message("two")]}
    waiting = (await pair.b.client.post(path, json=body)).json()["run"]
    assert (await pair.b.client.delete(f"/v1/runs/{waiting['id']}")).status_code == 200
    pair.door.is_open.set()
    runs = await pair.quiet(first["session_id"])
    assert sorted(run["end_reason"] for run in runs) == ["cancelled", "completed"]
    assert len(said(await messages(pair.a.client, first["session_id"]))) == 1
    await check_session(pair.database, first["session_id"])


async def test_a_steer_into_a_run_that_is_being_cancelled_makes_its_own(pair: Pair) -> None:
    first = await pair.inside()
    path = f"/v1/runs/{first['id']}/cancel"
    async with pair.database.begin() as connection:  # nobody is told, so it goes on for a while
        await connection.exec_driver_sql("UPDATE runs SET cancel_requested_at = clock_timestamp()")
    answer = await pair.send(first["session_id"], on_busy="steer")
    assert answer.json()["steered_into"] is None
    await pair.a.client.post(path, params={"wait": 20})
    runs = await pair.quiet(first["session_id"])
    assert [run["end_reason"] for run in runs] == ["cancelled", "completed"]


async def test_a_run_takes_so_many_steers_and_no_more(pair: Pair) -> None:
    first = await pair.inside()
    answers = [
        await pair.send(first["session_id"], f"steer {n}", to=pair.a, on_busy="steer")
        for n in range(21)
    ]
    assert [answer.status_code for answer in answers] == [202] * 20 + [429]
    problem(answers[-1], 429, "queue_full")
    pair.door.is_open.set()
    (run,) = await pair.quiet(first["session_id"])
    assert run["num_turns"] == 2
    steers = said(await messages(pair.a.client, first["session_id"]))[1:]
    assert steers == [f"steer {n}" for n in range(20)]


# -- interrupting -----------------------------------------------------------------------------


async def test_the_latest_interrupt_is_next_and_those_that_wait_stay(
    make_settings: MakeSettings,
) -> None:
    async with host(make_settings(), "api") as only_http:  # nobody drives anything
        new = {"prompt": "x", "priority": 5}
        run = (await only_http.client.post("/v1/runs", json=new)).json()["run"]
        path = f"/v1/sessions/{run['session_id']}/runs"
        ids = [run["id"]]
        for mode in ("interrupt", "queue", "interrupt", "steer"):
            answer = await only_http.client.post(path, json={"prompt": "x", "on_busy": mode})
            assert answer.json()["steered_into"] is None
            ids.append(answer.json()["run"]["id"])
        page = (await only_http.client.get(path, params={"status": "queued"})).json()["data"]
        order = sorted(page, key=lambda run: run["queue_position"])
        assert [ids.index(run["id"]) for run in order] == [3, 1, 0, 2, 4]
        assert [run["priority"] for run in order] == [7, 6, 5, 0, 0]
        refused = await only_http.client.post(path, json={"prompt": "x", "on_busy": "reject"})
        assert problem(refused, 409, "session_busy")["context"] == {"active_run_id": ids[3]}


async def test_an_interrupt_does_not_change_why_a_cancelled_run_ended(pair: Pair) -> None:
    first = await pair.inside()
    await pair.b.client.post(f"/v1/runs/{first['id']}/cancel", params={"wait": 0})
    answer = await pair.send(first["session_id"], on_busy="interrupt")
    assert answer.status_code == 202
    runs = await pair.quiet(first["session_id"])
    assert [run["end_reason"] for run in runs] == ["cancelled", "completed"]


# -- many at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_twenty_prompts_at_once_in_mixed_modes_keep_a_strict_order(
    pair: Pair, seed: int
) -> None:
    chance = dice(seed)
    pair.door.is_open.set()
    session = (await pair.a.client.post("/v1/sessions", json={})).json()["id"]
    clients = cycle((pair.a.client, pair.b.client))

    async def one(n: int) -> tuple[str, httpx.Response]:
        sent = str(uuid.uuid4())
        script = scripted({"tool": "Door"}, {"text": f"answer {n}"}, text=f"prompt {n}")
        body = {
            "messages": [message(script, sent)],
            "on_busy": chance.choice(["queue", "queue", "reject", "interrupt", "steer"]),
            "options": {"allowed_tools": ["Door"]},
        }
        client = next(clients)
        await asyncio.sleep(chance.random() * 0.3)  # spreads them over several runs
        return sent, await client.post(f"/v1/sessions/{session}/runs", json=body)

    answers = await asyncio.gather(*(one(n) for n in range(20)))
    assert {answer.status_code for _, answer in answers} <= {202, 409, 429}
    accepted = [sent for sent, answer in answers if answer.status_code == 202]
    runs = await pair.quiet(session)
    await check_session(pair.database, session)
    log = await rows(
        pair.database,
        "SELECT run_id, type, uuid FROM journal WHERE session_id = $1 ORDER BY seq",
        session,
    )
    await _never_mixed(log)
    entered = [row["uuid"] for row in log if row["uuid"] in accepted]
    cut_short = {
        row["uuid"]
        for row in await rows(pair.database, "SELECT uuid FROM inbox WHERE consumed_seq IS NULL")
    }
    assert sorted([*entered, *cut_short]) == sorted(accepted)
    assert {run["end_reason"] for run in runs} <= {"completed", "superseded"}
    (left,) = await rows(pair.database, "SELECT pending_steers, owner FROM sessions")
    assert (left["pending_steers"], left["owner"]) == (0, None)


async def _never_mixed(log: list[dict[str, Any]]) -> None:
    """Between a run's start and its end stand no rows of another one, but what clients asked of it."""
    inside: str | None = None
    for row in log:
        if row["type"] in {"session.created", "run.queued", "run.cancel_requested"}:
            continue
        if inside is None:
            assert row["type"] in {"run.started", "result"}, row
            inside = row["run_id"]
        assert row["run_id"] == inside
        if row["type"] == "run.finished":
            inside = None
    assert inside is None
