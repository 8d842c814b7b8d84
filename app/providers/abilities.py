"""What models take of thinking, effort and tool search: the operator's word first, then what we ship.

Source of the shipped table: the provider's pages on thinking, effort and each model, November
2026. A model on neither list takes everything: its provider will say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from app.domain.thinking import EFFORTS, Abilities
from app.errors import ConfigError

_UP_TO_HIGH = EFFORTS[:3]
_BUDGET_ONLY = Abilities(efforts=(), adaptive=False, tool_search=True)
_BOTH = Abilities(efforts=("low", "medium", "high", "max"), tool_search=True)
_ADAPTIVE = Abilities(budget=False, tool_search=True)
_ADAPTIVE_UNLESS_DEEP = replace(_ADAPTIVE, off_efforts=_UP_TO_HIGH)
_ALWAYS = replace(_ADAPTIVE, off=None)

SHIPPED: Mapping[str, Abilities] = {
    "claude-3-5-haiku": Abilities(efforts=(), adaptive=False, budget=False, off=None),
    "claude-haiku-4-5": replace(_BUDGET_ONLY, tool_search=False),
    "claude-sonnet-4": _BUDGET_ONLY,
    "claude-sonnet-4-5": _BUDGET_ONLY,
    "claude-opus-4-5": replace(_BUDGET_ONLY, efforts=_UP_TO_HIGH),
    "claude-sonnet-4-6": _BOTH,
    "claude-opus-4-6": _BOTH,
    "claude-opus-4-7": _ADAPTIVE,
    "claude-opus-4-8": _ADAPTIVE,
    "claude-sonnet-5": _ADAPTIVE,
    "claude-opus-5": _ADAPTIVE_UNLESS_DEEP,
    "claude-haiku-5-5": replace(_ADAPTIVE_UNLESS_DEEP, tool_search=False),
    "claude-sonnet-5-5": replace(_ADAPTIVE_UNLESS_DEEP, off="between_tools"),
    "claude-opus-5-5": _ALWAYS,
    "claude-fable-5": _ALWAYS,
    "claude-fable-5-1": _ALWAYS,
    "claude-fable-5-2": _ALWAYS,
}

_KINDS = ("adaptive", "budget")
_OFF = ("disabled", "between_tools", "never")


def ability_table(
    overrides: Mapping[str, Mapping[str, Any]], known: Mapping[str, Abilities] = SHIPPED
) -> Mapping[str, Abilities]:
    """Lay the operator's figures over the known ones, field by field.

    `efforts` and `off_efforts` are lists of levels, `thinking` a list of `adaptive` and `budget`,
    `off` one of `disabled`, `between_tools`, `never`, `tool_search` `yes` or `no`. Raises
    `ConfigError`.
    """
    table = dict(known)
    for model, fields in overrides.items():
        table[model] = _changed(model, table.get(model, Abilities()), fields)
    return table


def _changed(model: str, known: Abilities, fields: Mapping[str, Any]) -> Abilities:
    for name, value in fields.items():
        match name:
            case "efforts":
                known = replace(known, efforts=_words(model, name, value, EFFORTS))
            case "off_efforts":
                known = replace(known, off_efforts=_words(model, name, value, EFFORTS))
            case "thinking":
                kinds = _words(model, name, value, _KINDS)
                known = replace(known, adaptive="adaptive" in kinds, budget="budget" in kinds)
            case "off":
                known = replace(known, off=_off(model, value))
            case "tool_search":
                known = replace(known, tool_search=_yes(model, name, value))
            case _:
                raise ConfigError(f"Abilities of {model!r}: unknown field {name!r}.")
    return known


def _words(model: str, name: str, value: object, known: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or any(word not in known for word in value):
        raise ConfigError(
            f"Abilities of {model!r}: {name!r} must be a list of: {', '.join(known)}."
        )
    return tuple(word for word in known if word in value)


def _off(model: str, value: object) -> Literal["disabled", "between_tools"] | None:
    match value:
        case "disabled" | "between_tools":
            return value
        case "never":
            return None
        case _:
            raise ConfigError(f"Abilities of {model!r}: 'off' must be one of: {', '.join(_OFF)}.")


def _yes(model: str, name: str, value: object) -> bool:
    if value not in ("yes", "no"):
        raise ConfigError(f"Abilities of {model!r}: {name!r} must be 'yes' or 'no'.")
    return value == "yes"
