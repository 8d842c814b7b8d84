"""What two hosts do to one session at the same moment: one wins, the other is told why."""

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.store.engine import Database
from tests.conftest import MakeSettings
from tests.e2e.test_replicas import check_session
from tests.fakes.messages_api import MessagesApi
from tests.hosts import host
from tests.runs.prompts import scripted

TIMES = 8
"""How often each race is run: who wins is chance."""


@dataclass(frozen=True, slots=True)
class Two:
    a: httpx.AsyncClient
    b: httpx.AsyncClient
    database: Database
    model: MessagesApi

    async def session(self, *answers: str) -> tuple[str, list[str]]:
        """A session with a run for each answer; give it and the answers' uuids."""
        session_id = str((await self.a.post("/v1/sessions", json={})).json()["id"])
        for answer in answers:
            await self.prompt(self.a, session_id, answer, wait=20)
        page = await self.a.get(f"/v1/sessions/{session_id}/messages", params={"limit": 1000})
        said = [m["uuid"] for m in page.json()["data"] if m["type"] == "assistant"]
        return session_id, said

    async def prompt(
        self, client: httpx.AsyncClient, session_id: str, answer: str, **body: Any
    ) -> httpx.Response:
        return await client.post(
            f"/v1/sessions/{session_id}/runs",
            json={"prompt": scripted({"text": answer}), **body},
        )

    async def at_rest(self, session_id: str) -> dict[str, Any]:
        """Wait until nothing runs; give the session."""
        async with asyncio.timeout(20):
            while True:
                found: dict[str, Any] = (await self.b.get(f"/v1/sessions/{session_id}")).json()
                if not found["active_run_id"] and not found["queued_runs"]:
                    return found
                await asyncio.sleep(0.02)


@pytest.fixture
async def two(make_settings: MakeSettings, messages_api: MessagesApi) -> AsyncIterator[Two]:
    settings = make_settings()
    async with host(settings) as a, host(settings) as b:
        yield Two(a.client, b.client, a.service.database, messages_api)


def told(answer: httpx.Response) -> str:
    """The status, or the code of the problem."""
    return str(answer.json()["code"]) if answer.is_error else str(answer.status_code)


async def together(*sent: Awaitable[httpx.Response]) -> list[str]:
    answers = await asyncio.gather(*sent)
    assert all(answer.status_code < 500 for answer in answers), [a.text for a in answers]
    return [told(answer) for answer in answers]


@pytest.mark.requirement("sessions:races")
async def test_a_session_is_prompted_or_archived_and_never_both(two: Two) -> None:
    seen: Counter[tuple[str, ...]] = Counter()
    for _ in range(TIMES):
        session_id, _ = await two.session("one")
        seen[
            tuple(
                await together(
                    two.prompt(two.a, session_id, "two"),
                    two.b.post(f"/v1/sessions/{session_id}/archive"),
                )
            )
        ] += 1
        kept = await two.at_rest(session_id)
        assert kept["num_runs"] == (1 if kept["status"] == "archived" else 2) or seen["202", "200"]
        await check_session(two.database, session_id)
    # 202 and 200: the run had ended when the archive came.
    assert set(seen) <= {
        ("202", "session_busy"),
        ("session_archived", "200"),
        ("202", "200"),
    }, seen


@pytest.mark.requirement("sessions:races")
async def test_a_run_sees_the_conversation_before_or_after_a_rewind_whole(two: Two) -> None:
    for _ in range(TIMES):
        session_id, (one, _) = await two.session("one", "two")
        before = len(two.model.bodies())
        prompted, rewound = await together(
            two.prompt(two.a, session_id, "three"),
            two.b.post(f"/v1/sessions/{session_id}/rewind", json={"at_message": one}),
        )
        assert prompted == "202"
        assert rewound in {"200", "session_busy"}
        await two.at_rest(session_id)
        (asked,) = two.model.bodies()[before:]
        said = [
            block["text"]
            for message in asked["messages"]
            if message["role"] == "assistant"
            for block in message["content"]
        ]
        # A rewind that came after the run's end changes nothing of what the run was told.
        assert said in ([["one"], ["one", "two"]] if rewound == "200" else [["one", "two"]])
        await check_session(two.database, session_id)


@pytest.mark.requirement("sessions:races")
async def test_of_two_rewinds_the_earlier_message_is_where_the_conversation_ends(two: Two) -> None:
    for _ in range(TIMES):
        session_id, (one, later, _) = await two.session("one", "two", "three")
        path = f"/v1/sessions/{session_id}/rewind"
        first, second = await together(
            two.a.post(path, json={"at_message": one}),
            two.b.post(path, json={"at_message": later}),
        )
        assert first == "200"
        assert second in {"200", "validation_failed"}
        found = (await two.a.get(f"/v1/sessions/{session_id}")).json()
        assert found["last_message_uuid"] == one
        await check_session(two.database, session_id)


@pytest.mark.requirement("sessions:races")
async def test_an_id_is_given_once_and_a_version_is_edited_once(two: Two) -> None:
    session_id, _ = await two.session("one")
    path = f"/v1/sessions/{session_id}"
    for _ in range(TIMES):
        own = {"id": str(uuid.uuid4())}
        forks = (client.post(f"{path}/fork", json=own) for client in (two.a, two.b))
        assert sorted(await together(*forks)) == ["201", "id_taken"]
        seen = {"If-Match": (await two.a.get(path)).json()["etag"]}
        edits = (
            client.patch(path, json={"title": str(uuid.uuid4())}, headers=seen)
            for client in (two.a, two.b)
        )
        assert sorted(await together(*edits)) == ["200", "version_conflict"]


@pytest.mark.requirement("sessions:races")
async def test_a_file_that_is_imported_twice_at_once_makes_two_sessions(two: Two) -> None:
    for _ in range(TIMES):
        own = str(uuid.uuid4())
        said = {"role": "user", "content": "x"}
        file = json.dumps(
            {
                "type": "user",
                "uuid": str(uuid.uuid4()),
                "sessionId": own,
                "timestamp": "2026-11-30T12:00:00Z",
                "message": said,
            }
        )
        answers = await asyncio.gather(
            *(
                client.post("/v1/sessions/import", content=file.encode())
                for client in (two.a, two.b)
            )
        )
        assert [answer.status_code for answer in answers] == [201, 201]
        ids = {answer.json()["id"] for answer in answers}
        assert len(ids) == 2
        assert own in ids


@pytest.mark.requirement("sessions:races")
@pytest.mark.requirement("sessions:continue")
async def test_two_hosts_that_continue_where_there_is_nothing_make_one_session(two: Two) -> None:
    for _ in range(TIMES):
        body = {
            "prompt": "x",
            "continue_conversation": True,
            "session": {"user": str(uuid.uuid4())},
        }
        answers = await asyncio.gather(
            *(client.post("/v1/runs", json=body) for client in (two.a, two.b, two.a, two.b))
        )
        assert {answer.status_code for answer in answers} == {202}
        (session_id,) = {answer.json()["session"]["id"] for answer in answers}
        await two.at_rest(session_id)
        await check_session(two.database, session_id)
