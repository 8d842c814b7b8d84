"""Starting runs: 202, 200 or a stream; ids that are taken."""

import uuid
from typing import Any

import pytest

from tests.api.stage import Stage, frames, pointers, problem, scripted

SLOW = scripted({"blocks": [{"text": "late"}], "delay": 20})


def message(text: str = "x", *, id_: str | None = None) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, "uuid": id_}


async def test_a_run_is_202_with_all_its_addresses(stage: Stage) -> None:
    answer = await stage.client.post("/v1/runs", json={"prompt": "x", "metadata": {"k": "v"}})
    assert answer.status_code == 202
    body = answer.json()
    run, session = body["run"], body["session"]
    assert answer.headers["location"] == f"/v1/runs/{run['id']}"
    assert body["links"] == {
        "run": f"/v1/runs/{run['id']}",
        "stream": f"/v1/runs/{run['id']}/stream",
        "events": f"/v1/sessions/{session['id']}/events?run_id={run['id']}",
        "session": f"/v1/sessions/{session['id']}",
    }
    for link in body["links"].values():
        assert (await stage.client.get(link)).status_code in {200, 204}
    assert run["metadata"] == {"k": "v"}
    assert uuid.UUID(session["id"]).version == 4


async def test_wait_gives_the_finished_run_or_202_when_the_time_is_over(stage: Stage) -> None:
    soon = await stage.client.post("/v1/runs", json={"prompt": "x", "wait": 20})
    assert (soon.status_code, soon.json()["run"]["status"]) == (200, "finished")
    late = await stage.client.post("/v1/runs", json={"prompt": SLOW, "wait": 1})
    assert (late.status_code, late.json()["run"]["status"]) == (202, "running")
    run = f"/v1/runs/{late.json()['run']['id']}"
    assert (await stage.client.get(run, params={"wait": 1})).json()["status"] == "running"
    stopped = await stage.client.post(
        f"{run}/cancel", params={"wait": 10}, json={"reason": "enough"}
    )
    assert (stopped.status_code, stopped.json()["status"]) == (200, "finished")
    again = await stage.client.post(f"{run}/cancel")
    assert (again.status_code, again.json()["already_finished"]) == (200, True)
    assert (await stage.client.get(run, params={"wait": 60})).json()["end_reason"] == "cancelled"


@pytest.mark.parametrize("wait", ["61", "-1", "x", "1.5"])
async def test_a_wait_out_of_bounds_is_422(stage: Stage, wait: str) -> None:
    answer = await stage.client.get("/v1/runs/none", params={"wait": wait})
    assert pointers(problem(answer, 422, "validation_failed")) == ["wait"]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"stream": True}, {}),
        ({}, {"accept": "text/event-stream"}),
        ({"stream": True, "wait": 5}, {"accept": "application/json"}),
    ],
)
async def test_a_run_can_be_answered_by_its_stream(
    stage: Stage, body: dict[str, Any], headers: dict[str, str]
) -> None:
    asked = {"prompt": "x", **body}
    async with stage.client.stream("POST", "/v1/runs", json=asked, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        run_id = answer.headers["x-run-id"]
        read = [frame async for frame in frames(answer)]
    events = [(frame.event, frame.json().get("type")) for frame in read if frame.event]
    assert events[0] == ("service", "run.queued")
    assert ("message", "result") in events
    assert read[-1].event == "end"
    assert read[-1].json()["run_id"] == run_id
    assert (await stage.client.get(f"/v1/runs/{run_id}")).json()["status"] == "finished"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/json, text/event-stream", "application/json"),
        ("application/json;q=0.5, text/event-stream", "text/event-stream; charset=utf-8"),
        ("text/event-stream;q=0, */*", "application/json"),
        ("application/json;q=0.1, application/x-ndjson", "application/x-ndjson; charset=utf-8"),
    ],
)
async def test_a_post_is_answered_in_the_form_liked_best(
    stage: Stage, accept: str, kind: str
) -> None:
    answer = await stage.client.post("/v1/runs", json={"prompt": "x"}, headers={"accept": accept})
    assert answer.headers["content-type"] == kind


async def test_a_file_that_is_not_stored_here_is_refused_by_name(stage: Stage) -> None:
    image = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    asked = {"messages": [{"message": {"content": [image]}}]}
    answer = await stage.client.post("/v1/runs", json=asked)
    assert "files are not stored here" in problem(answer, 422, "unsupported_option")["detail"]


async def test_what_is_wrong_is_said_before_a_stream_begins(stage: Stage) -> None:
    stream = {"accept": "text/event-stream"}
    for path, body, status, code in (
        ("/v1/runs", {"prompt": ""}, 422, "validation_failed"),
        ("/v1/runs", {"prompt": "x", "stream": True, "nope": 1}, 422, "validation_failed"),
        ("/v1/runs", {"prompt": "x", "options": {"hooks": {"a": 1}}}, 422, "unsupported_option"),
        ("/v1/sessions/none/runs", {"prompt": "x", "stream": True}, 404, "not_found"),
    ):
        problem(await stage.client.post(path, json=body, headers=stream), status, code)


async def test_a_session_can_be_created_with_its_first_run(stage: Stage) -> None:
    answer = await stage.client.post("/v1/sessions", json={"title": "t", "run": {"prompt": "x"}})
    assert answer.status_code == 201
    session = answer.json()
    assert answer.headers["location"] == f"/v1/sessions/{session['id']}"
    run = await stage.client.get(f"/v1/runs/{session['run']['id']}", params={"wait": 20})
    assert run.json()["result_subtype"] == "success"
    assert run.json()["session_id"] == session["id"]


async def test_messages_in_the_sdks_form_reach_the_model_as_they_are(stage: Stage) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    parts = [{"type": "text", "text": "look"}, {"type": "image", "source": image}]
    body = {
        "messages": [
            {
                "type": "user",
                "message": {"role": "user", "content": parts},
                "parent_tool_use_id": None,
                "session_id": "default",
            }
        ],
        "wait": 20,
    }
    answer = await stage.client.post("/v1/runs", json=body)
    assert answer.status_code == 200, answer.text
    sent = stage.model.bodies()[-1]["messages"][0]["content"][-2:]
    assert [part["type"] for part in sent] == ["text", "image"]
    assert sent[1]["source"] == image


async def test_a_message_that_was_sent_before_is_409_and_starts_nothing(stage: Stage) -> None:
    chosen = str(uuid.uuid4())
    first = await stage.client.post(
        "/v1/runs", json={"messages": [message(id_=chosen)], "wait": 20}
    )
    session = first.json()["session"]["id"]
    before = (await stage.client.get(f"/v1/sessions/{session}")).json()
    for body in (
        {"messages": [message(id_=chosen)]},
        {"messages": [message(), message(id_=chosen.upper())]},
    ):
        answer = await stage.client.post(f"/v1/sessions/{session}/runs", json=body)
        found = problem(answer, 409, "id_taken")
        assert pointers(found) == [f"/messages/{len(body['messages']) - 1}/uuid"]
        assert chosen in found["detail"]
        assert answer.headers["x-should-retry"] == "false"
    assert (await stage.client.get(f"/v1/sessions/{session}")).json() == before
    elsewhere = await stage.client.post("/v1/runs", json={"messages": [message(id_=chosen)]})
    assert elsewhere.status_code == 202
    page = (await stage.client.get(f"/v1/sessions/{session}/messages")).json()
    assert [m["uuid"] for m in page["data"] if m["type"] == "user"] == [chosen]


async def test_two_messages_of_one_body_cannot_share_a_uuid(stage: Stage) -> None:
    same = str(uuid.uuid4())
    body = {"messages": [message(id_=same), message(id_=same.upper())]}
    found = problem(await stage.client.post("/v1/runs", json=body), 422, "validation_failed")
    assert pointers(found) == ["/messages"]


@pytest.mark.parametrize(
    "chosen", ["", "x", "0" * 32, "g" * 8 + "-0000-4000-8000-000000000000", "{0}", "\n"]
)
async def test_an_id_that_is_no_uuid_is_422(stage: Stage, chosen: str) -> None:
    answer = await stage.client.post("/v1/sessions", json={"id": chosen})
    assert pointers(problem(answer, 422, "validation_failed")) == ["/id"]
    padded = str(uuid.uuid4()) + "\n"
    answer = await stage.client.post("/v1/sessions", json={"id": padded})
    assert pointers(problem(answer, 422, "validation_failed")) == ["/id"]


async def test_a_fork_can_begin_at_a_message_and_names_what_is_wrong(stage: Stage) -> None:
    run = await stage.run()
    session = f"/v1/sessions/{run['session_id']}"
    messages = (await stage.client.get(f"{session}/messages")).json()["data"]
    user = next(m for m in messages if m["type"] == "user")
    forked = await stage.client.post(f"{session}/fork", json={"at_message": user["uuid"].upper()})
    assert forked.status_code == 201
    copied = await stage.client.get(f"/v1/sessions/{forked.json()['id']}/messages")
    assert copied.json()["data"][-1]["uuid"] == user["uuid"]
    for body, pointer in (
        ({"at_message": str(uuid.uuid4())}, "/at_message"),
        ({"at_message": "x"}, "/at_message"),
        ({"nope": 1}, "/nope"),
    ):
        answer = await stage.client.post(f"{session}/fork", json=body)
        assert pointers(problem(answer, 422, "validation_failed")) == [pointer]
    taken = await stage.client.post(f"{session}/fork", json={"id": run["session_id"]})
    problem(taken, 409, "id_taken")
    assert (await stage.client.post(f"{session}/fork")).status_code == 201


async def test_a_full_queue_is_429_with_a_time_to_come_back(stage: Stage) -> None:
    started = await stage.client.post("/v1/runs", json={"prompt": SLOW})
    path = f"/v1/sessions/{started.json()['session']['id']}/runs"
    answers = [await stage.client.post(path, json={"prompt": "x"}) for _ in range(21)]
    assert [a.status_code for a in answers] == [202] * 20 + [429]
    problem(answers[-1], 429, "queue_full")
    assert int(answers[-1].headers["retry-after"]) > 0
    assert [a.json()["run"]["queue_position"] for a in answers[:20]] == list(range(1, 21))
    for answer in [*answers[:20][::-1], started]:
        cancelled = await stage.client.post(f"/v1/runs/{answer.json()['run']['id']}/cancel")
        assert cancelled.status_code in {200, 202}
