"""Sums on results: what a run more, or an estimate, changes in all that follow."""

from collections.abc import Mapping, Sequence

from tests.traces.fields import USAGE_FIELDS
from tests.traces.normal import COST_DIGITS, Json

_MODEL_TOKENS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_creation_input_tokens": "cacheCreationInputTokens",
    "cache_read_input_tokens": "cacheReadInputTokens",
}


def total(usages: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Add usages up."""
    return {name: sum(usage[name] for usage in usages) for name in USAGE_FIELDS}


def add_spend(
    messages: Sequence[Json], start: int, model: str, usage: Mapping[str, int], cost_usd: float
) -> None:
    """Add to the session's sums on every result from a place on."""
    for message in messages[start:]:
        if message["type"] == "result":
            message["total_cost_usd"] = round(message["total_cost_usd"] + cost_usd, COST_DIGITS)
            spend = message["modelUsage"][model]
            spend["costUSD"] = round(spend["costUSD"] + cost_usd, COST_DIGITS)
            for name, wire in _MODEL_TOKENS.items():
                spend[wire] += usage[name]
