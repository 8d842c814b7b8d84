"""The run that nobody asked for: a background task has ended, and the model is to hear of it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from ulid import ULID

from app.domain.journal import ServiceEvent
from app.store.claims import Claim
from app.store.engine import Database
from app.store.leases import Host, Lease
from app.store.rows import service_body


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A run that was made."""

    run_id: str
    last_seq: int
    claim: Claim | None
    """None when it waits for a slot of the host."""


async def follow_up(
    database: Database, host: Host, kept: Lease, options: dict[str, Any], *, may_claim: bool
) -> FollowUp | None:
    """Make a run that follows `kept.run_id`, in the session that the host keeps.

    `options` are that run's with what is left of its budget. What a client has changed since counts.
    None, and nothing is made, when the session has an unfinished run (that one will tell), is
    archived, or is not the host's any more.
    """
    run_id = f"run_{ULID()}"
    queued = service_body(ServiceEvent("run.queued"), kept.session_id, run_id, datetime.now(UTC))
    async with database.raw.acquire() as connection, connection.transaction():
        held = await connection.fetchval(
            """SELECT 1 FROM sessions WHERE tenant_id = $1 AND id = $2 AND epoch = $3 AND owner = $4
                 AND archived_at IS NULL FOR NO KEY UPDATE""",
            kept.tenant_id,
            kept.session_id,
            kept.epoch,
            host.id,
        )
        if held is None:
            return None
        # A statement of its own: it sees what was committed while the lock was waited for.
        row = await connection.fetchrow(
            _FOLLOW_UP,
            kept.tenant_id,
            kept.session_id,
            kept.run_id,
            run_id,
            queued,
            orjson.dumps(options).decode(),
            may_claim,
            host.lease_s,
        )
    if row is None:
        return None
    lease = Lease(kept.tenant_id, kept.session_id, run_id, row["epoch"])
    claim = Claim(lease, 1, 0, row["last_seq"]) if may_claim else None
    return FollowUp(run_id, row["last_seq"], claim)


async def is_archived(database: Database, kept: Lease) -> bool:
    """Whether a session that a host keeps was archived: no run can follow in it."""
    found: bool = await database.raw.fetchval(
        "SELECT archived_at IS NOT NULL FROM sessions WHERE tenant_id = $1 AND id = $2",
        kept.tenant_id,
        kept.session_id,
    )
    return found


_FOLLOW_UP = """
WITH s AS (
  UPDATE sessions SET last_seq = last_seq + 1, num_runs = num_runs + 1,
    updated_at = clock_timestamp(), pending_steers = 0, epoch = epoch + $7::bool::int,
    lease_expires_at = clock_timestamp() + make_interval(secs => $8)
  WHERE tenant_id = $1 AND id = $2 AND NOT EXISTS (SELECT 1 FROM runs WHERE tenant_id = $1
    AND session_id = $2 AND status <> 'finished' AND origin <> 'subagent')
  RETURNING last_seq, epoch),
r AS (
  INSERT INTO runs (tenant_id, id, session_id, status, options, metadata, origin, parent_run_id,
    priority, recovery_policy, max_attempts, queued_seq, first_seq, resumed_from, attempt,
    claim_seq, started_at)
  SELECT p.tenant_id, $4, p.session_id, CASE WHEN $7 THEN 'running' ELSE 'queued' END,
    CASE WHEN p.next_options IS NULL THEN $6::jsonb ELSE p.next_options || jsonb_strip_nulls(
      jsonb_build_object('max_budget_usd', $6::jsonb -> 'max_budget_usd')) END,
    p.metadata, 'task-notification', p.id, p.priority, p.recovery_policy, p.max_attempts,
    s.last_seq, s.last_seq,
    (SELECT uuid FROM journal WHERE tenant_id = $1 AND session_id = $2 AND kind = 'message'
     ORDER BY seq DESC LIMIT 1),
    $7::bool::int, CASE WHEN $7 THEN s.last_seq END, CASE WHEN $7 THEN clock_timestamp() END
  FROM runs p, s WHERE p.tenant_id = $1 AND p.id = $3),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  SELECT $1, $2, last_seq, $4, 'service', 'run.queued', $5 FROM s)
SELECT last_seq, epoch FROM s"""
