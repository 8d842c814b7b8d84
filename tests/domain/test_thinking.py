"""What options about thinking and effort become for a model, and what is refused."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from app.domain.thinking import EFFORTS, Abilities, Asked, Refusal, Thinking, asked_of, misfit
from app.providers.pricing import PriceTable

THINKING: TypeAdapter[Any] = TypeAdapter(Thinking)
MODELS = PriceTable()

ADAPTIVE = {"type": "adaptive"}
ENABLED = {"type": "enabled", "budget_tokens": 5000}
DISABLED = {"type": "disabled"}


def asked(model: str, thinking: object = None, effort: Any = None) -> Asked:
    option = None if thinking is None else THINKING.validate_python(thinking)
    limits = MODELS.limits(model)
    return asked_of(model, option, effort, MODELS.abilities(model), limits.max_output)


def refused(model: str, thinking: object = None, effort: Any = None) -> Refusal | None:
    option = None if thinking is None else THINKING.validate_python(thinking)
    limits = MODELS.limits(model)
    return misfit(option, effort, MODELS.abilities(model), limits.max_output)


@pytest.mark.requirement("loop:effort")
@pytest.mark.parametrize("model", ["claude-sonnet-5", "claude-opus-4-8", "house-model", "demo"])
@pytest.mark.parametrize("effort", EFFORTS)
def test_each_level_of_effort_is_sent_as_it_was_given(model: str, effort: str) -> None:
    assert asked(model, effort=effort) == Asked(effort=effort)
    assert refused(model, effort=effort) is None


@pytest.mark.requirement("loop:effort")
def test_a_model_without_effort_is_asked_for_none_and_a_person_hears_of_it() -> None:
    for model in ("claude-haiku-4-5", "claude-haiku-4-5-20251001"):
        said = asked(model, effort="high")
        assert (said.effort, said.thinking) == (None, None)
        assert said.notes == (f"{model} does not take the effort 'high', so none is sent.",)
        assert refused(model, effort="high") is None


@pytest.mark.requirement("loop:thinking")
@pytest.mark.parametrize(
    ("model", "thinking", "sent"),
    [
        # the observed requests
        ("claude-sonnet-5", None, None),
        ("claude-sonnet-5", ADAPTIVE, {"type": "adaptive", "display": "updates"}),
        ("claude-sonnet-5", DISABLED, {"type": "disabled"}),
        ("claude-haiku-4-5", ENABLED, {"type": "enabled", "budget_tokens": 5000}),
        ("claude-haiku-4-5", ADAPTIVE, {"type": "enabled", "budget_tokens": 31_999}),
        # what a client says of the display
        (
            "claude-sonnet-5",
            {**ADAPTIVE, "display": "omitted"},
            {"type": "adaptive", "display": "omitted"},
        ),
        (
            "claude-haiku-4-5",
            {**ENABLED, "display": "summarized"},
            {"type": "enabled", "budget_tokens": 5000, "display": "summarized"},
        ),
        # models that take both, and models that nobody knows
        ("claude-opus-4-6", ENABLED, {"type": "enabled", "budget_tokens": 5000}),
        ("claude-opus-4-6", ADAPTIVE, {"type": "adaptive", "display": "updates"}),
        ("house-model", ENABLED, {"type": "enabled", "budget_tokens": 5000}),
    ],
)
def test_thinking_is_asked_for_in_the_models_terms(
    model: str, thinking: object, sent: dict[str, Any] | None
) -> None:
    assert asked(model, thinking) == Asked(thinking=sent)
    assert refused(model, thinking) is None


@pytest.mark.requirement("loop:thinking")
@pytest.mark.parametrize(
    ("model", "thinking", "sent", "told"),
    [
        ("claude-sonnet-5", ENABLED, {"type": "adaptive", "display": "updates"}, "no budget"),
        ("claude-sonnet-5-5", DISABLED, {"type": "between_tools"}, "cannot stop thinking wholly"),
        # a model that takes over for another one is asked for what it can
        ("claude-opus-5-5", DISABLED, None, "cannot stop thinking"),
        ("claude-3-5-haiku", ADAPTIVE, None, "does not think"),
    ],
)
def test_what_is_asked_for_otherwise_is_told(
    model: str, thinking: object, sent: dict[str, Any] | None, told: str
) -> None:
    said = asked(model, thinking)
    assert said.thinking == sent
    (note,) = said.notes
    assert note.startswith(model)
    assert told in note


@pytest.mark.requirement("loop:thinking")
def test_a_budget_never_reaches_the_largest_output() -> None:
    thinking = THINKING.validate_python({**ENABLED, "budget_tokens": 90_000})
    said = asked_of("m", thinking, None, Abilities(), max_output=8_000)
    assert said.thinking == {"type": "enabled", "budget_tokens": 7_999}


@pytest.mark.requirement("loop:thinking-refused")
@pytest.mark.parametrize(
    ("model", "thinking", "effort", "pointer", "code"),
    [
        ("claude-opus-4-5", None, "max", "/effort", "unsupported_effort"),
        ("claude-sonnet-4-6", None, "xhigh", "/effort", "unsupported_effort"),
        ("claude-opus-5-5", DISABLED, None, "/thinking", "always_thinks"),
        ("claude-opus-5", DISABLED, "xhigh", "/effort", "unsupported_effort"),
        ("claude-3-5-haiku", ADAPTIVE, None, "/thinking", "unsupported_thinking"),
        ("claude-3-5-haiku", ENABLED, None, "/thinking", "unsupported_thinking"),
        (
            "claude-haiku-4-5",
            {**ENABLED, "budget_tokens": 32_000},
            None,
            "/thinking/budget_tokens",
            "less_than",
        ),
    ],
)
def test_what_the_model_would_refuse_is_refused_where_it_stands(
    model: str, thinking: object, effort: str | None, pointer: str, code: str
) -> None:
    refusal = refused(model, thinking, effort)
    assert refusal is not None
    assert (refusal.pointer, refusal.code) == (pointer, code)


@pytest.mark.requirement("loop:thinking-refused")
@pytest.mark.parametrize(
    ("model", "thinking", "effort"),
    [
        ("claude-opus-5", DISABLED, "high"),
        ("claude-opus-4-8", DISABLED, "max"),
        ("claude-haiku-4-5", {**ENABLED, "budget_tokens": 31_999}, None),
        ("claude-sonnet-5", {**ENABLED, "budget_tokens": 900_000}, None),
        ("claude-3-5-haiku", DISABLED, "low"),
    ],
)
def test_what_the_model_takes_is_not_refused(
    model: str, thinking: object, effort: str | None
) -> None:
    assert refused(model, thinking, effort) is None
