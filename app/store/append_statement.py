"""The text of the append's one statement, of which there are few, and the values that go with it."""

from collections.abc import Sequence
from functools import cache

import orjson

from app.domain.journal import Launch
from app.domain.runs import Outcome
from app.store.relations import Relation

ROWS = Relation(
    "n",
    (
        *(("kind", "text"), ("type", "text"), ("subtype", "text"), ("uuid", "text")),
        *(("parent", "text"), ("body", "text"), ("facts", "text"), ("audit", "text")),
    ),
)
SPENT = Relation(
    "spent",
    (
        *(("thread", "text"), ("purpose", "text"), ("model", "text"), ("request_id", "text")),
        *(("http_status", "int"), ("input_tokens", "bigint"), ("output_tokens", "bigint")),
        *(("cache_read_tokens", "bigint"), ("cache_write_5m_tokens", "bigint")),
        *(("cache_write_1h_tokens", "bigint"), ("thinking_tokens", "bigint")),
        *(("web_search_requests", "bigint"), ("cost_usd", "numeric"), ("is_estimated", "bool")),
        ("duration_ms", "int"),
    ),
)
_FENCE = """
f AS (
  UPDATE sessions SET last_seq = last_seq + $5::int, updated_at = clock_timestamp() {changes}
  WHERE tenant_id = $1 AND id = $2 AND epoch = $3 AND owner IS NOT NULL {condition}
  RETURNING last_seq, pending_steers),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, subtype, uuid,
                       parent_tool_use_id, body, facts)
  SELECT $1, $2, f.last_seq - $5::int + n.o, $4, n.kind, n.type, n.subtype, n.uuid, n.parent,
    n.body, n.facts
  FROM f, n)"""
_LEDGER = """,
l AS (
  INSERT INTO ledger (tenant_id, session_id, run_id, thread, purpose, model, request_id,
    http_status, input_tokens, output_tokens, cache_read_tokens, cache_write_5m_tokens,
    cache_write_1h_tokens, thinking_tokens, web_search_requests, cost_usd, is_estimated,
    duration_ms)
  SELECT $1, $2, $4, thread, purpose, model, request_id, http_status, input_tokens, output_tokens,
    cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, thinking_tokens,
    web_search_requests, cost_usd, is_estimated, duration_ms
  FROM f, spent)"""
_AUDIT = """,
a AS (
  INSERT INTO audit (tenant_id, session_id, seq, run_id, body)
  SELECT $1, $2, f.last_seq - $5::int + n.o, $4, n.audit FROM f, n WHERE n.audit IS NOT NULL)"""


_LAUNCH = """,
c AS (
  INSERT INTO runs (tenant_id, id, session_id, status, options, metadata, origin, parent_run_id,
    priority, deadline_at, recovery_policy, max_attempts, queued_seq, first_seq, launched)
  SELECT $1, new.id, $2, 'queued', new.options::jsonb, p.metadata, 'subagent', p.id, p.priority,
    p.deadline_at, p.recovery_policy, p.max_attempts, f.last_seq, f.last_seq + 1, new.launched::jsonb
  FROM f, runs p, unnest(${ids}::text[], ${options}::text[], ${launched}::text[])
    AS new(id, options, launched)
  WHERE p.tenant_id = $1 AND p.id = $4)"""


@cache
def append_sql(
    *,
    rows: int,
    ledger: int,
    has_consumed: bool,
    is_last: bool,
    keeps_session: bool,
    has_audit: bool,
    is_beside: bool,
    has_launches: bool,
    tells: bool,
) -> str:
    """Build the statement. Arguments beyond the first five: rows, ledger, and the rest in order."""
    next_argument = 6
    given = [f"n AS (SELECT * FROM {ROWS.sql(rows, next_argument)})"]
    next_argument += ROWS.arity(rows)
    fence_changes = ""
    parts: list[str] = []
    changes: list[str] = []
    if ledger:
        given.append(f"spent AS (SELECT * FROM {SPENT.sql(ledger, next_argument)})")
        next_argument += SPENT.arity(ledger)
        fence_changes += _SESSION_COST
        parts.append(_LEDGER)
        changes += _RUN_SUMS
    if has_consumed:
        fence_changes += (
            f", pending_steers = greatest(0, pending_steers - ${next_argument + 1}::int)"
        )
        parts.append(
            f""",
i AS (UPDATE inbox SET consumed_seq = f.last_seq FROM f
      WHERE tenant_id = $1 AND id = ANY(${next_argument}::text[]))"""
        )
        next_argument += 2
    if is_last:
        # Kept or let go, the run's own lease is worth nothing from here on.
        let_go = ", owner = NULL, lease_expires_at = NULL"
        if is_beside:
            changes.append("is_untold = true")
        else:
            fence_changes += ", epoch = epoch + 1" if keeps_session else let_go
        changes += [f"{c} = ${next_argument + i}" for i, c in enumerate(_OUTCOME_COLUMNS)]
        changes += ["status = 'finished'", "finished_at = clock_timestamp()"]
        changes += ["last_seq = f.last_seq"]
        next_argument += len(_OUTCOME_COLUMNS)
    if has_audit:
        parts.append(_AUDIT)
    if has_launches:
        fence_changes += f", num_runs = num_runs + cardinality(${next_argument}::text[])"
        ids, options, launched = range(next_argument, next_argument + 3)
        parts.append(_LAUNCH.format(ids=ids, options=options, launched=launched))
        next_argument += 3
    if tells:
        parts.append(
            f""",
t AS (UPDATE runs SET is_untold = false FROM f
      WHERE tenant_id = $1 AND session_id = $2 AND id = ANY(${next_argument}::text[]))"""
        )
    if changes:
        parts.append(
            f""",
r AS (UPDATE runs SET {", ".join(changes)} FROM f WHERE tenant_id = $1 AND id = $4)"""
        )
    # A run ends only when it has taken in every prompt that was sent into it (ADR 10).
    condition = "AND pending_steers = 0" if is_last and not is_beside else ""
    fence = _FENCE.format(changes=fence_changes, condition=condition)
    head = f"WITH {', '.join(given)},"
    return "".join([head, fence, *parts, "\nSELECT last_seq, pending_steers FROM f"])


_SESSION_COST = ", cost_usd = cost_usd + (SELECT coalesce(sum(spent.cost_usd), 0) FROM spent)"
_RUN_SUMS = [
    "input_tokens = input_tokens + (SELECT sum(spent.input_tokens) FROM spent)",
    "output_tokens = output_tokens + (SELECT sum(spent.output_tokens) FROM spent)",
    "cache_read_tokens = cache_read_tokens + (SELECT sum(spent.cache_read_tokens) FROM spent)",
    """cache_write_tokens = cache_write_tokens
         + (SELECT sum(spent.cache_write_5m_tokens + spent.cache_write_1h_tokens) FROM spent)""",
    "cost_usd = cost_usd + (SELECT coalesce(sum(spent.cost_usd), 0) FROM spent)",
    """is_estimated = is_estimated
         OR (SELECT bool_or(spent.is_estimated OR spent.cost_usd IS NULL) FROM spent)""",
]


_OUTCOME_COLUMNS = (
    "result_subtype",
    "end_reason",
    "is_error",
    "stop_reason",
    "terminal_reason",
    "num_turns",
    "result_text",
    "errors",
    "permission_denials",
)


def launch_columns(launches: Sequence[Launch]) -> list[object]:
    """Give launches as the arrays that the statement unnests."""
    return [
        [launch.run_id for launch in launches],
        [orjson.dumps(launch.options).decode() for launch in launches],
        [orjson.dumps(launch.launched).decode() for launch in launches],
    ]


def outcome_values(outcome: Outcome) -> list[object]:
    """Give an outcome as values, in the order of the run's columns."""
    return [
        outcome.subtype,
        outcome.end_reason,
        outcome.is_error,
        outcome.stop_reason,
        outcome.terminal_reason,
        outcome.num_turns,
        outcome.result_text,
        orjson.dumps(outcome.errors).decode(),
        orjson.dumps(outcome.permission_denials).decode(),
    ]
