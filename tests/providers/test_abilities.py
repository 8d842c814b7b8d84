"""What models take: the shipped table, and what an operator lays over it."""

from typing import Any

import pytest

from app.domain.thinking import EFFORTS, Abilities
from app.errors import ConfigError
from app.providers.abilities import SHIPPED, ability_table
from app.providers.price_data import SHIPPED_LIMITS
from app.providers.pricing import PriceTable


def test_every_model_whose_sizes_we_ship_has_its_abilities_too() -> None:
    assert SHIPPED.keys() == SHIPPED_LIMITS.keys() - {"demo"}


@pytest.mark.requirement("loop:abilities")
def test_a_dated_name_has_the_abilities_of_the_model_and_an_unknown_one_has_all() -> None:
    models = PriceTable()
    assert models.abilities("claude-haiku-4-5-20251001") == SHIPPED["claude-haiku-4-5"]
    assert models.abilities("house-model") == Abilities()


@pytest.mark.requirement("loop:abilities")
def test_the_operators_table_adds_models_and_changes_known_ones_field_by_field() -> None:
    models = PriceTable(
        abilities={
            "house-model": {"efforts": ["high", "low"], "thinking": ["budget"], "off": "never"},
            "claude-opus-5": {"off_efforts": ["low"]},
            "claude-opus-4-7": {"tool_search": "no"},
            "searching": {"tool_search": "yes"},
        }
    )
    assert models.abilities("house-model") == Abilities(
        efforts=("low", "high"), adaptive=False, budget=True, off=None
    )
    assert models.abilities("claude-opus-5") == Abilities(
        budget=False, off_efforts=("low",), tool_search=True
    )
    assert models.abilities("searching") == Abilities(tool_search=True)
    assert models.abilities("claude-opus-4-7") == Abilities(budget=False)
    assert models.abilities("claude-opus-4-8").efforts == EFFORTS


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"effort": ["low"]}, "unknown field 'effort'"),
        ({"efforts": ["huge"]}, "'efforts' must be a list of"),
        ({"efforts": "low"}, "'efforts' must be a list of"),
        ({"thinking": ["deep"]}, "'thinking' must be a list of: adaptive, budget"),
        ({"off": "no"}, "'off' must be one of: disabled, between_tools, never"),
        ({"off": ["disabled"]}, "'off' must be one of"),
        ({"tool_search": ["yes"]}, "'tool_search' must be 'yes' or 'no'"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_at_the_start(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match="'house-model'") as caught:
        ability_table({"house-model": fields})
    assert said in str(caught.value)
