"""What sessions are found and kept by: title, tags, metadata, user, archive."""

import asyncio
import uuid
from typing import Any

import pytest

from tests.api.stage import RANDOM_SESSION, Stage, pointers, problem, scripted
from tests.store.seeds import rows, until

SLOW = scripted({"blocks": [{"text": "late"}], "delay": 20})


async def changed(stage: Stage, session_id: str, **body: Any) -> dict[str, Any]:
    answer = await stage.client.patch(f"/v1/sessions/{session_id}", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == found["etag"]
    return found


async def ids(stage: Stage, **query: Any) -> set[str]:
    answer = await stage.client.get("/v1/sessions", params={"limit": 200, **query})
    assert answer.status_code == 200, answer.text
    return {session["id"] for session in answer.json()["data"]}


async def service_events(stage: Stage, session_id: str) -> list[dict[str, Any]]:
    answer = await stage.client.get(f"/v1/sessions/{session_id}/events", params={"limit": 1000})
    return [entry["data"] for entry in answer.json()["data"] if entry["kind"] == "service"]


@pytest.mark.requirement("sessions:edit")
async def test_an_edit_changes_what_it_names_and_leaves_the_rest(stage: Stage) -> None:
    made = await stage.session(
        title="old", tags=["a", "b", "a"], metadata={"x": "1", "y": "2"}, user="u"
    )
    assert (made["tags"], made["user"], made["etag"]) == (["a", "b"], "u", '"1"')
    found = await changed(stage, made["id"], metadata={"x": None, "z": "3"})
    assert (found["metadata"], found["title"], found["tags"]) == (
        {"y": "2", "z": "3"},
        "old",
        ["a", "b"],
    )
    found = await changed(stage, made["id"], title="new", tags=["c"], options={"max_turns": 3})
    assert (found["title"], found["tags"], found["options"]) == ("new", ["c"], {"max_turns": 3})
    assert (await changed(stage, made["id"], title=None))["title"] is None
    again = await changed(stage, made["id"])
    assert again["etag"] == '"4"'
    said = [e for e in await service_events(stage, made["id"]) if e["type"] == "session.updated"]
    assert [event["changed"] for event in said] == [
        ["metadata"],
        ["title", "options", "tags"],
        ["title"],
    ]
    run = await stage.client.post(
        f"/v1/sessions/{made['id']}/runs", json={"prompt": "x", "wait": 20}
    )
    assert run.json()["run"]["options"]["max_turns"] == 3


@pytest.mark.requirement("sessions:edit")
async def test_an_edit_that_nobody_may_make_names_the_field(stage: Stage) -> None:
    session = (await stage.session(metadata={str(n): "" for n in range(50)}))["id"]
    for body, pointer in (
        ({"metadata": {"one more": ""}}, "/metadata"),
        ({"title": "x" * 501}, "/title"),
        ({"tags": ["x"] * 51}, "/tags"),
        ({"tags": [""]}, "/tags/0"),
        ({"archived": "yes"}, "/archived"),
        ({"user": "u"}, "/user"),
        ({"options": {"max_turns": 0}}, "/options/max_turns"),
        ({"options": {"permission_mode": "bypassPermissions"}}, "/options/permission_mode"),
    ):
        answer = await stage.client.patch(f"/v1/sessions/{session}", json=body)
        assert pointers(problem(answer, 422, "validation_failed")) == [pointer], body
    assert (await stage.client.get(f"/v1/sessions/{session}")).json()["etag"] == '"1"'


@pytest.mark.requirement("sessions:edit")
async def test_of_two_edits_of_one_version_the_second_is_refused(stage: Stage) -> None:
    made = await stage.session()
    path, seen = f"/v1/sessions/{made['id']}", {"If-Match": made["etag"]}
    answers = await asyncio.gather(
        *(stage.client.patch(path, json={"title": t}, headers=seen) for t in ("a", "b"))
    )
    won, lost = sorted(answers, key=lambda answer: answer.status_code)
    assert won.status_code == 200
    assert problem(lost, 409, "version_conflict")["context"] == {"version": 2}
    assert (await stage.client.get(path)).headers["etag"] == won.headers["etag"] == '"2"'
    await stage.client.post(f"{path}/runs", json={"prompt": "the log has no part in it", "wait": 9})
    again = await stage.client.patch(path, json={"title": "c"}, headers={"If-Match": '"2"'})
    assert again.status_code == 200
    odd = await stage.client.patch(path, json={"title": "d"}, headers={"If-Match": "2"})
    problem(odd, 400, "invalid_request")


@pytest.mark.requirement("sessions:lists")
async def test_lists_are_filtered_by_whatever_a_session_is_kept_by(stage: Stage) -> None:
    user = f"u-{uuid.uuid4()}"
    a = (await stage.session(user=user, tags=["ci", "x"], metadata={"k": "1", "l": "2"}))["id"]
    b = (await stage.session(user=user, tags=["night"], metadata={"k": "1"}))["id"]
    c = (await stage.session(user=user))["id"]
    assert await ids(stage, user=user) == {a, b, c}
    assert await ids(stage, user=user, tag=["ci", "night"]) == {a, b}
    assert await ids(stage, user=user, tag="x") == {a}
    assert await ids(stage, user=user, **{"metadata[k]": "1"}) == {a, b}
    assert await ids(stage, user=user, **{"metadata[k]": "1", "metadata[l]": "2"}) == {a}
    await changed(stage, c, archived=True)
    assert await ids(stage, user=user) == {a, b}
    assert await ids(stage, user=user, archived="true") == {c}
    assert await ids(stage, user=user, status="archived") == {c}
    assert await ids(stage, user=user, status="idle") == {a, b}
    assert await ids(stage, user=user, status=["archived", "idle"]) == {a, b, c}
    assert await ids(stage, user=user, status=["running", "requires_action"]) == set()
    page = await stage.client.get("/v1/sessions", params={"user": user, "limit": 1})
    other = {"cursor": page.json()["next_cursor"], "tag": "x"}
    problem(await stage.client.get("/v1/sessions", params=other), 400, "cursor_invalid")
    odd = await stage.client.get("/v1/sessions", params={"metadata": "k"})
    problem(odd, 422, "validation_failed")


@pytest.mark.requirement("sessions:archive")
async def test_an_archived_session_can_be_read_and_forked_and_nothing_else(stage: Stage) -> None:
    run = await stage.run()
    path = f"/v1/sessions/{run['session_id']}"
    message = (await stage.client.get(f"{path}/messages")).json()["data"][1]["uuid"]
    for _ in range(2):
        answer = await stage.client.post(f"{path}/archive")
        assert (answer.status_code, answer.json()["status"]) == (200, "archived")
    assert answer.json()["archived_at"]
    for method, where, body in (
        ("POST", "/runs", {"prompt": "x"}),
        ("POST", "/runs", {"prompt": "x", "on_busy": "reject"}),
        ("POST", "/runs", {"prompt": "x", "on_busy": "steer"}),
        ("POST", "/runs", {"prompt": "x", "resume_at": message}),
        ("POST", "/rewind", {"at_message": message}),
        ("PATCH", "", {"title": "x"}),
        ("PATCH", "", {"tags": ["x"], "archived": True}),
    ):
        refused = await stage.client.request(method, f"{path}{where}", json=body)
        problem(refused, 409, "session_archived")
    assert (await stage.client.get(f"{path}/messages")).status_code == 200
    copy = await stage.client.post(f"{path}/fork")
    assert copy.headers["location"] == f"/v1/sessions/{copy.json()['id']}"
    assert (copy.status_code, copy.json()["status"]) == (201, "idle")
    both = await changed(stage, run["session_id"], archived=False, title="again")
    assert (both["status"], both["title"], both["archived_at"]) == ("idle", "again", None)
    assert (await stage.client.post(f"{path}/archive")).json()["status"] == "archived"
    assert (await stage.client.post(f"{path}/unarchive")).json()["status"] == "idle"
    said = [e["type"] for e in await service_events(stage, run["session_id"])][4:]
    assert said == [
        *("session.archived", "session.updated"),
        *("session.archived", "session.updated"),
    ]
    done = await stage.client.post(f"{path}/runs", json={"prompt": "x", "wait": 20})
    assert done.json()["run"]["result_subtype"] == "success"


@pytest.mark.requirement("sessions:busy")
async def test_what_needs_a_session_at_rest_is_refused_while_runs_are_unfinished(
    stage: Stage,
) -> None:
    run = await stage.run()
    path = f"/v1/sessions/{run['session_id']}"
    message = (await stage.client.get(f"{path}/messages")).json()["data"][1]["uuid"]
    going = (await stage.client.post(f"{path}/runs", json={"prompt": SLOW})).json()["run"]["id"]
    waiting = (await stage.client.post(f"{path}/runs", json={"prompt": "w"})).json()["run"]["id"]

    async def refused() -> set[str]:
        named = set()
        for method, where, body in (
            ("POST", "/archive", None),
            ("PATCH", "", {"archived": True}),
            ("POST", "/rewind", {"at_message": message}),
            ("POST", "/runs", {"prompt": "x", "resume_at": message}),
            ("POST", "/runs", {"prompt": "x", "resume_at": message, "on_busy": "interrupt"}),
        ):
            answer = await stage.client.request(method, f"{path}{where}", json=body)
            named.add(problem(answer, 409, "session_busy")["context"]["active_run_id"])
        return named

    assert await refused() == {going}
    forked = problem(await stage.client.post(f"{path}/fork"), 409, "session_busy")
    assert forked["context"]["active_run_id"] == going
    at = {"at_message": forked["context"]["last_message_uuid"]}
    copy = await stage.client.post(f"{path}/fork", json=at)
    assert copy.status_code == 201
    assert copy.json()["last_message_uuid"] == at["at_message"]
    # Titles may change meanwhile.
    assert (await changed(stage, run["session_id"], title="busy"))["title"] == "busy"
    for run_id in (going, waiting):
        await stage.client.post(f"/v1/runs/{run_id}/cancel", params={"wait": 20})
    assert (await stage.client.post(f"{path}/fork")).status_code == 201
    assert (await stage.client.post(f"{path}/archive")).status_code == 200


@pytest.mark.requirement("sessions:busy")
async def test_a_run_that_only_waits_keeps_a_session_from_the_archive(stage: Stage) -> None:
    session = (await stage.session())["id"]
    await stage.host.service.database.raw.execute(
        "UPDATE sessions SET owner = 'elsewhere', lease_expires_at = now() + interval '9 s' "
        "WHERE id = $1",
        session,
    )
    path = f"/v1/sessions/{session}"
    waiting = (await stage.client.post(f"{path}/runs", json={"prompt": "w"})).json()["run"]
    assert waiting["status"] == "queued"
    found = problem(await stage.client.post(f"{path}/archive"), 409, "session_busy")
    assert found["context"] == {"active_run_id": waiting["id"]}
    assert (await stage.client.delete(f"/v1/runs/{waiting['id']}")).status_code == 200
    assert (await stage.client.post(f"{path}/archive")).status_code == 200


async def test_unknown_sessions_are_404_for_every_change(stage: Stage) -> None:
    path = f"/v1/sessions/{RANDOM_SESSION}"
    for method, where, body in (
        ("PATCH", "", {"title": "x"}),
        ("POST", "/archive", None),
        ("POST", "/unarchive", None),
        ("POST", "/rewind", {"at_message": RANDOM_SESSION}),
        ("POST", "/runs", {"prompt": "x", "resume_at": RANDOM_SESSION}),
    ):
        answer = await stage.client.request(method, f"{path}{where}", json=body)
        problem(answer, 404, "not_found")


async def test_a_session_that_is_archived_is_let_go_once_nothing_runs_in_its_background(
    stage: Stage,
) -> None:
    waits = "while [ ! -e go ]; do sleep 0.05; done"
    begun = {"tool": "Bash", "input": {"command": waits, "run_in_background": True}}
    folder = stage.root / uuid.uuid4().hex
    folder.mkdir(mode=0o777)
    run = await stage.run(
        scripted(begun, {"text": "left"}),
        options={"allowed_tools": ["Bash"]},
        workspace={"source": "directory", "path": str(folder)},
    )
    path, database = f"/v1/sessions/{run['session_id']}", stage.host.service.database

    async def is_kept() -> bool:
        (row,) = await rows(database, "SELECT owner FROM sessions WHERE id = $1", run["session_id"])
        return row["owner"] is not None

    async def is_let_go() -> bool:
        return not await is_kept()

    assert await is_kept()
    assert (await stage.client.post(f"{path}/archive")).status_code == 200
    (folder / "go").touch()
    await until(is_let_go)
    assert (await stage.client.post(f"{path}/unarchive")).status_code == 200
    later = await stage.client.post(f"{path}/runs", json={"prompt": "x", "wait": 20})
    assert later.json()["run"]["result_subtype"] == "success"
    transcript = (await stage.client.get(f"{path}/messages")).json()["data"]
    ends = [m["status"] for m in transcript if m.get("subtype") == "task_notification"]
    assert len(ends) == 1
