"""Options: the SDK's names, our bounds, and a pointer to whatever is wrong."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.stage import Stage, open_stage, pointers, problem
from tests.databases import fresh_database

SDK_DEFAULTS: dict[str, Any] = {
    "tools": None,
    "allowed_tools": [],
    "system_prompt": None,
    "mcp_servers": {},
    "strict_mcp_config": False,
    "permission_mode": None,
    "continue_conversation": False,
    "resume": None,
    "session_id": None,
    "max_turns": None,
    "max_budget_usd": None,
    "disallowed_tools": [],
    "model": None,
    "fallback_model": None,
    "betas": [],
    "permission_prompt_tool_name": None,
    "cwd": None,
    "cli_path": None,
    "settings": None,
    "add_dirs": [],
    "env": {},
    "extra_args": {},
    "max_buffer_size": None,
    "stderr": None,
    "can_use_tool": None,
    "hooks": None,
    "user": None,
    "include_partial_messages": False,
    "fork_session": False,
    "agents": None,
    "setting_sources": None,
    "skills": None,
    "sandbox": None,
    "plugins": [],
    "max_thinking_tokens": None,
    "thinking": None,
    "effort": None,
    "output_format": None,
    "enable_file_checkpointing": False,
}
"""What a caller who dumps a fresh `ClaudeAgentOptions` sends."""


@pytest.fixture(scope="session")
async def plain(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    """A host without a provider's key, with small ceilings."""
    limits = {
        "default_max_turns": 7,
        "ceiling_max_turns": 20,
        "default_max_budget_usd": "0.50",
        "ceiling_max_budget_usd": "2",
    }
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, model={"api_key": None}, limits=limits) as opened,
    ):
        yield opened


async def refused(
    stage: Stage, body: dict[str, Any], code: str = "validation_failed"
) -> dict[str, Any]:
    return problem(await stage.client.post("/v1/runs", json=body), 422, code)


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"prompt": 5}, "/prompt", "string_type"),
        ({"prompt": None}, "", "value_error"),
        ({}, "", "value_error"),
        ({"prompt": ""}, "/prompt", "value_error"),
        ({"prompt": " \n"}, "/prompt", "value_error"),
        ({"prompt": ["x"]}, "/prompt", "string_type"),
        ({"messages": []}, "/messages", "too_short"),
        ({"messages": [{"message": {"content": "x"}}] * 101}, "/messages", "too_long"),
        ({"messages": "x"}, "/messages", "list_type"),
        ({"messages": [5]}, "/messages/0", "model_attributes_type"),
        ({"messages": [{}]}, "/messages/0/message", "missing"),
        ({"messages": [{"message": {}}]}, "/messages/0/message/content", "missing"),
        (
            {"messages": [{"message": {"content": ""}}]},
            "/messages/0/message/content",
            "value_error",
        ),
        (
            {"messages": [{"message": {"content": []}}]},
            "/messages/0/message/content",
            "value_error",
        ),
        (
            {"messages": [{"message": {"content": "x", "role": "assistant"}}]},
            "/messages/0/message/role",
            "literal_error",
        ),
        (
            {"messages": [{"message": {"content": [{"type": "text"}]}}]},
            "/messages/0/message/content/0/text",
            "missing",
        ),
        (
            {"messages": [{"message": {"content": [{"type": "text", "text": 5}]}}]},
            "/messages/0/message/content/0/text",
            "string_type",
        ),
        (
            {"messages": [{"message": {"content": [{"type": "text", "text": "x", "y": 1}]}}]},
            "/messages/0/message/content/0/y",
            "extra_forbidden",
        ),
        (
            {"messages": [{"message": {"content": [{"type": "image", "source": 5}]}}]},
            "/messages/0/message/content/0/source",
            "dict_type",
        ),
        (
            {"messages": [{"message": {"content": [{"type": "tool_result"}]}}]},
            "/messages/0/message/content/0/type",
            "union_tag_invalid",
        ),
        (
            {"messages": [{"message": {"content": "x"}, "uuid": "x"}]},
            "/messages/0/uuid",
            "string_pattern_mismatch",
        ),
        ({"prompt": "x", "stream": "yes"}, "/stream", "bool_type"),
        ({"prompt": "x", "wait": "5"}, "/wait", "int_type"),
        ({"prompt": "x", "wait": -1}, "/wait", "greater_than_equal"),
        ({"prompt": "x", "wait": 61}, "/wait", "less_than_equal"),
        ({"prompt": "x", "wait": True}, "/wait", "int_type"),
        ({"prompt": "x", "on_busy": "panic"}, "/on_busy", "literal_error"),
        ({"prompt": "x", "metadata": {"str": 5}}, "/metadata/str", "string_type"),
        ({"prompt": "x", "metadata": {"a[b]/~": 5}}, "/metadata/a[b]~1~0", "string_type"),
        ({"prompt": "x", "metadata": {str(n): "" for n in range(51)}}, "/metadata", "too_long"),
        ({"prompt": "x", "metadata": {"k": "v" * 2001}}, "/metadata/k", "string_too_long"),
        ({"prompt": "x", "metadata": {"k" * 101: ""}}, "/metadata/" + "k" * 101, "string_too_long"),
        ({"prompt": "x", "nope": 1}, "/nope", "extra_forbidden"),
        ({"prompt": "x", "session": {"nope": 1}}, "/session/nope", "extra_forbidden"),
        ({"prompt": "x", "session": {"id": "x"}}, "/session/id", "string_pattern_mismatch"),
        ({"prompt": "x", "session": {"title": "x" * 501}}, "/session/title", "string_too_long"),
        ({"prompt": "x", "workspace": {"source": "git"}}, "/workspace/source", "literal_error"),
        ({"prompt": "x", "workspace": {"path": "/x"}}, "/workspace", "value_error"),
        ({"prompt": "x", "options": []}, "/options", "model_attributes_type"),
        ({"prompt": "x", "options": {"nope": 1}}, "/options/nope", "extra_forbidden"),
        ({"prompt": "x", "options": {"nope": None}}, "/options/nope", "extra_forbidden"),
        ({"prompt": "x", "options": {"max_turns": 0}}, "/options/max_turns", "greater_than_equal"),
        ({"prompt": "x", "options": {"maxTurns": 0}}, "/options/maxTurns", "greater_than_equal"),
        ({"prompt": "x", "options": {"max_turns": -5}}, "/options/max_turns", "greater_than_equal"),
        ({"prompt": "x", "options": {"max_turns": "10"}}, "/options/max_turns", "int_type"),
        ({"prompt": "x", "options": {"max_turns": 1.5}}, "/options/max_turns", "int_type"),
        ({"prompt": "x", "options": {"max_turns": True}}, "/options/max_turns", "int_type"),
        ({"prompt": "x", "options": {"max_turns": 10**300}}, "/options/max_turns", "int_type"),
        (
            {"prompt": "x", "options": {"max_budget_usd": 0}},
            "/options/max_budget_usd",
            "greater_than",
        ),
        (
            {"prompt": "x", "options": {"max_budget_usd": -1}},
            "/options/max_budget_usd",
            "greater_than",
        ),
        (
            {"prompt": "x", "options": {"max_budget_usd": "abc"}},
            "/options/max_budget_usd",
            "decimal_parsing",
        ),
        (
            {"prompt": "x", "options": {"max_budget_usd": "NaN"}},
            "/options/max_budget_usd",
            "finite_number",
        ),
        (
            {"prompt": "x", "options": {"max_budget_usd": "-Infinity"}},
            "/options/max_budget_usd",
            "finite_number",
        ),
        (
            {"prompt": "x", "options": {"max_budget_usd": True}},
            "/options/max_budget_usd",
            "decimal_type",
        ),
        ({"prompt": "x", "options": {"model": ""}}, "/options/model", "string_too_short"),
        ({"prompt": "x", "options": {"model": "m" * 201}}, "/options/model", "string_too_long"),
        ({"prompt": "x", "options": {"model": 5}}, "/options/model", "string_type"),
        ({"prompt": "x", "options": {"effort": "huge"}}, "/options/effort", "literal_error"),
        (
            {"prompt": "x", "options": {"allowed_tools": "Read"}},
            "/options/allowed_tools",
            "list_type",
        ),
        (
            {"prompt": "x", "options": {"allowedTools": [5]}},
            "/options/allowedTools/0",
            "string_type",
        ),
        (
            {"prompt": "x", "options": {"permission_mode": "yolo"}},
            "/options/permission_mode",
            "literal_error",
        ),
        (
            {"prompt": "x", "options": {"system_prompt": {"type": "preset", "appendix": "x"}}},
            "/options/system_prompt",
            "string_type",
        ),
        (
            {"prompt": "x", "options": {"max_turns": 2, "maxTurns": 2}},
            "/options",
            "duplicate_option",
        ),
    ],
)
async def test_a_wrong_field_is_named_by_its_pointer(
    stage: Stage, body: dict[str, Any], pointer: str, code: str
) -> None:
    found = await refused(stage, body)
    assert {"pointer": pointer, "code": code} in [
        {"pointer": error["pointer"], "code": error["code"]} for error in found["errors"]
    ]
    assert found["detail"].startswith(f"{found['errors'][0]['pointer'] or 'The body'}: ")


async def test_every_wrong_field_is_named_at_once(stage: Stage) -> None:
    found = await refused(stage, {"prompt": 1, "wait": -1, "options": {"max_turns": 0, "x": 1}})
    assert sorted(pointers(found)) == ["/options/max_turns", "/options/x", "/prompt", "/wait"]


@pytest.mark.parametrize(
    "name",
    ["limit", "order", "status", "wait", "after", "previews"],
)
async def test_a_wrong_parameter_is_named(stage: Stage, name: str) -> None:
    session = await stage.session()
    path = {
        "limit": "/v1/runs",
        "order": "/v1/sessions",
        "status": "/v1/runs",
        "wait": "/v1/runs/none",
        "after": f"/v1/sessions/{session['id']}/events",
        "previews": f"/v1/sessions/{session['id']}/stream",
    }[name]
    found = problem(await stage.client.get(path, params={name: "-7"}), 422, "validation_failed")
    assert pointers(found)[0].split(".")[0] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hooks", {"PreToolUse": []}),
        ("fork_session", True),
        ("resume", "x"),
        ("env", {"A": "b"}),
        ("cwd", "/"),
    ],
)
async def test_an_option_of_the_sdk_that_is_not_there_yet_is_refused_by_name(
    stage: Stage, name: str, value: object
) -> None:
    found = await refused(stage, {"prompt": "x", "options": {name: value}}, "unsupported_option")
    assert pointers(found) == [f"/options/{name}"]
    assert f"'{name}'" in found["detail"]


@pytest.mark.requirement("permissions:rules")
async def test_a_malformed_rule_is_refused_by_its_place(stage: Stage) -> None:
    for rule in ("*", "", "Bash(npm", "Read(!x)", "WebFetch(x)", "TaskList(x)", "A" * 201):
        for name in ("allowed_tools", "disallowed_tools", "ask_tools"):
            body = {"prompt": "x", "options": {name: ["Read", rule]}}
            found = await refused(stage, body, "validation_failed")
            assert pointers(found) == [f"/options/{name}/1"]
            assert repr(rule[:200]) in found["detail"]


@pytest.mark.parametrize(
    ("given", "code", "where"),
    [
        ({}, "missing", "/a/description"),
        ({"description": "d", "prompt": "p", "colour": 1}, "extra_forbidden", "/a/colour"),
        ({"description": "d", "prompt": "p", "memory": "project"}, "unsupported_option", "/a"),
        ({"description": "d", "prompt": "p", "initialPrompt": "x"}, "unsupported_option", "/a"),
        (
            {"description": "d", "prompt": "p", "mcpServers": [{"x": {}}]},
            "unsupported_option",
            "/a",
        ),
        ({"description": "d", "prompt": "p", "skills": "x"}, "list_type", "/a/skills"),
        ({"description": "d", "prompt": "p", "effort": "huge"}, "literal", "/a/effort"),
        ({"description": "d", "prompt": "p", "background": "x"}, "bool", "/a/background"),
        ({"description": "d", "prompt": "p", "tools": ["Bash(x)"]}, "string_pattern", "/a/tools/0"),
        ({"description": "d", "prompt": "p", "maxTurns": 0}, "greater_than_equal", "/a/maxTurns"),
        (
            {"description": "d", "prompt": "p", "permissionMode": "all"},
            "literal",
            "/a/permissionMode",
        ),
    ],
)
async def test_what_is_wrong_with_an_agent_is_named(
    stage: Stage, given: dict[str, object], code: str, where: str
) -> None:
    body = {"prompt": "x", "options": {"agents": {"a": given}}}
    answer = await stage.client.post("/v1/runs", json=body)
    assert answer.status_code == 422
    errors = answer.json()["errors"]
    assert [e for e in errors if code in e["code"] and where in e["pointer"]], errors


@pytest.mark.requirement("permissions:rules")
async def test_scoped_rules_and_all_modes_are_taken(stage: Stage) -> None:
    rules = ["Bash(npm *)", "Read(./secret/**)", "mcp__a__*", "WebFetch(domain:example.com)"]
    options = {"allowed_tools": rules, "disallowedTools": rules[1:], "ask_tools": rules[:1]}
    run = await stage.run(options={**options, "permission_mode": "plan"})
    assert run["options"]["ask_tools"] == rules[:1]
    assert run["options"]["permission_mode"] == "plan"


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.title() for part in tail)


@pytest.mark.parametrize("spell", [str, camel], ids=["snake_case", "camelCase"])
async def test_a_dump_of_the_sdks_options_is_taken(stage: Stage, spell: Any) -> None:
    options = {spell(name): value for name, value in SDK_DEFAULTS.items()}
    run = await stage.run(options={**options, spell("max_turns"): 3})
    assert run["result_subtype"] == "success"
    assert run["options"]["max_turns"] == 3


async def test_a_run_shows_what_applies_to_it(plain: Stage) -> None:
    meta = (await plain.client.get("/v1/meta")).json()
    assert meta["limits"] == {
        "default_max_turns": 7,
        "ceiling_max_turns": 20,
        "default_max_budget_usd": "0.50",
        "ceiling_max_budget_usd": "2",
        "max_body_bytes": 10_000_000,
        "queue_per_session": 20,
    }
    usual = await plain.run("Say hello", options={"model": "demo"})
    assert usual["options"] == {"model": "demo", "max_turns": 7, "max_budget_usd": "0.50"}
    asked = await plain.run(
        "Say hello", options={"model": "demo", "max_turns": 20, "max_budget_usd": "2"}
    )
    assert asked["options"] == {"model": "demo", "max_turns": 20, "max_budget_usd": "2"}


@pytest.mark.parametrize(
    ("option", "value"), [("max_turns", 21), ("max_budget_usd", "2.000001"), ("max_budget_usd", 3)]
)
async def test_what_exceeds_a_ceiling_is_refused_for_runs_and_sessions(
    plain: Stage, option: str, value: object
) -> None:
    options = {"model": "demo", option: value}
    found = await refused(plain, {"prompt": "x", "options": options})
    assert pointers(found) == [f"/options/{option}"]
    session = await plain.client.post("/v1/sessions", json={"options": options})
    assert pointers(problem(session, 422, "validation_failed")) == [f"/options/{option}"]


async def test_without_a_provider_the_answer_says_how_to_get_one(plain: Stage) -> None:
    for options in ({}, {"model": "sonnet"}, {"model": "claude-sonnet-5"}):
        found = await refused(plain, {"prompt": "x", "options": options}, "no_provider")
        assert "ANTHROPIC_API_KEY" in found["detail"]
        assert '"demo"' in found["detail"]
    assert (await plain.client.get("/v1/meta")).json()["models"]["provider"].startswith("none.")


async def test_a_refused_run_leaves_no_session_behind(plain: Stage) -> None:
    body = {"prompt": "x", "session": {"id": "11111111-2222-4333-8444-555555555555"}}
    await refused(plain, body, "no_provider")
    answer = await plain.client.get(f"/v1/sessions/{body['session']['id']}")  # type: ignore[index]
    problem(answer, 404, "not_found")


async def test_an_alias_becomes_its_model_and_any_other_name_is_taken_as_one(stage: Stage) -> None:
    sonnet = (await stage.client.get("/v1/meta")).json()["models"]["aliases"]["sonnet"]
    for name, model in (("sonnet", sonnet), ("some-new-model-9", "some-new-model-9")):
        run = await stage.run(options={"model": name})
        assert run["options"]["model"] == model
        assert stage.model.bodies()[-1]["model"] == model


async def test_a_model_without_a_price_takes_no_budget_of_a_client(stage: Stage) -> None:
    body = {"prompt": "x", "options": {"model": "unpriced-9", "max_budget_usd": "1"}}
    found = await refused(stage, body, "unpriced_model")
    assert pointers(found) == ["/options/max_budget_usd"]
    assert "TREADLE_MODEL__PRICES" in found["detail"]
    run = await stage.run(options={"model": "unpriced-9"})
    assert run["result_subtype"] == "success"
    unknown = {"run_usd": None, "main_thread_usd": None}
    assert run["cost"] == unknown | {"tree": True, "estimated": True}
    assert [used["cost_usd"] for used in run["model_usage"].values()] == [None]


async def test_a_fallback_is_another_model_that_is_resolved_and_priced_too(stage: Stage) -> None:
    sonnet = (await stage.client.get("/v1/meta")).json()["models"]["aliases"]["sonnet"]
    run = await stage.run(options={"fallback_model": "sonnet"})
    assert run["options"]["fallback_model"] == sonnet
    same = {"prompt": "x", "options": {"model": sonnet, "fallback_model": "sonnet"}}
    found = await refused(stage, same)
    assert pointers(found) == ["/options/fallback_model"]
    unpriced = {"prompt": "x", "options": {"fallbackModel": "unpriced-9", "max_budget_usd": "1"}}
    found = await refused(stage, unpriced, "unpriced_model")
    assert "unpriced-9" in found["detail"]


async def test_a_fallback_or_an_agents_model_that_nobody_serves_is_refused(plain: Stage) -> None:
    kind = {"description": "d", "prompt": "p", "model": "haiku"}
    for more in ({"fallback_model": "claude-sonnet-5"}, {"agents": {"a": kind}}):
        await refused(plain, {"prompt": "x", "options": {"model": "demo", **more}}, "no_provider")


async def test_bypass_needs_the_policy_for_runs_and_sessions(stage: Stage) -> None:
    options = {"permission_mode": "bypassPermissions"}
    found = await refused(stage, {"prompt": "x", "options": options})
    assert pointers(found) == ["/options/permission_mode"]
    assert "policy" in found["detail"]
    session = await stage.client.post("/v1/sessions", json={"options": options})
    assert pointers(problem(session, 422, "validation_failed")) == ["/options/permission_mode"]
    camel_case = {"prompt": "x", "options": {"permissionMode": "bypassPermissions"}}
    await refused(stage, camel_case)


async def test_bypass_works_where_the_operator_allows_it(scratch: Path, postgres: str) -> None:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, policy={"allow_bypass": True}) as stage,
    ):
        run = await stage.run(options={"permission_mode": "bypassPermissions"})
        assert run["result_subtype"] == "success"
        _, key = await stage.tenant("other")
        answer = await stage.client.post(
            "/v1/runs",
            json={"prompt": "x", "options": {"permission_mode": "bypassPermissions"}},
            headers={"x-api-key": key},
        )
        problem(answer, 422, "validation_failed")


async def test_options_of_a_run_lie_over_those_of_its_session(stage: Stage) -> None:
    session = await stage.session(options={"max_turns": 4, "effort": "low"})
    answer = await stage.client.post(
        f"/v1/sessions/{session['id']}/runs",
        json={"prompt": "x", "options": {"max_turns": 9}, "include_partial_messages": True},
    )
    shown = answer.json()["run"]["options"]
    assert (shown["max_turns"], shown["effort"], shown["include_partial_messages"]) == (
        9,
        "low",
        True,
    )
    session = (await stage.client.get(f"/v1/sessions/{session['id']}")).json()
    assert session["options"] == {"max_turns": 4, "effort": "low"}
