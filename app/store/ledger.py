"""Sums over the ledger: all money that is ever shown comes from here."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from app.domain.usage import ModelSpend, Spend, Usage, of_main_thread
from app.store.engine import Database

_SUMS = """
SELECT run_id = $3 AS is_this_run, model,
       purpose, thread,
       sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
       sum(cache_read_tokens)::bigint AS cache_read_tokens,
       sum(cache_write_5m_tokens)::bigint AS cache_write_5m_tokens,
       sum(cache_write_1h_tokens)::bigint AS cache_write_1h_tokens,
       sum(thinking_tokens)::bigint AS thinking_tokens,
       sum(web_search_requests)::bigint AS web_search_requests,
       coalesce(sum(cost_usd), 0) AS cost_usd, bool_or(cost_usd IS NULL) AS is_unpriced,
       sum(duration_ms)::bigint AS duration_ms
FROM ledger WHERE tenant_id = $1 AND session_id = $2 GROUP BY 1, 2, 3, 4"""


async def spends(
    database: Database, tenant_id: str, session_id: str, run_id: str, *, thread: str | None = None
) -> tuple[Spend, Spend]:
    """Give what the session spent before (or beside) a run, and what the run spent.

    `thread`: of a subagent in the background, which its run's own conversation is.
    """
    before, run = Spend(), Spend()
    for row in await database.raw.fetch(_SUMS, tenant_id, session_id, run_id):
        usage = Usage(
            row["input_tokens"],
            row["output_tokens"],
            row["cache_read_tokens"],
            row["cache_write_5m_tokens"],
            row["cache_write_1h_tokens"],
            row["thinking_tokens"],
            row["web_search_requests"],
        )
        is_own = thread is not None and row["is_this_run"] and row["thread"] == thread
        purpose = "main" if is_own and row["purpose"] == "subagent" else row["purpose"]
        part = Spend(
            {row["model"]: ModelSpend(usage, row["cost_usd"], row["is_unpriced"])},
            of_main_thread(usage, purpose, None if is_own else row["thread"]),
            row["duration_ms"],
        )
        if row["is_this_run"]:
            run = run.merged(part)
        else:
            before = before.merged(part)
    return before, run


def spend_json(spend: Spend) -> dict[str, Any]:
    """Give the form in which a fork keeps what its parent had spent."""
    return {
        model: {
            "usage": [
                part.usage.input_tokens,
                part.usage.output_tokens,
                part.usage.cache_read_tokens,
                part.usage.cache_write_5m_tokens,
                part.usage.cache_write_1h_tokens,
                part.usage.thinking_tokens,
                part.usage.web_search_requests,
            ],
            "cost_usd": str(part.cost_usd),
            "is_unpriced": part.unpriced,
        }
        for model, part in spend.by_model.items()
    }


def spend_of(value: Mapping[str, Any] | None) -> Spend:
    """Read what `spend_json` wrote."""
    return Spend(
        {
            model: ModelSpend(Usage(*part["usage"]), Decimal(part["cost_usd"]), part["is_unpriced"])
            for model, part in (value or {}).items()
        }
    )
