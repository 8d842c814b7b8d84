"""How actions are settled: answered by a client, expired by the clock, withdrawn with their run.

Each time the session's row is locked first, the log tells of it, and a run that waits without a
host becomes claimable.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.actions import ACTION_EXPIRED, ACTION_RESOLVED
from app.domain.journal import ServiceEvent
from app.errors import LeaseLost
from app.store.engine import Database, sql
from app.store.leases import Lease
from app.store.rows import service_body

DUE_AT_ONCE = 200
"""Actions that one look for expired ones settles."""


def _status(tenant: str, run: str, action: str) -> str:
    """Give a run's status once this action is settled: if nothing else is asked, it waits no more."""
    return f"""CASE WHEN status <> 'requires_action' OR EXISTS (
      SELECT 1 FROM actions o WHERE o.tenant_id = {tenant} AND o.run_id = {run}
        AND o.id <> {action} AND o.status = 'pending') THEN status
    WHEN has_waited THEN 'queued' ELSE 'running' END"""


async def resolve_action(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    run_id: str,
    action_id: str,
    *,
    answer: dict[str, Any],
    by: str,
) -> None:
    """Store the answer of a pending action; the caller holds its session's row."""
    body = service_body(
        ServiceEvent(ACTION_RESOLVED, {"action_id": action_id}),
        session_id,
        run_id,
        datetime.now(UTC),
    )
    await connection.execute(
        sql(
            f"""
WITH s AS (
  UPDATE sessions SET last_seq = last_seq + 1, updated_at = clock_timestamp()
  WHERE tenant_id = :tenant AND id = :session RETURNING last_seq),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  SELECT :tenant, :session, last_seq, :run, 'service', '{ACTION_RESOLVED}', :body FROM s),
r AS (
  UPDATE runs SET is_parked = false, status = {_status(":tenant", ":run", ":action")}
  WHERE tenant_id = :tenant AND id = :run)
UPDATE actions SET status = 'resolved', answer = :answer, answered_by = :by,
  settled_at = clock_timestamp()
WHERE tenant_id = :tenant AND id = :action"""
        ),
        {
            "tenant": tenant_id,
            "session": session_id,
            "run": run_id,
            "action": action_id,
            "answer": orjson.dumps(answer).decode(),
            "by": by,
            "body": body,
        },
    )


async def answer_call(
    database: Database, lease: Lease, tool_use_id: str, *, answer: dict[str, Any], by: str
) -> bool:
    """Answer the action of a call for its own host; False when none is pending. Raises `LeaseLost`."""
    async with database.begin() as connection:
        held = await connection.execute(
            sql(
                """SELECT 1 FROM sessions WHERE tenant_id = :tenant AND id = :session
                     AND epoch = :epoch AND owner IS NOT NULL FOR NO KEY UPDATE"""
            ),
            {"tenant": lease.tenant_id, "session": lease.session_id, "epoch": lease.epoch},
        )
        if held.first() is None:
            raise LeaseLost(f"session {lease.session_id} is not held at epoch {lease.epoch}")
        found = await connection.execute(
            sql(
                """SELECT id FROM actions WHERE tenant_id = :tenant AND run_id = :run
                     AND tool_use_id = :call AND status = 'pending'
                     AND (expires_at IS NULL OR expires_at > clock_timestamp())"""
            ),
            {"tenant": lease.tenant_id, "run": lease.run_id, "call": tool_use_id},
        )
        action_id = found.scalar_one_or_none()
        if action_id is None:
            return False
        await resolve_action(
            connection,
            lease.tenant_id,
            lease.session_id,
            lease.run_id,
            action_id,
            answer=answer,
            by=by,
        )
        return True


@dataclass(frozen=True, slots=True)
class Due:
    """An action that expired."""

    tenant_id: str
    session_id: str
    run_id: str
    seq: int
    """Of the event that says so."""


async def expire_due(database: Database) -> list[Due]:
    """Settle actions whose time is over, by the database's clock; unpark runs at their deadline.

    What another host, or a writer of the same session, is at is left for the next time.
    """
    await database.raw.execute(
        """WITH due AS MATERIALIZED (
             SELECT tenant_id, id FROM runs
             WHERE is_parked AND deadline_at <= clock_timestamp() FOR NO KEY UPDATE SKIP LOCKED)
           UPDATE runs SET is_parked = false FROM due
           WHERE runs.tenant_id = due.tenant_id AND runs.id = due.id"""
    )
    rows = await database.raw.fetch(
        """SELECT tenant_id, session_id, run_id, id FROM actions
           WHERE status = 'pending' AND expires_at <= clock_timestamp()
           ORDER BY expires_at LIMIT $1""",
        DUE_AT_ONCE,
    )
    expired: list[Due] = []
    for row in rows:
        async with database.raw.acquire() as connection, connection.transaction():
            seq = await _expire(connection, row)
        if seq is not None:
            expired.append(Due(row["tenant_id"], row["session_id"], row["run_id"], seq))
    return expired


async def _expire(
    connection: "PoolConnectionProxy[asyncpg.Record]", row: "asyncpg.Record"
) -> int | None:
    tenant_id, session_id, run_id = row["tenant_id"], row["session_id"], row["run_id"]
    held = await connection.fetchval(
        """SELECT 1 FROM sessions WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE SKIP LOCKED""",
        tenant_id,
        session_id,
    )
    if held is None:
        return None
    event = ServiceEvent(ACTION_EXPIRED, {"action_id": row["id"]})
    seq: int | None = await connection.fetchval(
        f"""
WITH a AS (
  UPDATE actions SET status = 'expired', settled_at = clock_timestamp()
  WHERE tenant_id = $1 AND id = $4 AND status = 'pending' RETURNING id),
s AS (
  UPDATE sessions SET last_seq = last_seq + 1, updated_at = clock_timestamp() FROM a
  WHERE sessions.tenant_id = $1 AND sessions.id = $2 RETURNING last_seq),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  SELECT $1, $2, last_seq, $3, 'service', '{ACTION_EXPIRED}', $5 FROM s),
r AS (
  UPDATE runs SET is_parked = false, status = {_status("$1", "$3", "$4")} FROM a
  WHERE runs.tenant_id = $1 AND runs.id = $3)
SELECT last_seq FROM s""",
        tenant_id,
        session_id,
        run_id,
        row["id"],
        service_body(event, session_id, run_id, datetime.now(UTC)),
    )
    return seq
