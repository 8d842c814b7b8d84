"""Thinking and effort over HTTP: what reaches the model, what is refused, what comes back."""

from typing import Any

import pytest

from tests.api.stage import Stage, pointers, problem, scripted
from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import host
from tests.runs.prompts import finished, messages, start

SIGNED = {"thinking": 'Hm "é" \\ \N{BRAIN}\u2028', "signature": "EqoB+/" * 700 + "=="}
REDACTED = {"block": {"type": "redacted_thinking", "data": "Zm9v+/" * 90 + "=="}}


@pytest.mark.requirement("loop:thinking")
@pytest.mark.requirement("loop:effort")
@pytest.mark.parametrize(
    ("options", "thinking", "output_config"),
    [
        ({}, None, None),
        ({"effort": "max"}, None, {"effort": "max"}),
        ({"effort": "high", "model": "claude-haiku-4-5"}, None, None),
        ({"thinking": {"type": "disabled"}}, {"type": "disabled"}, None),
        (
            {"thinking": {"type": "adaptive"}, "effort": "low"},
            {"type": "adaptive", "display": "updates"},
            {"effort": "low"},
        ),
        (
            {"thinking": {"type": "enabled", "budgetTokens": 5000}, "model": "claude-haiku-4-5"},
            {"type": "enabled", "budget_tokens": 5000},
            None,
        ),
        (
            {"maxThinkingTokens": 5000, "taskBudget": {"total": 64_000}},
            {"type": "adaptive", "display": "updates"},
            {"task_budget": {"type": "tokens", "total": 64_000}},
        ),
    ],
)
async def test_what_the_options_say_reaches_the_model(
    stage: Stage,
    options: dict[str, Any],
    thinking: dict[str, Any] | None,
    output_config: dict[str, Any] | None,
) -> None:
    await stage.run(options={"model": "claude-sonnet-5", **options})
    body = stage.model.requests[-1].body
    assert body.get("thinking") == thinking
    assert body.get("output_config") == output_config


@pytest.mark.requirement("loop:thinking")
async def test_betas_go_with_the_request_and_stand_on_init(stage: Stage) -> None:
    options = {"betas": ["context-1m-2025-08-07"], "task_budget": {"total": 50_000}}
    run = await stage.run(options=options)
    sent = stage.model.requests[-1].headers["anthropic-beta"]
    assert sent == "context-1m-2025-08-07,task-budgets-2026-03-13"
    (init, *_) = await messages(stage.client, run["session_id"])
    assert init["betas"] == ["context-1m-2025-08-07"]


@pytest.mark.requirement("loop:thinking-refused")
@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"effort": "huge"}, "/options/effort"),
        ({"effort": "max", "model": "claude-opus-4-5"}, "/options/effort"),
        ({"thinking": "on"}, "/options/thinking"),
        ({"thinking": {"type": "on"}}, "/options/thinking/type"),
        ({"thinking": {"type": "enabled"}}, "/options/thinking/budget_tokens"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 5}},
            "/options/thinking/budget_tokens",
        ),
        (
            {"thinking": {"type": "adaptive", "budget_tokens": 5000}},
            "/options/thinking/budget_tokens",
        ),
        (
            {
                "thinking": {"type": "enabled", "budget_tokens": 40_000},
                "model": "claude-haiku-4-5",
            },
            "/options/thinking/budget_tokens",
        ),
        ({"thinking": {"type": "disabled"}, "model": "claude-opus-5-5"}, "/options/thinking"),
        (
            {"thinking": {"type": "disabled"}, "effort": "max", "model": "claude-opus-5"},
            "/options/effort",
        ),
        ({"thinking": {"type": "adaptive"}, "model": "claude-3-5-haiku"}, "/options/thinking"),
        ({"max_thinking_tokens": 5}, "/options/max_thinking_tokens"),
        ({"maxThinkingTokens": "many"}, "/options/maxThinkingTokens"),
        ({"task_budget": {"total": 0}}, "/options/task_budget/total"),
        ({"betas": ["a b"]}, "/options/betas/0"),
    ],
)
async def test_a_combination_that_cannot_work_is_refused_where_it_stands(
    stage: Stage, options: dict[str, Any], pointer: str
) -> None:
    answer = await stage.client.post("/v1/runs", json={"prompt": "x", "options": options})
    assert pointers(problem(answer, 422, "validation_failed")) == [pointer]


@pytest.mark.requirement("loop:thinking-refused")
async def test_a_run_is_measured_by_the_options_that_it_really_has(stage: Stage) -> None:
    session = await stage.session(options={"thinking": {"type": "disabled"}})
    path = f"/v1/sessions/{session['id']}/runs"
    body = {"prompt": "x", "options": {"model": "claude-opus-5-5"}}
    refused = problem(await stage.client.post(path, json=body), 422, "validation_failed")
    assert pointers(refused) == ["/options/thinking"]
    body["options"] = {"model": "claude-opus-5-5", "thinking": {"type": "adaptive"}}
    assert (await stage.client.post(path, json=body)).status_code == 202


@pytest.mark.requirement("wire:informational")
async def test_what_is_not_sent_is_told_after_init(stage: Stage) -> None:
    run = await stage.run(options={"effort": "high", "model": "claude-haiku-4-5"})
    init, note, prompt, *_ = await messages(stage.client, run["session_id"])
    assert (init["subtype"], prompt["type"]) == ("init", "user")
    assert note == {
        "type": "system",
        "subtype": "informational",
        "session_id": run["session_id"],
        "uuid": note["uuid"],
        "content": "claude-haiku-4-5 does not take the effort 'high', so none is sent.",
        "level": "notice",
        "tag": "model_option",
    }


@pytest.mark.requirement("loop:abilities")
async def test_an_operators_table_says_what_a_model_takes(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    table = {"house-model": {"efforts": ["low"], "thinking": ["budget"], "off": "never"}}
    async with host(make_settings(model={"abilities": table})) as running:
        body = {"prompt": "x", "options": {"model": "house-model", "effort": "max"}}
        refused = problem(
            await running.client.post("/v1/runs", json=body), 422, "validation_failed"
        )
        assert pointers(refused) == ["/options/effort"]
        run = await start(
            running.client, "x", model="house-model", effort="low", thinking={"type": "adaptive"}
        )
        await finished(running.client, run["id"])
    (request,) = messages_api.bodies()
    assert request["output_config"] == {"effort": "low"}
    assert request["thinking"] == {"type": "enabled", "budget_tokens": 31_999}


@pytest.mark.requirement("loop:thinking-bytes")
@pytest.mark.requirement("wire:thinking-tokens")
async def test_thoughts_go_back_as_they_came_on_this_host_and_on_another(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    prompt = scripted(
        [SIGNED, REDACTED, {"tool": "Glob", "input": {"pattern": "*"}}], [SIGNED, {"text": "done"}]
    )
    async with host(make_settings()) as first:
        run = await start(first.client, prompt, allowed_tools=["Glob"])
        await finished(first.client, run["id"])
        shown = await messages(first.client, run["session_id"])
    async with host(make_settings()) as second:
        again = await start(second.client, "And?", session_id=run["session_id"])
        await finished(second.client, again["id"])
    thought = {"type": "thinking", **SIGNED}
    redacted = REDACTED["block"]
    _, looked, resumed = [request["messages"] for request in messages_api.bodies()]
    assert looked[1]["content"][:2] == [thought, redacted]
    assert resumed[1] == looked[1]
    assert resumed[3]["content"] == [thought, {"type": "text", "text": "done"}]
    kinds = [m.get("subtype") or m["message"]["content"][0]["type"] for m in shown[2:5]]
    assert kinds == ["thinking_tokens", "thinking", "redacted_thinking"]
    estimate = -(-len(SIGNED["thinking"]) // 4)
    assert shown[2]["estimated_tokens"] == shown[2]["estimated_tokens_delta"] == estimate
    assert shown[3]["message"]["content"] == [thought]
