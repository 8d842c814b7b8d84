"""Thinking, effort, and what of them a model takes.

Source: the observed requests (loop 14.1) and the provider's pages on thinking and effort.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from app.domain.value import value

Effort = Literal["low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
LEAST_BUDGET_TOKENS = 1024
"""The provider takes no smaller budget."""
Display = Literal["summarized", "omitted", "updates"]


class _Thinking(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ThinkingAdaptive(_Thinking):
    """The model decides when and how much it thinks."""

    type: Literal["adaptive"]
    display: Display | None = None
    """What is shown of it. Default: `updates`."""


class ThinkingEnabled(_Thinking):
    """Thinking within a budget. A model that only knows adaptive thinking gets that."""

    type: Literal["enabled"]
    budget_tokens: Annotated[
        int,
        Field(
            strict=True,
            ge=LEAST_BUDGET_TOKENS,
            validation_alias=AliasChoices("budget_tokens", "budgetTokens"),
        ),
    ]
    """Less than the model's largest output."""
    display: Display | None = None
    """What is shown of it. Default: the model's."""


class ThinkingDisabled(_Thinking):
    """No thinking before the answer."""

    type: Literal["disabled"]


Thinking = Annotated[
    ThinkingAdaptive | ThinkingEnabled | ThinkingDisabled, Field(discriminator="type")
]


class TaskBudget(_Thinking):
    """Tokens for the whole task, which the model is told about."""

    total: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a model takes. An unknown model takes everything: its provider will say."""

    efforts: tuple[str, ...] = EFFORTS
    """Levels, the lowest first; none: the model knows no effort."""
    adaptive: bool = True
    budget: bool = True
    """Whether it thinks adaptively, and within a budget."""
    off: Literal["disabled", "between_tools"] | None = "disabled"
    """What turns thinking off, or the nearest to it; None: it always thinks, or never does."""
    off_efforts: tuple[str, ...] = EFFORTS
    """Levels that go with thinking turned off."""
    tool_search: bool = False
    """Whether tools can be loaded in the middle of a conversation. Not expected of an unknown model:
    it gets them upfront, which every model takes."""

    @property
    def thinks(self) -> bool:
        return self.adaptive or self.budget


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why options do not fit a model."""

    pointer: str
    """Beneath the options: `/thinking`, `/effort`."""
    code: str
    message: str


@value
class Asked:
    """What a request says about thinking and effort, and what of the options it cannot say."""

    thinking: dict[str, Any] | None = None
    effort: str | None = None
    notes: tuple[str, ...] = ()
    """What a person should know: sentences."""


def misfit(
    thinking: Thinking | None, effort: Effort | None, abilities: Abilities, max_output: int
) -> Refusal | None:
    """Say what of the options the model would refuse; None when it takes them, or their like."""
    levels = abilities.efforts
    if effort is not None and levels and effort not in levels:
        return Refusal("/effort", "unsupported_effort", f"must be one of: {', '.join(levels)}")
    match thinking:
        case ThinkingDisabled() if abilities.thinks and abilities.off is None:
            return Refusal("/thinking", "always_thinks", "the model cannot stop thinking")
        case ThinkingDisabled() if effort is not None and levels:
            if effort not in abilities.off_efforts:
                known = ", ".join(abilities.off_efforts)
                why = f"with thinking disabled, must be one of: {known}"
                return Refusal("/effort", "unsupported_effort", why)
        case ThinkingAdaptive() | ThinkingEnabled() if not abilities.thinks:
            return Refusal("/thinking", "unsupported_thinking", "the model does not think")
        case ThinkingEnabled(budget_tokens=tokens) if abilities.budget and tokens >= max_output:
            why = f"must be less than the model's largest output, {max_output}"
            return Refusal("/thinking/budget_tokens", "less_than", why)
        case _:
            pass
    return None


def asked_of(
    model: str,
    thinking: Thinking | None,
    effort: Effort | None,
    abilities: Abilities,
    max_output: int,
) -> Asked:
    """Translate options into the model's terms. What it cannot take is left out, and told."""
    notes: list[str] = []
    if effort is not None and effort not in abilities.efforts:
        notes.append(f"{model} does not take the effort {effort!r}, so none is sent.")
        effort = None
    return Asked(_translated(model, thinking, abilities, max_output, notes), effort, tuple(notes))


def _translated(
    model: str,
    thinking: Thinking | None,
    abilities: Abilities,
    max_output: int,
    notes: list[str],
) -> dict[str, Any] | None:
    match thinking:
        case None:
            return None
        case ThinkingDisabled():
            return _turned_off(model, abilities, notes)
        case _ if not abilities.thinks:
            notes.append(f"{model} does not think, so that is not asked for.")
            return None
        case ThinkingEnabled(budget_tokens=tokens) if not abilities.budget:
            notes.append(
                f"{model} takes no budget for thinking ({tokens} tokens): it thinks adaptively."
            )
            return _adaptive(thinking.display)
        case ThinkingEnabled(budget_tokens=tokens):
            return _within(min(tokens, max_output - 1), thinking.display)
        case ThinkingAdaptive() if not abilities.adaptive:
            return _within(max_output - 1, thinking.display)
        case ThinkingAdaptive():
            return _adaptive(thinking.display)


def _turned_off(model: str, abilities: Abilities, notes: list[str]) -> dict[str, Any] | None:
    if abilities.off is None:
        if abilities.thinks:
            notes.append(f"{model} cannot stop thinking.")
        return None
    if abilities.off == "between_tools":
        notes.append(f"{model} cannot stop thinking wholly: it goes on between tool calls.")
    return {"type": abilities.off}


def _adaptive(display: Display | None) -> dict[str, Any]:
    return {"type": "adaptive", "display": display or "updates"}


def _within(tokens: int, display: Display | None) -> dict[str, Any]:
    shown = {} if display is None else {"display": display}
    return {"type": "enabled", "budget_tokens": tokens, **shown}
