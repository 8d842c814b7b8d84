from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from app.domain.usage import ModelLimits, Usage
from app.errors import ConfigError
from app.providers.pricing import PriceTable

AT = datetime(2026, 11, 30, tzinfo=UTC)
MILLION = 1_000_000

# USD per million: input, output, cache read, cache write 5 m, cache write 1 h; window, max output.
TABLE = [
    ("claude-sonnet-5", "2 10 0.20 2.50 4", 1_000_000, 64_000),
    ("claude-opus-4-8", "5 25 0.50 6.25 10", 1_000_000, 64_000),
    ("claude-opus-5", "5 25 0.50 6.25 10", 1_000_000, 64_000),
    ("claude-opus-4-7", "5 25 0.50 6.25 10", 1_000_000, 64_000),
    ("claude-opus-4-5", "5 25 0.50 6.25 10", 200_000, 32_000),
    ("claude-opus-4-6", "5 25 0.50 6.25 10", 200_000, 64_000),
    ("claude-haiku-4-5", "1 5 0.10 1.25 2", 200_000, 32_000),
    ("claude-sonnet-4-5", "3 15 0.30 3.75 6", 200_000, 32_000),
    ("claude-sonnet-4-6", "3 15 0.30 3.75 6", 200_000, 32_000),
    ("claude-sonnet-4", "3 15 0.30 3.75 6", 200_000, 32_000),
    ("claude-fable-5", "10 50 1.00 12.50 20", 1_000_000, 64_000),
    ("claude-opus-5-5", "4 20 0.20 5 8", 1_000_000, 128_000),
    ("claude-sonnet-5-5", "2 10 0.10 2.50 4", 1_000_000, 128_000),
    ("claude-haiku-5-5", "0.10 0.50 0.01 0.125 0.20", 1_000_000, 128_000),
    ("claude-fable-5-2", "8 40 0.20 10 16", 1_000_000, 128_000),
    ("claude-3-5-haiku", "0.8 4 0.08 1 1.6", 200_000, 8_192),
]


@pytest.mark.parametrize(("model", "prices", "window", "max_output"), TABLE)
@pytest.mark.parametrize("date", ["", "-20260101"])
def test_prices_and_sizes_are_the_providers(
    model: str, prices: str, window: int, max_output: int, date: str
) -> None:
    table = PriceTable()
    n = 10_000  # small enough for the base price of models with tiers
    shapes = [Usage(n), Usage(0, n), Usage(0, 0, n), Usage(0, 0, 0, n), Usage(0, 0, 0, 0, n)]
    costs = [table.cost_usd(model + date, usage, AT) for usage in shapes]
    assert costs == [Decimal(price) * n / MILLION for price in prices.split()]
    assert table.limits(model + date) == ModelLimits(window, max_output)
    assert table.canonical(model + date) == model


@pytest.mark.parametrize(
    ("model", "per_million"),
    [("claude-sonnet-4-5", "3"), ("claude-sonnet-5", "2"), ("claude-haiku-5-5", "0.50")],
)
def test_a_long_prompt_costs_more_only_where_the_provider_says_so(
    model: str, per_million: str
) -> None:
    cost = PriceTable().cost_usd(model, Usage(input_tokens=250_000), AT)
    assert cost == Decimal(per_million) / 4


def test_kinds_of_tokens_add_up_and_a_web_search_is_a_cent() -> None:
    usage = Usage(100, 200, 300, 400, 500, thinking_tokens=50, web_search_requests=2)
    cost = PriceTable().cost_usd("claude-sonnet-5", usage, AT)
    micro = 100 * 2 + 200 * 10 + 300 * Decimal("0.2") + 400 * Decimal("2.5") + 500 * 4
    assert cost == micro / MILLION + Decimal("0.02")
    assert isinstance(cost, Decimal)
    assert cost.as_tuple().exponent == -9


def test_a_price_is_that_of_the_day_of_the_request() -> None:
    table, usage = PriceTable(), Usage(input_tokens=250_000)
    before = table.cost_usd("claude-opus-4-6", usage, datetime(2026, 3, 1, tzinfo=UTC))
    after = table.cost_usd("claude-opus-4-6", usage, datetime(2026, 4, 1, tzinfo=UTC))
    assert (before, after) == (Decimal("2.5"), Decimal("1.25"))


@pytest.mark.parametrize("model", ["gpt-9", "claude", "", "my/own-model", "<synthetic>"])
def test_an_unknown_model_has_no_price_and_safe_sizes(model: str) -> None:
    table = PriceTable()
    assert table.cost_usd(model, Usage(1, 1), AT) is None
    assert table.limits(model) == ModelLimits(200_000, 32_000)
    assert table.canonical(model) == model


def test_the_demo_model_has_a_notional_price() -> None:
    cost = PriceTable().cost_usd("demo", Usage(input_tokens=1_000, output_tokens=100), AT)
    assert cost == Decimal("0.0015")


def test_an_operator_adds_and_overrides_models() -> None:
    table = PriceTable(
        {
            "house-model": {"input": 4, "output": "20.5", "context_window": 32_000},
            "claude-sonnet-5": {"input": 1, "output": 1, "cache_read": 0, "cache_write_1h": 9},
            "claude-opus-5": {"max_output": 1_000},
        }
    )
    assert table.cost_usd("house-model", Usage(0, 1_000_000), AT) == Decimal("20.5")
    assert (
        table.cost_usd("house-model", Usage(0, 0, MILLION, MILLION, MILLION), AT)
        == Decimal("0.4") + 5 + 8
    )
    assert table.limits("house-model") == ModelLimits(32_000, 32_000)
    dated = "claude-sonnet-5-20260101"
    assert table.cost_usd(dated, Usage(0, 0, MILLION, 0, MILLION), AT) == 9
    assert table.limits(dated) == ModelLimits(1_000_000, 64_000)
    assert table.limits("claude-opus-5") == ModelLimits(1_000_000, 1_000)
    assert table.cost_usd("claude-opus-5", Usage(MILLION), AT) == 5


@pytest.mark.parametrize(
    "figures",
    [
        {"input": 1},
        {"input": "NaN", "output": 1},
        {"input": -1, "output": 1},
        {"input": "much", "output": 1},
        {"in": 1, "output": 1},
        {"context_window": 0},
        {"max_output": "many"},
    ],
)
def test_figures_that_make_no_sense_are_refused_at_start(figures: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'m'"):
        PriceTable({"m": figures})
