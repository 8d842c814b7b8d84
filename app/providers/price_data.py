"""What the price package lacks or has otherwise: shipped figures, data only.

Source: the provider's price and model pages as found in the bills of measured runs, November
2026 (Claude Sonnet 4.5 is billed at its base price whatever the prompt's length). Prices in USD
per million tokens, sizes in tokens.
"""

from collections.abc import Mapping
from typing import Any

from app.domain.usage import ModelLimits

UNKNOWN_LIMITS = ModelLimits(200_000, 32_000)
"""A safe guess: every model of the last years has at least that."""

SHIPPED_PRICES: Mapping[str, Mapping[str, Any]] = {
    "claude-sonnet-4-5": {"input": "3", "output": "15", "cache_read": "0.30"},
    # Notional: the demo model costs nothing, but budgets and sums must have something to show.
    "demo": {"input": "1", "output": "5", "cache_read": "0.10"},
}

SHIPPED_LIMITS: Mapping[str, ModelLimits] = {
    "demo": ModelLimits(200_000, 8_192),
    "claude-3-5-haiku": ModelLimits(200_000, 8_192),
    "claude-haiku-4-5": ModelLimits(200_000, 32_000),
    "claude-sonnet-4": ModelLimits(200_000, 32_000),
    "claude-sonnet-4-5": ModelLimits(200_000, 32_000),
    "claude-sonnet-4-6": ModelLimits(200_000, 32_000),
    "claude-opus-4-5": ModelLimits(200_000, 32_000),
    "claude-opus-4-6": ModelLimits(200_000, 64_000),
    "claude-opus-4-7": ModelLimits(1_000_000, 64_000),
    "claude-opus-4-8": ModelLimits(1_000_000, 64_000),
    "claude-opus-5": ModelLimits(1_000_000, 64_000),
    "claude-sonnet-5": ModelLimits(1_000_000, 64_000),
    "claude-fable-5": ModelLimits(1_000_000, 64_000),
    "claude-fable-5-1": ModelLimits(1_000_000, 64_000),
    "claude-fable-5-2": ModelLimits(1_000_000, 128_000),
    "claude-opus-5-5": ModelLimits(1_000_000, 128_000),
    "claude-sonnet-5-5": ModelLimits(1_000_000, 128_000),
    "claude-haiku-5-5": ModelLimits(1_000_000, 128_000),
}
