"""Questions of a model to a person, and its plan."""

from typing import Any

import pytest

from tests.api.stage import Stage, pointers, problem, scripted
from tests.api.test_actions import answer, asked, kinds, log, parked, read, results
from tests.api.test_queue import ended, post

DATABASES = {
    "question": "Which database?",
    "header": "Database",
    "multiSelect": False,
    "options": [
        {"label": "Postgres", "description": "What is there."},
        {"label": "SQLite", "description": "A file."},
    ],
}
COLOURS = {
    "question": "Which colours?",
    "header": "Colours",
    "multiSelect": True,
    "options": [{"label": label, "description": label} for label in ("red", "green", "blue")],
}
ASKS = {"tool": "AskUserQuestion", "input": {"questions": [DATABASES, COLOURS]}}
QUESTION = scripted(ASKS, {"text": "fine"})


@pytest.mark.requirement("field:P30")
@pytest.mark.parametrize("hold_seconds", [0, 60])
async def test_the_answer_of_a_person_reaches_the_call_that_asked(
    stage: Stage, hold_seconds: int
) -> None:
    rules = {"questions": "ask", "hold_seconds": hold_seconds}
    run = (await post(stage.client, "/v1/runs", prompt=QUESTION, actions=rules))["run"]
    action = await asked(stage.client, run)
    if not hold_seconds:
        await parked(stage, run)
    assert (action["type"], action["question"]) == ("question", {"questions": [DATABASES, COLOURS]})
    wrong = await answer(stage.client, action, behavior="allow")
    assert pointers(problem(wrong, 422, "validation_failed")) == [""]
    unasked = await answer(stage.client, action, answers={"Why?": "so"})
    assert pointers(problem(unasked, 422, "validation_failed")) == ["/answers"]
    answers = {"Which database?": "MySQL, please", "Which colours?": "red, blue"}
    for _ in range(2):
        assert (await answer(stage.client, action, answers=answers)).status_code == 200
    assert (await ended(stage.client, run["id"]))["result_subtype"] == "success"
    (result,) = results(await log(stage.client, run))
    own, picked = result["content"].splitlines()
    assert own.startswith('"Which database?"="MySQL, please" (')
    assert picked == '"Which colours?"="red, blue"'
    assert result["tool_use_result"] == {"questions": [DATABASES, COLOURS], "answers": answers}


async def test_a_question_may_be_turned_down_or_left_without_answers(stage: Stage) -> None:
    rules = {"questions": "ask"}
    for body, words in (
        ({"behavior": "deny", "message": "not now"}, "not now"),
        ({"answers": {}}, "did not answer"),
    ):
        run = (await post(stage.client, "/v1/runs", prompt=QUESTION, actions=rules))["run"]
        action = await asked(stage.client, run)
        assert (await answer(stage.client, action, **body)).status_code == 200
        await ended(stage.client, run["id"])
        (result,) = results(await log(stage.client, run))
        assert words in result["content"]


async def test_a_question_that_nobody_answers_in_time_is_told_to_the_model(stage: Stage) -> None:
    rules = {"questions": "ask", "question_timeout_seconds": 1}
    run = await stage.run(QUESTION, actions=rules)
    assert run["result_subtype"] == "success"
    (result,) = results(await log(stage.client, run))
    assert "Nobody answered" in result["content"]


@pytest.mark.requirement("field:P30")
@pytest.mark.parametrize("rules", [{}, {"questions": "deny", "permissions": "ask"}])
async def test_a_run_that_asks_nothing_is_not_offered_the_tool_and_goes_on(
    stage: Stage, rules: dict[str, Any]
) -> None:
    run = await stage.run(QUESTION, actions=rules)
    entries = await log(stage.client, run)
    assert run["result_subtype"] == "success"
    (init,) = (e for e in entries if e.get("subtype") == "init")
    assert "AskUserQuestion" not in init["tools"]
    assert "disabled in this session" in results(entries)[0]["content"]
    assert "action.opened" not in kinds(entries)


async def test_a_question_is_asked_whatever_mode_and_rules_allow(stage: Stage) -> None:
    options = {"permission_mode": "acceptEdits", "allowed_tools": ["AskUserQuestion"]}
    body = {"prompt": QUESTION, "options": options, "actions": {"questions": "ask"}}
    run = (await post(stage.client, "/v1/runs", **body))["run"]
    action = await asked(stage.client, run)
    await answer(stage.client, action, answers={})
    await ended(stage.client, run["id"])


PLAN = {"tool": "ExitPlanMode", "input": {"plan": "First this, then that."}}
TOUCH = {"tool": "Write", "input": {"file_path": "a.txt", "content": "a"}}


@pytest.mark.parametrize("hold_seconds", [0, 60])
async def test_a_plan_is_shown_and_its_approval_ends_the_mode(
    stage: Stage, hold_seconds: int
) -> None:
    prompt = scripted(TOUCH, PLAN, TOUCH, {"text": "ok"})
    body = {
        "options": {"permission_mode": "plan"},
        "actions": {"permissions": "ask", "hold_seconds": hold_seconds},
    }
    run = (await post(stage.client, "/v1/runs", prompt=prompt, **body))["run"]
    asked_for = []
    for _ in range(3):
        action = await asked(stage.client, run)
        asked_for.append(action["permission"]["tool_name"])
        is_plan = action["permission"]["input"] == PLAN["input"]
        decision = {"behavior": "allow"} if is_plan else {"behavior": "deny", "message": "later"}
        await answer(stage.client, action, **decision)
    run = await ended(stage.client, run["id"])
    assert asked_for == ["Write", "ExitPlanMode", "Write"]
    entries = await log(stage.client, run)
    assert [e["permissionMode"] for e in entries if e.get("subtype") == "status"] == ["default"]
    assert [r["content"] for r in results(entries)][0::2] == ["later", "later"]
    assert "approved" in results(entries)[1]["content"]
    assert run["options"]["permission_mode"] == "default"
    session = await read(stage.client, f"/v1/sessions/{run['session_id']}")
    assert session["options"]["permission_mode"] == "default"


async def test_a_plan_where_none_is_made_bothers_nobody(stage: Stage) -> None:
    run = await stage.run(scripted(PLAN, {"text": "ok"}), actions={"permissions": "ask"})
    (result,) = results(await log(stage.client, run))
    assert "no plan to approve" in result["content"]
