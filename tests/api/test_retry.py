"""A failed run is tried again: from its prompts, or from where it stopped."""

import uuid
from typing import Any

import httpx
import pytest

from tests.api.stage import RANDOM_RUN, Stage, frames, pointers, problem, scripted, spoken

LOOK = {"tool": "Glob", "input": {"pattern": "*"}}
DENIED = {"http": 400, "error": "invalid_request_error", "message": "no"}


async def again(stage: Stage, run: dict[str, Any], **body: Any) -> httpx.Response:
    return await stage.client.post(f"/v1/runs/{run['id']}/retry", json={"wait": 20, **body})


async def retried(stage: Stage, run: dict[str, Any], **body: Any) -> dict[str, Any]:
    """The run that a retry makes, when it has finished."""
    answer = await again(stage, run, **body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["run"]
    assert (found["parent_run_id"], found["origin"]) == (run["id"], "retry")
    return found


async def messages(stage: Stage, run: dict[str, Any], kind: str = "user") -> list[dict[str, Any]]:
    """What the log has of a run."""
    path = f"/v1/sessions/{run['session_id']}/events"
    page = (await stage.client.get(path, params={"run_id": run["id"], "limit": 200})).json()
    return [e["data"] for e in page["data"] if e["kind"] == "message" and e["data"]["type"] == kind]


def asked(stage: Stage, run: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The messages of the model requests of a session."""
    bodies = [b for b in stage.model.bodies() if run["session_id"] in str(b["metadata"])]
    for body in bodies:
        for message in body["messages"]:
            for block in message["content"]:
                block.pop("cache_control", None)
    return [body["messages"] for body in bodies]


@pytest.mark.requirement("runs:retry-resume")
async def test_a_run_goes_on_after_its_limit_without_a_new_prompt(stage: Stage) -> None:
    steps = scripted(LOOK, LOOK, LOOK, {"text": "done"})
    first = await stage.run(steps, options={"max_turns": 2, "allowed_tools": ["Glob"]})
    assert first["result_subtype"] == "error_max_turns"
    second = await retried(stage, first, resume=True, options={"max_turns": 9})
    assert (second["result_subtype"], second["result"]["text"]) == ("success", "done")
    assert second["num_turns"] == 2  # of the four, the last two
    assert second["options"] == {**first["options"], "max_turns": 9}
    assert second["resumed_from"] is not None
    told = await messages(stage, second)
    assert [m["message"]["content"][0]["type"] for m in told] == ["tool_result"]
    before, after = asked(stage, first)[1:3]
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2
    page = (await stage.client.get(f"/v1/sessions/{first['session_id']}/events")).json()
    queued = [e["data"] for e in page["data"] if e["data"]["type"] == "run.queued"]
    assert [event.get("parent_run_id") for event in queued] == [None, first["id"]]


async def test_a_spent_budget_is_followed_by_another(stage: Stage) -> None:
    dear = {"blocks": [LOOK], "usage": {"input_tokens": 100_000}}
    steps = scripted(dear, LOOK, {"text": "done"})
    options = {"max_budget_usd": "0.01", "allowed_tools": ["Glob"]}
    first = await stage.run(steps, options=options)
    assert first["result_subtype"] == "error_max_budget_usd"
    second = await retried(stage, first, resume=True)
    assert second["result_subtype"] == "success"
    refusal = asked(stage, first)[1][-1]["content"][0]
    assert "A run after it has a budget of its own." in str(refusal["content"])


@pytest.mark.requirement("runs:retry")
async def test_prompts_are_sent_again_with_other_uuids(stage: Stage) -> None:
    known = str(uuid.uuid4())
    text = scripted({**DENIED, "times": 1}, text="Count the sheep.")
    message = {"type": "user", "uuid": known, "message": {"role": "user", "content": text}}
    answer = await stage.client.post(
        "/v1/runs", json={"messages": [message], "wait": 20, "metadata": {"ticket": "A-1"}}
    )
    first = answer.json()["run"]
    assert first["end_reason"] == "model_error"
    path = f"/v1/sessions/{first['session_id']}"
    assert (await stage.client.patch(path, json={"options": {"effort": "high"}})).status_code == 200
    second = await retried(stage, first)
    assert second["metadata"] == {"ticket": "A-1"}
    assert second["options"] == first["options"]  # the run's, not what the session has now
    (prompt,) = await messages(stage, second)
    assert (prompt["message"]["content"], prompt["isReplay"]) == (text, True)
    assert prompt["uuid"] != known
    said = [block["text"] for block in spoken(asked(stage, first)[-1][0]["content"])]
    assert said == [text, text]


async def test_the_model_is_told_to_go_on_where_it_had_the_last_word(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    output = {"type": "json_schema", "schema": schema}
    texts = [{"text": f"words {n}"} for n in range(5)]
    call = {"tool": "StructuredOutput", "input": {"n": 1}}
    first = await stage.run(scripted(*texts, call), options={"output_format": output})
    assert first["result_subtype"] == "error_max_structured_output_retries"
    second = await retried(stage, first, resume=True)
    assert second["result"]["structured_output"] == {"n": 1}
    note = (await messages(stage, second))[0]
    assert note["isSynthetic"] is True
    assert "Go on with it" in note["message"]["content"][0]["text"]


async def test_a_prompt_that_was_never_taken_in_is_sent_when_its_run_goes_on(stage: Stage) -> None:
    slow = scripted({"blocks": [{"text": "late"}], "delay": 30})
    busy = (await stage.client.post("/v1/runs", json={"prompt": slow})).json()["run"]
    path = f"/v1/sessions/{busy['session_id']}/runs"
    heard = scripted({"text": "heard"})
    waits = (await stage.client.post(path, json={"prompt": heard})).json()["run"]
    problem(await again(stage, waits), 409, "run_unfinished")
    assert (await stage.client.delete(f"/v1/runs/{waits['id']}")).status_code == 200
    told = problem(await again(stage, waits), 409, "session_busy")
    assert told["context"] == {"active_run_id": busy["id"]}
    await stage.client.post(f"/v1/runs/{busy['id']}/cancel?wait=20")
    second = await retried(stage, waits, resume=True)
    assert second["result"]["text"] == "heard"
    problem(await again(stage, busy), 409, "run_not_retryable")


async def test_only_the_newest_failed_run_is_tried_again(stage: Stage) -> None:
    good = await stage.run(scripted({"text": "ok"}))
    problem(await again(stage, good), 409, "run_not_retryable")
    problem(await again(stage, {"id": RANDOM_RUN}), 404, "not_found")
    bad = await stage.run(scripted(DENIED))
    wrong = await again(stage, bad, options={"max_turns": 0})
    assert pointers(problem(wrong, 422, "validation_failed")) == ["/options/max_turns"]
    path = f"/v1/sessions/{bad['session_id']}"
    await stage.client.post(f"{path}/archive")
    problem(await again(stage, bad), 409, "session_archived")
    await stage.client.post(f"{path}/unarchive")
    first = (await messages(stage, bad))[0]["uuid"]
    await stage.client.post(f"{path}/rewind", json={"at_message": first})
    problem(await again(stage, bad, resume=True), 409, "run_not_retryable")
    third = await retried(stage, bad, options={"model": "demo"})
    problem(await again(stage, bad), 409, "run_not_retryable")
    assert third["options"]["model"] == "demo"


async def test_a_retry_has_its_effect_once_and_can_be_streamed(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    bad = await stage.run(scripted({**DENIED, "times": 1}))
    path = f"/v1/runs/{bad['id']}/retry"
    assert (await stranger.post(path)).status_code == 404
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = await stage.client.post(path, headers=headers)
    assert first.status_code == 202
    assert first.headers["location"] == f"/v1/runs/{first.json()['run']['id']}"
    second = await stage.client.post(path, headers=headers)
    assert (second.json(), second.headers["idempotency-replayed"]) == (first.json(), "true")
    async with stage.client.stream("POST", path, headers=headers, json={"stream": True}) as other:
        assert other.status_code == 422  # another body
    bad = await stage.run(scripted({**DENIED, "times": 1}))
    async with stage.client.stream(
        "POST", f"/v1/runs/{bad['id']}/retry", json={"stream": True}
    ) as answer:
        shown = [frame async for frame in frames(answer) if frame.event]
    assert shown[0].json()["type"] == "run.queued"
    assert (shown[-1].event, shown[-1].json()["reason"]) == ("end", "run_finished")


async def test_a_default_budget_does_not_stand_in_the_way_of_a_model_without_a_price(
    stage: Stage,
) -> None:
    bad = await stage.run(scripted({**DENIED, "times": 1}), options={"model": "nobody-knows-1"})
    assert (await retried(stage, bad))["options"] == bad["options"]
