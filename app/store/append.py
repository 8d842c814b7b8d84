"""The append to the journal, with its fence.

One statement checks the session's epoch, hands out the sequence numbers, inserts the rows and
whatever else belongs to the step (ledger, consumed prompts, the run's terminal state). No row back
means that another host owns the session, or that it was let go: nothing was written.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy
from ulid import ULID

from app.domain.actions import (
    ACTION_EXPIRED,
    ACTION_OPENED,
    ACTION_RESOLVED,
    ACTION_WITHDRAWN,
    RUN_RESUMED,
    RUN_WAITS,
)
from app.domain.journal import Batch, Launch, ServiceEvent
from app.domain.runs import Outcome
from app.errors import LeaseLost
from app.store.engine import Database
from app.store.leases import Lease
from app.store.relations import Relation, shape
from app.store.rows import (
    Row,
    ledger_values,
    new_rows,
    row_values,
    service_body,
    stored_rows,
)

CANCEL_REQUESTED = "run.cancel_requested"
_NOT_OF_BATCHES = (
    CANCEL_REQUESTED,
    *(ACTION_OPENED, ACTION_RESOLVED, ACTION_EXPIRED, ACTION_WITHDRAWN, RUN_WAITS, RUN_RESUMED),
)
"""Rows of a run that are written beside its batches: by clients, or while it waits for them."""


async def append(
    database: Database,
    lease: Lease,
    batch: Batch,
    *,
    first: Sequence[ServiceEvent] = (),
    on_mail: Callable[[], None] | None = None,
    keeps_session: bool = False,
    is_beside: bool = False,
) -> list[Row]:
    """Store a batch under the fence; `first` events come before its entries.

    `on_mail` is called when prompts wait that were sent into the run.

    A batch with an outcome also finishes the run and lets the session go, in the same transaction;
    or the host `keeps_session` without a run, at the next epoch. The end of a run that `is_beside`
    others, a subagent's in the background, leaves the session as it is, and is to be told.

    Raises `LeaseLost` when the session has another owner, and what asyncpg raises when the database
    is gone: whether the batch was stored is then unknown to the caller, who must reload the session
    before it writes again.
    """
    now = datetime.now(UTC)
    new = new_rows(batch, lease.session_id, lease.run_id, now, first=first)
    sql = _append_sql(
        rows=shape(new),
        ledger=shape(batch.ledger),
        has_consumed=bool(batch.consumed),
        is_last=batch.outcome is not None,
        keeps_session=keeps_session,
        has_audit=any(row.audit for row in new),
        is_beside=is_beside,
        has_launches=bool(batch.launches),
        tells=bool(batch.told),
    )
    values = [lease.tenant_id, lease.session_id, lease.epoch, lease.run_id, len(new)]
    values += _ROWS.arguments([row_values(row) for row in new])
    if batch.ledger:
        values += _SPENT.arguments([ledger_values(row) for row in batch.ledger])
    if batch.consumed:
        values += [list(batch.consumed), batch.steered]
    if batch.outcome is not None:
        values += _outcome_values(batch.outcome)
    if batch.launches:
        values += _launch_columns(batch.launches)
    if batch.told:
        values.append(list(batch.told))
    fenced = await database.raw.fetchrow(sql, *values)
    last_seq: int | None = fenced["last_seq"] if fenced else None
    if fenced and fenced["pending_steers"] and on_mail:
        on_mail()
    left: list[Row] = []
    if last_seq is None and batch.outcome is not None and not is_beside:
        last_seq, left = await _end_with_mail(database, lease, sql, values)
    if last_seq is None:
        raise LeaseLost(f"session {lease.session_id} has another owner than epoch {lease.epoch}")
    rows = stored_rows(new, lease.run_id, last_seq, now)
    return [*rows, *left]


async def _end_with_mail(
    database: Database, lease: Lease, sql: str, values: Sequence[object]
) -> tuple[int, list[Row]]:
    """End a run into which prompts were sent that it did not take: each gets a run of its own.

    Gives the last seq of the ended run, and the rows of the new ones. Raises `LeaseLost`.
    """
    async with database.raw.acquire() as connection, connection.transaction():
        await connection.execute(
            """UPDATE sessions SET pending_steers = 0 WHERE tenant_id = $1 AND id = $2
                 AND epoch = $3 AND owner IS NOT NULL""",
            lease.tenant_id,
            lease.session_id,
            lease.epoch,
        )
        last_seq: int | None = await connection.fetchval(sql, *values)
        if last_seq is None:
            raise LeaseLost(f"session {lease.session_id} is not held at epoch {lease.epoch}")
        late = await connection.fetch(
            """SELECT id FROM inbox WHERE tenant_id = $1 AND run_id = $2 AND consumed_seq IS NULL
                 AND is_steer ORDER BY position""",
            lease.tenant_id,
            lease.run_id,
        )
        return last_seq, [await _own_run(connection, lease, prompt["id"]) for prompt in late]


async def _own_run(
    connection: "PoolConnectionProxy[asyncpg.Record]", lease: Lease, prompt_id: str
) -> Row:
    """Make a run of a prompt that came too late for the one that it was sent into."""
    run_id = f"run_{ULID()}"
    now = datetime.now(UTC)
    queued = service_body(ServiceEvent("run.queued"), lease.session_id, run_id, now)
    seq = await connection.fetchval(
        _OWN_RUN, lease.tenant_id, lease.session_id, lease.run_id, run_id, queued
    )
    await connection.execute(
        """UPDATE inbox SET run_id = $3, is_steer = false WHERE tenant_id = $1 AND id = $2""",
        lease.tenant_id,
        prompt_id,
        run_id,
    )
    return Row(seq, run_id, "service", "run.queued", queued, now)


_OWN_RUN = """
WITH s AS (
  UPDATE sessions SET last_seq = last_seq + 1, num_runs = num_runs + 1
  WHERE tenant_id = $1 AND id = $2 RETURNING last_seq),
r AS (
  INSERT INTO runs (tenant_id, id, session_id, status, options, metadata, priority,
    recovery_policy, max_attempts, queued_seq, first_seq, resumed_from)
  SELECT tenant_id, $4, session_id, 'queued', options, metadata, priority, recovery_policy,
    max_attempts, s.last_seq, s.last_seq,
    (SELECT uuid FROM journal WHERE tenant_id = $1 AND session_id = $2 AND kind = 'message'
     ORDER BY seq DESC LIMIT 1)
  FROM runs, s WHERE tenant_id = $1 AND id = $3),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  SELECT $1, $2, last_seq, $4, 'service', 'run.queued', $5 FROM s)
SELECT last_seq FROM s"""


async def was_stored(database: Database, lease: Lease, *, after: int) -> bool:
    """Say whether the run has a row beyond `after`: was an append stored after all?

    Waits for an append that the server is still at, though its client heard of no end.
    """
    key = (lease.tenant_id, lease.session_id)
    await database.raw.execute(
        "SELECT 1 FROM sessions WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE", *key
    )
    found: bool = await database.raw.fetchval(
        """SELECT EXISTS (SELECT 1 FROM journal WHERE tenant_id = $1 AND session_id = $2
             AND seq > $3 AND run_id = $4 AND type <> ALL($5::text[]))""",
        *key,
        after,
        lease.run_id,
        list(_NOT_OF_BATCHES),
    )
    return found


# -- the statement ----------------------------------------------------------------------------

_ROWS = Relation(
    "n",
    (
        *(("kind", "text"), ("type", "text"), ("subtype", "text"), ("uuid", "text")),
        *(("parent", "text"), ("body", "text"), ("facts", "text"), ("audit", "text")),
    ),
)
_SPENT = Relation(
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
def _append_sql(
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
    given = [f"n AS (SELECT * FROM {_ROWS.sql(rows, next_argument)})"]
    next_argument += _ROWS.arity(rows)
    fence_changes = ""
    parts: list[str] = []
    changes: list[str] = []
    if ledger:
        given.append(f"spent AS (SELECT * FROM {_SPENT.sql(ledger, next_argument)})")
        next_argument += _SPENT.arity(ledger)
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


def _launch_columns(launches: Sequence[Launch]) -> list[object]:
    return [
        [launch.run_id for launch in launches],
        [orjson.dumps(launch.options).decode() for launch in launches],
        [orjson.dumps(launch.launched).decode() for launch in launches],
    ]


def _outcome_values(outcome: Outcome) -> list[object]:
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
