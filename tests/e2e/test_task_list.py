"""The agent's list of what is to be done: kept for the session, whoever drives it."""

from typing import Any

import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_replicas import results_of
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, host
from tests.runs.prompts import finished, messages, scripted, start

Json = dict[str, Any]


def create(subject: str, **given: object) -> Json:
    return {"tool": "TaskCreate", "input": {"subject": subject, **given}}


@pytest.mark.requirement("tools:tasks")
async def test_the_list_survives_a_move_and_a_fork_and_is_read_over_http(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    async with host(make_settings()) as a, host(make_settings()) as b:
        blocked = {"taskId": "2", "addBlockedBy": ["1"], "owner": "bob", "metadata": {"k": 1}}
        run = await start(
            a.client,
            scripted(
                create("look", description="read it all", activeForm="Looking"),
                create("leap"),
                create("rest"),
                {"tool": "TaskUpdate", "input": blocked},
                {"tool": "TaskUpdate", "input": {"taskId": "3", "status": "deleted"}},
                {"text": "planned"},
            ),
        )
        session_id = run["session_id"]
        await finished(a.client, run["id"])
        listed = (await b.client.get(f"/v1/sessions/{session_id}/tasks")).json()["data"]
        assert listed == [
            {
                "id": "1",
                "subject": "look",
                "description": "read it all",
                "active_form": "Looking",
                "status": "pending",
                "owner": None,
                "blocks": ["2"],
                "blocked_by": [],
                "metadata": {},
            },
            {
                "id": "2",
                "subject": "leap",
                "description": "leap",
                "active_form": None,
                "status": "pending",
                "owner": "bob",
                "blocks": [],
                "blocked_by": ["1"],
                "metadata": {"k": 1},
            },
        ]
        fork = (await b.client.post(f"/v1/sessions/{session_id}/fork", json={})).json()["id"]
        again = await start(
            b.client,
            scripted(
                {"tool": "TaskUpdate", "input": {"taskId": "1", "status": "completed"}},
                create("land"),
                {"tool": "TaskList", "input": {}},
                {"text": "seen"},
            ),
            session_id=fork,
        )
        await finished(b.client, again["id"])
        assert results_of(await messages(b.client, fork))[-1] == (
            "#1 [completed] look\n#2 [pending] leap (bob)\n#4 [pending] land"
        )
        assert (await a.client.get(f"/v1/sessions/{session_id}/tasks")).json()["data"] == listed


@pytest.mark.requirement("tools:tasks")
async def test_the_list_survives_a_compaction_and_a_resume_on_another_host(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    async with host(make_settings()) as a, host(make_settings()) as b:
        update = {"tool": "TaskUpdate", "input": {"taskId": "1", "status": "in_progress"}}
        steps = [create("look"), create("leap"), update, {"text": "planned"}]
        run = await start(a.client, scripted(*steps))
        await finished(a.client, run["id"])
        session_id = run["session_id"]
        before = (await a.client.get(f"/v1/sessions/{session_id}/tasks")).json()
        for client in (b.client, a.client):  # the second one folds from the first one's summary
            compacted = await client.post(f"/v1/sessions/{session_id}/compact", json={})
            assert (await finished(client, compacted.json()["run"]["id"]))["status"] == "finished"
            seen = {"tool": "TaskList", "input": {}}
            again = await start(client, scripted(seen, {"text": "seen"}), session_id=session_id)
            await finished(client, again["id"])
            told = results_of(await messages(client, session_id))
            assert told[-1] == "#1 [in_progress] look\n#2 [pending] leap"
        assert "Task #2 is on the list" not in str(messages_api.bodies()[-1]["messages"])
        boundaries = [m.get("subtype") for m in await messages(a.client, session_id)]
        assert boundaries.count("compact_boundary") == 2
        assert (await b.client.get(f"/v1/sessions/{session_id}/tasks")).json() == before
        last = await start(b.client, scripted(create("land"), {"text": "x"}), session_id=session_id)
        await finished(b.client, last["id"])
        tasks = (await a.client.get(f"/v1/sessions/{session_id}/tasks")).json()["data"]
        assert [task["id"] for task in tasks] == ["1", "2", "3"]


async def test_a_session_without_a_list_has_an_empty_one_and_an_unknown_one_none(
    service: Host,
) -> None:
    session_id = (await service.client.post("/v1/sessions", json={})).json()["id"]
    assert (await service.client.get(f"/v1/sessions/{session_id}/tasks")).json() == {"data": []}
    assert (await service.client.get("/v1/sessions/nope/tasks")).status_code == 404
