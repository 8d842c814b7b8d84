"""What a client may say, and how it is told what it may not."""

from decimal import Decimal
from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from app.domain.options import (
    UNSUPPORTED_DEFAULTS,
    AgentOptions,
    SystemPromptPreset,
    shown_options,
)

SET: dict[str, Any] = {
    "model": "m",
    "fallback_model": "other",
    "system_prompt": "Be short.",
    "setting_sources": ["project", "local"],
    "skills": ["review"],
    "tools": ["Read"],
    "allowed_tools": ["Read", "mcp__a-b__c_d"],
    "disallowed_tools": ["Bash"],
    "ask_tools": ["Bash(git push *)"],
    "mcp_servers": {"s": {"type": "http", "url": "https://example.com/mcp"}},
    "strict_mcp_config": True,
    "permission_mode": "acceptEdits",
    "max_turns": 3,
    "max_budget_usd": "0.50",
    "effort": "low",
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "task_budget": {"total": 50_000},
    "betas": ["context-1m-2025-08-07"],
    "output_format": {"type": "json_schema", "schema": {"type": "object"}},
    "prompt_suggestions": True,
    "client_tools": [{"name": "lamp", "input_schema": {"type": "object"}}],
    "actions": {"permissions": "ask", "hold_seconds": 5},
    "verbatim_prompts": True,
    "agents": {"helper": {"description": "helps", "prompt": "You help."}},
    "forward_subagent_text": True,
    "wait_for_subagents": True,
    "include_partial_messages": True,
    "include_hook_events": True,
    "hooks": [{"event": "Stop", "url": "https://hooks.example.com", "on_failure": "block"}],
}


def options(**given: Any) -> AgentOptions:
    return AgentOptions.model_validate(given)


def faults(given: dict[str, Any]) -> list[tuple[str, str]]:
    """Where and why options are refused."""
    with pytest.raises(ValidationError) as caught:
        AgentOptions.model_validate(given)
    return [(".".join(map(str, e["loc"])), e["type"]) for e in caught.value.errors()]


@pytest.mark.requirement("options:names")
def test_every_option_is_known_by_both_its_names() -> None:
    assert set(SET) == set(AgentOptions.model_fields)
    camel = {to_camel(name): value for name, value in SET.items()}
    assert AgentOptions.model_validate(camel) == AgentOptions.model_validate(SET)


def test_the_schema_shows_the_names_of_the_sdk() -> None:
    assert list(AgentOptions.model_json_schema()["properties"]) == list(AgentOptions.model_fields)


def test_an_option_that_comes_under_both_names_is_refused() -> None:
    assert faults({"maxTurns": 1, "max_turns": 2}) == [("", "duplicate_option")]


@pytest.mark.requirement("options:unknown")
@pytest.mark.parametrize("value", [1, None])
def test_an_unknown_field_is_refused_by_name(value: object) -> None:
    assert faults({"max_turn": value}) == [("max_turn", "extra_forbidden")]
    assert faults({"maxTurn": value}) == [("maxTurn", "extra_forbidden")]


@pytest.mark.requirement("options:unsupported")
@pytest.mark.parametrize("name", UNSUPPORTED_DEFAULTS)
def test_an_unsupported_option_is_taken_at_its_default_and_refused_otherwise(name: str) -> None:
    for spelled in (name, to_camel(name)):
        assert options(**{spelled: UNSUPPORTED_DEFAULTS[name]}) == AgentOptions()
        assert options(**{spelled: None}) == AgentOptions()
        with pytest.raises(ValidationError, match=f"'{spelled}' is not supported") as caught:
            options(**{spelled: "something"})
        assert [e["type"] for e in caught.value.errors()] == ["unsupported_option"]


@pytest.mark.requirement("options:unset")
def test_null_means_not_set() -> None:
    nothing = AgentOptions.model_validate(dict.fromkeys(AgentOptions.model_fields))
    assert nothing == AgentOptions()
    assert nothing.stored() == {}
    assert nothing.permission_mode == "default"


@pytest.mark.parametrize(
    ("given", "where", "why"),
    [
        ({"max_turns": 0}, "max_turns", "greater_than_equal"),
        ({"max_turns": -1}, "max_turns", "greater_than_equal"),
        ({"maxTurns": -1}, "max_turns", "greater_than_equal"),
        ({"max_turns": 10**9}, "max_turns", "less_than_equal"),
        ({"max_turns": True}, "max_turns", "int_type"),
        ({"max_turns": "3"}, "max_turns", "int_type"),
        ({"max_turns": 1.5}, "max_turns", "int_type"),
        ({"max_budget_usd": 0}, "max_budget_usd", "greater_than"),
        ({"max_budget_usd": -0.5}, "max_budget_usd", "greater_than"),
        ({"max_budget_usd": 1e9}, "max_budget_usd", "less_than_equal"),
        ({"max_budget_usd": float("nan")}, "max_budget_usd", "finite_number"),
        ({"max_budget_usd": "NaN"}, "max_budget_usd", "finite_number"),
        ({"max_budget_usd": "inf"}, "max_budget_usd", "finite_number"),
        ({"max_budget_usd": "much"}, "max_budget_usd", "decimal_parsing"),
        ({"effort": "huge"}, "effort", "literal_error"),
        ({"thinking": "on"}, "thinking", "model_attributes_type"),
        ({"thinking": {}}, "thinking", "union_tag_not_found"),
        ({"thinking": {"type": "on"}}, "thinking", "union_tag_invalid"),
        ({"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens", "missing"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1023}},
            "thinking.enabled.budget_tokens",
            "greater_than_equal",
        ),
        (
            {"thinking": {"type": "adaptive", "budget_tokens": 2000}},
            "thinking.adaptive.budget_tokens",
            "extra_forbidden",
        ),
        (
            {"thinking": {"type": "disabled", "display": "omitted"}},
            "thinking.disabled.display",
            "extra_forbidden",
        ),
        (
            {"thinking": {"type": "adaptive", "display": "loud"}},
            "thinking.adaptive.display",
            "literal_error",
        ),
        ({"max_thinking_tokens": 5}, "", "thinking_tokens"),
        ({"max_thinking_tokens": -1}, "", "thinking_tokens"),
        ({"maxThinkingTokens": "many"}, "", "thinking_tokens"),
        ({"max_thinking_tokens": False}, "", "thinking_tokens"),
        ({"task_budget": {}}, "task_budget.total", "missing"),
        ({"task_budget": {"total": 0}}, "task_budget.total", "greater_than_equal"),
        ({"betas": ["a,b"]}, "betas.0", "string_pattern_mismatch"),
        ({"betas": ["a\r\nx: y"]}, "betas.0", "string_pattern_mismatch"),
        ({"betas": ["a"] * 21}, "betas", "too_long"),
        ({"model": ""}, "model", "string_too_short"),
        ({"model": "m" * 201}, "model", "string_too_long"),
        ({"allowed_tools": "Read"}, "allowed_tools", "list_type"),
        ({"permission_mode": "yolo"}, "permission_mode", "literal_error"),
        ({"permission_mode": ["default"]}, "permission_mode", "literal_error"),
    ],
)
@pytest.mark.requirement("options:values")
def test_a_value_that_makes_no_sense_is_refused_where_it_stands(
    given: dict[str, Any], where: str, why: str
) -> None:
    assert faults(given) == [(where, why)]


@pytest.mark.requirement("loop:thinking")
@pytest.mark.parametrize(
    ("given", "thinking"),
    [
        ({"max_thinking_tokens": 0}, {"type": "disabled"}),
        ({"maxThinkingTokens": 4000}, {"type": "enabled", "budget_tokens": 4000}),
        ({"thinking": {"type": "enabled", "budgetTokens": 2000}}, None),
        (
            {"max_thinking_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
            None,
        ),
    ],
)
def test_the_older_option_for_thinking_is_read_as_the_newer_one(
    given: dict[str, Any], thinking: dict[str, Any] | None
) -> None:
    read = options(**given)
    wanted = thinking or {"type": "enabled", "budget_tokens": 2000}
    assert read == options(thinking=wanted)
    assert AgentOptions.model_validate(read.stored()) == read
    assert options(max_thinking_tokens=None) == AgentOptions()


def test_options_are_an_object() -> None:
    assert faults([]) == [("", "model_type")]  # type: ignore[arg-type]  # what a client may send


def test_a_preset_prompt_refuses_what_it_does_not_know() -> None:
    found = options(system_prompt={"type": "preset", "preset": "claude_code", "append": "x"})
    assert found.system_prompt == SystemPromptPreset(type="preset", append="x")
    assert ("system_prompt.SystemPromptPreset.more", "extra_forbidden") in faults(
        {"system_prompt": {"type": "preset", "more": 1}}
    )


@pytest.mark.requirement("options:layers")
def test_what_a_run_sets_wins_over_its_session_and_the_rest_stays() -> None:
    session = options(max_turns=5, permission_mode="acceptEdits", allowed_tools=["Read"])
    run = options(max_turns=2, allowed_tools=[], permission_mode=None, effort="low")
    assert run.over(session) == options(
        max_turns=2, permission_mode="acceptEdits", allowed_tools=[], effort="low"
    )
    assert run.over(session).over(AgentOptions()) == run.over(session)


@pytest.mark.requirement("options:layers")
def test_options_survive_storage_with_only_what_was_set() -> None:
    kept = AgentOptions.model_validate(SET)
    stored = orjson.loads(orjson.dumps(kept.stored()))
    assert shown_options(stored) == SET
    again = AgentOptions.model_validate(stored)
    assert again == kept
    assert again.max_budget_usd == Decimal("0.50")
    assert options(max_turns=1).stored() == {"max_turns": 1}


@pytest.mark.parametrize(
    ("given", "stored"),
    [("1e2", "100"), ("1E-20", "0.00000000000000000001"), (1e-7, "0.0000001"), ("5.00", "5.00")],
)
def test_a_budget_is_stored_as_plain_digits(given: str | float, stored: str) -> None:
    kept = options(max_budget_usd=given)
    assert kept.stored() == {"max_budget_usd": stored}
    assert AgentOptions.model_validate(kept.stored()) == kept


def test_a_schema_keeps_the_order_of_its_names_wherever_it_is_stored() -> None:
    schema = {"zeta": 1, "b": {"d": 1, "c": 2}, "aa": []}
    given = options(output_format={"type": "json_schema", "schema": schema})
    stored = given.stored()
    in_another_order = {"output_format": dict(reversed(stored["output_format"].items()))}
    back = AgentOptions.model_validate(in_another_order)
    assert back.output_format is not None
    assert orjson.dumps(back.output_format.json_schema) == orjson.dumps(schema)
    assert orjson.dumps(shown_options(stored)["output_format"]["schema"]) == orjson.dumps(schema)
    assert shown_options({"model": "m"}) == {"model": "m"}


@pytest.mark.parametrize("schema", ["no JSON", "5", '{"a":' * 200 + "1" + "}" * 200])
def test_a_stored_schema_that_is_none_is_refused(schema: str) -> None:
    given = {"output_format": {"type": "json_schema", "schema": schema}}
    assert [where for where, _ in faults(given)] == ["output_format.schema"]
