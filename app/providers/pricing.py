"""What a model request costs, and what a model can take.

Looked up in this order: the operator's figures, the few that we ship, the `genai-prices`
package as installed (it is never updated over the network). A model that none knows has no
price: that is said, never guessed (docs/adr/0007).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from types import NoneType
from typing import Any

from genai_prices import Usage as PackageUsage
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    StartDateConstraint,
    TieredPrices,
)

from app.domain.thinking import Abilities
from app.domain.usage import ModelLimits, Usage
from app.errors import ConfigError
from app.providers.abilities import ability_table
from app.providers.price_data import SHIPPED_LIMITS, SHIPPED_PRICES, UNKNOWN_LIMITS

_PROVIDER = "anthropic"
_DATE = re.compile(r"[-@]20\d{6}$")
_MILLION = Decimal(1_000_000)
_DIGITS = Decimal("0.000000001")
_WEB_SEARCH_USD = Decimal("0.01")
_PRICE_KEYS = frozenset({"input", "output", "cache_read", "cache_write_5m", "cache_write_1h"})
_SIZE_KEYS = frozenset({"context_window", "max_output"})


@dataclass(frozen=True, slots=True)
class Price:
    """Flat prices of one model, USD per million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write_5m: Decimal
    cache_write_1h: Decimal

    def cost_usd(self, usage: Usage) -> Decimal:
        """Price one request."""
        micro_usd = (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_5m_tokens * self.cache_write_5m
            + usage.cache_write_1h_tokens * self.cache_write_1h
        )
        return micro_usd / _MILLION + usage.web_search_requests * _WEB_SEARCH_USD


class PriceTable:
    """Prices and sizes of models; fits `Models`. Pure once built."""

    def __init__(
        self,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        abilities: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        has_tool_search: bool = True,
    ) -> None:
        """Build the table.

        `overrides`: per model any of `input`, `output`, `cache_read`, `cache_write_5m`,
        `cache_write_1h` (USD per million tokens), `context_window`, `max_output` (tokens). Input
        and output prices come together; the other prices follow from the input price in the
        provider's ratios (a tenth, 1.25 times, twice). `abilities`: as `ability_table` reads
        them. Without `has_tool_search` no model has that. Raises `ConfigError`.
        """
        self._abilities = ability_table(abilities or {})
        self._has_tool_search = has_tool_search
        self._prices: dict[str, Price] = {}
        self._limits = dict(SHIPPED_LIMITS)
        self._sized = {m for m, figures in (overrides or {}).items() if figures.keys() & _SIZE_KEYS}
        for source in (SHIPPED_PRICES, overrides or {}):
            for model, figures in source.items():
                self._add(model, figures)

    def warm_up(self, model: str, at: datetime) -> None:
        """Look a price up now: the first time costs a tenth of a second, for the package's data."""
        self.cost_usd(model, Usage(), at)

    def learn(self, model: str, context_window: int, max_output: int | None) -> None:
        """Take the provider's word for a model's window. The operator's own figures win.

        An answer gets no longer by it: the table's figure is what is asked for.
        """
        if self._sized & {model, self.canonical(model)}:
            return
        known = self.limits(model).max_output
        self._limits[model] = ModelLimits(context_window, min(known, max_output or known))

    def _add(self, model: str, figures: Mapping[str, Any]) -> None:
        if unknown := figures.keys() - _PRICE_KEYS - _SIZE_KEYS:
            raise ConfigError(f"Price of {model!r}: unknown field {min(unknown)!r}.")
        if figures.keys() & _PRICE_KEYS:
            self._prices[model] = _price(model, figures)
        if figures.keys() & _SIZE_KEYS:
            known = self.limits(model)
            self._limits[model] = ModelLimits(
                _size(model, figures.get("context_window", known.context_window)),
                _size(model, figures.get("max_output", known.max_output)),
            )

    def cost_usd(self, model: str, usage: Usage, at: datetime) -> Decimal | None:
        price = self._prices.get(model) or self._prices.get(self.canonical(model))
        if price is not None:
            return price.cost_usd(usage).quantize(_DIGITS)
        if (flat := _flat_price(model, at.date())) is not None:
            return flat.cost_usd(usage).quantize(_DIGITS)
        if (info := _package_model(model)) is None:
            return None
        if usage == Usage():  # asked by those who only want to know whether there is a price
            return Decimal(0).quantize(_DIGITS)
        return _package_cost(info, usage, at).quantize(_DIGITS)

    def limits(self, model: str) -> ModelLimits:
        known = self._limits.get(model) or self._limits.get(self.canonical(model))
        if known is not None:
            return known
        info = _package_model(model)
        window = info.context_window if info is not None else None
        return ModelLimits(window or UNKNOWN_LIMITS.context_window, UNKNOWN_LIMITS.max_output)

    def abilities(self, model: str) -> Abilities:
        known = self._abilities.get(model) or self._abilities.get(self.canonical(model))
        known = known or Abilities()
        return known if self._has_tool_search else replace(known, tool_search=False)

    def canonical(self, model: str) -> str:
        return _DATE.sub("", model)


@lru_cache(maxsize=256)
def _package_model(model: str) -> ModelInfo | None:
    snapshot = get_snapshot()
    # Some models are known by dated names only, some without any date.
    for name in (model, _DATE.sub("", model)):
        try:
            return snapshot.find_provider_model(name, None, _PROVIDER, None)[1]
        except LookupError:
            continue
    return None


@lru_cache(maxsize=256)
def _flat_price(model: str, day: date) -> Price | None:
    """Give the package's prices of a model that do not depend on how much is used, if so.

    Asking the package costs a fifth of a millisecond each time.
    """
    info = _package_model(model)
    if info is None:
        return None
    at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    is_tiered = any(isinstance(price, TieredPrices) for price in vars(info.get_prices(at)).values())
    if is_tiered or not (isinstance(info.prices, ModelPrice) or _change_by_day(info.prices)):
        return None
    million = 1_000_000
    return Price(
        input=_package_cost(info, Usage(input_tokens=million), at),
        output=_package_cost(info, Usage(output_tokens=million), at),
        cache_read=_package_cost(info, Usage(cache_read_tokens=million), at),
        cache_write_5m=_package_cost(info, Usage(cache_write_5m_tokens=million), at),
        cache_write_1h=_package_cost(info, Usage(cache_write_1h_tokens=million), at),
    )


def _change_by_day(prices: Sequence[ConditionalPrice]) -> bool:
    kinds = (NoneType, StartDateConstraint)
    return all(isinstance(price.constraint, kinds) for price in prices)


def _package_cost(info: ModelInfo, usage: Usage, at: datetime) -> Decimal:
    # The package's totals include their parts: input includes what was read from and written to
    # the cache, cache writes include those of one hour.
    counts = PackageUsage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
    )
    tokens_usd = info.get_prices(at).calc_price(counts)["total_price"]
    return tokens_usd + usage.web_search_requests * _WEB_SEARCH_USD


def _price(model: str, figures: Mapping[str, Any]) -> Price:
    missing = {"input", "output"} - figures.keys()
    if missing:
        raise ConfigError(f"Price of {model!r}: {min(missing)!r} is missing.")
    amounts = {key: _usd(model, figures[key]) for key in _PRICE_KEYS & figures.keys()}
    base = amounts["input"]
    return Price(
        input=base,
        output=amounts["output"],
        cache_read=amounts.get("cache_read", base / 10),
        cache_write_5m=amounts.get("cache_write_5m", base * Decimal("1.25")),
        cache_write_1h=amounts.get("cache_write_1h", base * 2),
    )


def _usd(model: str, value: object) -> Decimal:
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 <= amount <= _MILLION:
        raise ConfigError(f"Price of {model!r}: {value!r} is no price in USD per million tokens.")
    return amount


def _size(model: str, value: object) -> int:
    if isinstance(value, Decimal) and value == value.to_integral_value():  # a setting's
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 10**9:
        raise ConfigError(f"Sizes of {model!r}: {value!r} is no number of tokens.")
    return value
