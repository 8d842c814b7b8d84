"""Tools that the client carries out: offered, waited for, answered once, bounded."""

from typing import Any

import pytest

from app.agent.calls import MAX_PARALLEL_CALLS
from tests.api.stage import Stage, pointers, problem, scripted
from tests.api.test_actions import answer, asked, log, parked, read, results, until
from tests.api.test_queue import ended, post

SCHEMA = {
    "type": "object",
    "properties": {"zone": {"type": "string"}, "at": {"type": "integer"}},
    "required": ["zone"],
}
LAMP: dict[str, Any] = {"name": "lamp", "description": "Switches a lamp.", "input_schema": SCHEMA}
CALL = {"tool": "mcp__client__lamp", "input": {"zone": "hall", "at": 3}}
FIND = {"tool": "ToolSearch", "input": {"query": "switch a lamp"}}
ONE_CALL = scripted(CALL, {"text": "lit"})


def options(**tool: Any) -> dict[str, Any]:
    return {"client_tools": [LAMP | tool]}


@pytest.mark.requirement("field:P43")
@pytest.mark.parametrize("hold_seconds", [0, 60])
async def test_a_call_waits_for_the_clients_result_which_counts_once(
    stage: Stage, hold_seconds: int
) -> None:
    body = {"options": options(), "actions": {"hold_seconds": hold_seconds}}
    prompt = scripted(FIND, CALL, {"text": "lit"})
    run = (await post(stage.client, "/v1/runs", prompt=prompt, **body))["run"]
    action = await asked(stage.client, run)
    if not hold_seconds:
        await parked(stage, run)
    assert (action["type"], action["client_tool"]) == (
        "client_tool",
        {"name": "lamp", "input": CALL["input"]},
    )
    assert pointers(
        problem(await answer(stage.client, action, behavior="allow"), 422, "validation_failed")
    ) == [""]
    said = {"content": [{"type": "text", "text": "42"}]}
    for _ in range(2):
        assert (await answer(stage.client, action, **said)).status_code == 200
    problem(await answer(stage.client, action, content="43"), 409, "action_already_resolved")
    run = await ended(stage.client, run["id"])
    entries = await log(stage.client, run)
    found, result = results(entries)
    assert found["content"] == [{"type": "tool_reference", "tool_name": "mcp__client__lamp"}]
    assert (result["content"], result["tool_use_result"]) == (said["content"], said["content"])
    (init,) = (e for e in entries if e.get("subtype") == "init")
    assert "mcp__client__lamp" in init["tools"]
    assert run["options"]["client_tools"][0]["input_schema"] == SCHEMA
    assert list(run["options"]["client_tools"][0]["input_schema"]["properties"]) == ["zone", "at"]
    last = stage.model.bodies()[-1]
    offered = {tool["name"]: tool for tool in last["tools"]}
    assert offered["mcp__client__lamp"]["defer_loading"] is True
    assert "\nmcp__client__lamp\n" in last["messages"][0]["content"][0]["text"]
    assert list(offered["mcp__client__lamp"]["input_schema"]["properties"]) == ["zone", "at"]


@pytest.mark.platform
async def test_a_long_result_of_a_client_is_stored_like_any_other(stage: Stage) -> None:
    run = (await post(stage.client, "/v1/runs", prompt=ONE_CALL, options=options()))["run"]
    said = "lit " * 20_000
    await answer(stage.client, await asked(stage.client, run), content=said)
    run = await ended(stage.client, run["id"])
    page = await read(stage.client, f"/v1/sessions/{run['session_id']}/messages")
    told = next(m for m in page["data"] if "persisted-output" in str(m))
    path = f"/v1/sessions/{run['session_id']}/messages/{told['uuid']}"
    link = (await read(stage.client, path))["stored_output"]
    assert (await stage.client.get(link["url"])).text == said


async def test_calls_that_change_nothing_wait_together_beside_other_work(stage: Stage) -> None:
    glob = {"tool": "Glob", "input": {"pattern": "*"}}
    prompt = scripted([CALL, glob, CALL], {"text": "lit"})
    body = {"options": options(readOnlyHint=True)}
    run = (await post(stage.client, "/v1/runs", prompt=prompt, **body))["run"]
    await asked(stage.client, run)  # everything else has ended
    assert len(results(await log(stage.client, run))) == 1
    page = await read(stage.client, "/v1/actions", run_id=run["id"], status="pending")
    assert len(page["data"]) == 2
    for action in page["data"]:
        await answer(stage.client, action, content="on", is_error=action is page["data"][0])
    await ended(stage.client, run["id"])
    told = results(await log(stage.client, run))
    assert sorted(str(result.get("is_error")) for result in told[1:]) == ["None", "True"]


async def test_more_calls_than_run_together_do_not_keep_a_run_that_waits_on_its_host(
    stage: Stage,
) -> None:
    many = MAX_PARALLEL_CALLS + 2
    prompt = scripted([CALL] * many, {"text": "lit"})
    body = {"options": options(readOnlyHint=True), "actions": {"hold_seconds": 0}}
    run = (await post(stage.client, "/v1/runs", prompt=prompt, **body))["run"]
    answered = 0
    while answered < many:
        await parked(stage, run)
        page = await read(stage.client, "/v1/actions", run_id=run["id"], status="pending")
        answers = [{"id": action["id"], "answer": {"content": "on"}} for action in page["data"]]
        assert len(answers) >= min(MAX_PARALLEL_CALLS, many - answered)
        done = await stage.client.post("/v1/actions/resolve", json={"resolutions": answers})
        assert [each["problem"] for each in done.json()["data"]] == [None] * len(answers)
        answered += len(answers)
    await ended(stage.client, run["id"])
    assert len(results(await log(stage.client, run))) == many


@pytest.mark.requirement("field:P43")
@pytest.mark.parametrize("policy", ["error", "fail"])
async def test_a_client_that_is_gone_costs_its_time_out(stage: Stage, policy: str) -> None:
    given = options(timeout_seconds=1, on_timeout=policy)
    run = await stage.run(ONE_CALL, options=given, actions={"hold_seconds": 0})
    if policy == "fail":
        assert run["end_reason"] == "action_expired"
        return
    assert run["result_subtype"] == "success"
    (result,) = results(await log(stage.client, run))
    assert (result["is_error"], "no result within 1 seconds" in result["content"]) == (True, True)


async def test_input_that_does_not_fit_is_the_models_mistake_and_reaches_no_client(
    stage: Stage,
) -> None:
    wrong = {"tool": "mcp__client__lamp", "input": {"at": "late"}}
    run = await stage.run(scripted(wrong, {"text": "oh"}), options=options())
    (result,) = results(await log(stage.client, run))
    assert result["content"].startswith("<tool_use_error>InputValidationError")
    assert (await read(stage.client, "/v1/actions", run_id=run["id"]))["data"] == []


async def test_a_tool_may_be_taken_away_and_is_the_runs_alone(stage: Stage) -> None:
    session = await stage.session(options=options())
    path = f"/v1/sessions/{session['id']}/runs"
    for rule in ("mcp__client__lamp", "mcp__client"):
        given = {"disallowed_tools": [rule]}
        run = (await post(stage.client, path, prompt=ONE_CALL, options=given))["run"]
        run = await ended(stage.client, run["id"])
        assert "No such tool" in results(await log(stage.client, run))[0]["content"]


@pytest.mark.parametrize(
    ("tools", "pointer"),
    [
        ([{"name": "a b", "input_schema": {}}], "/options/client_tools/0/name"),
        ([{"name": "x"}], "/options/client_tools/0/input_schema"),
        ([LAMP, LAMP], "/options/client_tools"),
        ([LAMP | {"timeout_seconds": 0}], "/options/client_tools/0/timeout_seconds"),
        ([LAMP | {"on_timeout": "allow"}], "/options/client_tools/0/on_timeout"),
        (
            [LAMP | {"input_schema": {"type": "object", "properties": {"a": {"type": 1}}}}],
            "/options/client_tools/0/input_schema/properties/a/type",
        ),
        (
            [LAMP | {"input_schema": {"$ref": "https://example.com/x"}}],
            "/options/client_tools/0/input_schema/$ref",
        ),
    ],
)
async def test_a_tool_that_cannot_work_is_refused(
    stage: Stage, tools: list[dict[str, Any]], pointer: str
) -> None:
    said = await stage.client.post(
        "/v1/runs", json={"prompt": "hi", "options": {"client_tools": tools}}
    )
    assert pointers(problem(said, 422, "validation_failed")) == [pointer]


async def test_a_result_that_is_none_changes_nothing(stage: Stage) -> None:
    run = (await post(stage.client, "/v1/runs", prompt=ONE_CALL, options=options()))["run"]
    action = await asked(stage.client, run)
    for content in (None, 1, [{"type": "document"}], [{"type": "text"}], "x" * 100_001):
        problem(await answer(stage.client, action, content=content), 422, "validation_failed")

    async def is_pending() -> bool:
        shown = await read(stage.client, f"/v1/actions/{action['id']}")
        return bool(shown["status"] == "pending")

    await until(is_pending)
    await answer(stage.client, action, content="")
    await ended(stage.client, run["id"])
