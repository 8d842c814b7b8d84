"""The append to the journal, with its fence.

One statement checks the session's epoch, hands out the sequence numbers, inserts the rows and
whatever else belongs to the step (ledger, consumed prompts, the run's terminal state). No row back
means that another host owns the session, or that it was let go: nothing was written.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import asyncpg
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
from app.domain.journal import Batch, ServiceEvent
from app.errors import LeaseLost
from app.store.append_statement import (
    ROWS,
    SPENT,
    append_sql,
    launch_columns,
    outcome_values,
)
from app.store.engine import Database
from app.store.leases import Lease
from app.store.relations import shape
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
    sql = append_sql(
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
    values += ROWS.arguments([row_values(row) for row in new])
    if batch.ledger:
        values += SPENT.arguments([ledger_values(row) for row in batch.ledger])
    if batch.consumed:
        values += [list(batch.consumed), batch.steered]
    if batch.outcome is not None:
        values += outcome_values(batch.outcome)
    if batch.launches:
        values += launch_columns(batch.launches)
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
