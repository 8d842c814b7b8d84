"""Cancels in the tables: asked for, read by who drives the run, and runs that end unstarted."""

from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.journal import ServiceEvent
from app.domain.messages import encode_message
from app.domain.results import ErrorResult
from app.domain.runs import EndReason
from app.store.append import CANCEL_REQUESTED
from app.store.engine import Database, sql
from app.store.leases import Lease
from app.store.rows import service_body

_HELD = """
WITH held AS MATERIALIZED (
  SELECT s.id FROM runs r JOIN sessions s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
  WHERE r.tenant_id = :tenant AND r.id = :run FOR NO KEY UPDATE OF s)"""
"""The run's session is locked before its run, as whoever drives it does (ADR 19)."""


async def request_cancel(
    connection: AsyncConnection,
    tenant_id: str,
    run_id: str,
    reason: str | None,
    *,
    end_reason: EndReason = "cancelled",
    spares_tasks: bool = False,
) -> int | None:
    """Ask for a run's cancel; the first request's time, reasons and scope stay.

    Of a run that has begun the session's log tells it: gives that event's seq.
    """
    values = {"tenant": tenant_id, "run": run_id}
    asked = (
        await connection.execute(
            sql(
                f"""{_HELD}
UPDATE runs SET cancel_requested_at = clock_timestamp(), cancel_reason = :reason,
  cancel_end_reason = :end_reason, cancel_spares_tasks = :spares_tasks, is_parked = false
FROM held WHERE runs.tenant_id = :tenant AND runs.id = :run AND runs.session_id = held.id
  AND status <> 'finished' AND cancel_requested_at IS NULL
RETURNING session_id, attempt > 0 AS has_begun"""
            ),
            values | {"reason": reason, "end_reason": end_reason, "spares_tasks": spares_tasks},
        )
    ).one_or_none()
    if asked is None or not asked.has_begun:
        return None
    event = ServiceEvent(CANCEL_REQUESTED, {"reason": reason, "end_reason": end_reason})
    body = service_body(event, asked.session_id, run_id, datetime.now(UTC))
    seq: int = await connection.scalar(
        sql(
            f"""
WITH s AS (
  UPDATE sessions SET last_seq = last_seq + 1, updated_at = clock_timestamp()
  WHERE tenant_id = :tenant AND id = :session RETURNING last_seq),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  SELECT :tenant, :session, last_seq, :run, 'service', '{CANCEL_REQUESTED}', :body FROM s)
SELECT last_seq FROM s"""
        ),
        values | {"session": asked.session_id, "body": body},
    )
    return seq


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """What was asked for with a run's cancel."""

    end_reason: EndReason
    """`cancelled` by a client, or `superseded` by a prompt that takes its place."""
    spares_tasks: bool
    """Whether background tasks go on."""


async def cancel_asked(database: Database, lease: Lease) -> CancelAsked:
    """Give how a run is to be cancelled."""
    row = await database.raw.fetchrow(
        """SELECT cancel_end_reason, cancel_spares_tasks FROM runs
           WHERE tenant_id = $1 AND id = $2""",
        lease.tenant_id,
        lease.run_id,
    )
    is_superseded = row["cancel_end_reason"] == "superseded"
    return CancelAsked("superseded" if is_superseded else "cancelled", row["cancel_spares_tasks"])


async def newest_result(connection: AsyncConnection, tenant_id: str, session_id: str) -> str | None:
    """Give the body of the newest result in a session's conversation; None when it has none."""
    body: str | None = await connection.scalar(
        sql(
            """SELECT body FROM journal WHERE tenant_id = :tenant AND session_id = :session
                 AND type = 'result' AND kind = 'message' AND NOT seq <@ (
                   SELECT dropped FROM sessions WHERE tenant_id = :tenant AND id = :session)
               ORDER BY seq DESC LIMIT 1"""
        ),
        {"tenant": tenant_id, "session": session_id},
    )
    return body


async def finish_unstarted(
    connection: AsyncConnection,
    tenant_id: str,
    run_id: str,
    *,
    result: ErrorResult,
    end_reason: EndReason,
    finished_body: str,
) -> int | None:
    """End a run that no host has begun, inside the caller's transaction; give its last seq.

    None, and nothing written, when a host has begun it: its owner ends it then.
    """
    seq: int | None = await connection.scalar(
        sql(
            f"""{_HELD},
r AS (
  UPDATE runs SET status = 'finished', finished_at = clock_timestamp(), result_subtype = :subtype,
    end_reason = :end_reason, is_error = true, num_turns = 0, terminal_reason = NULL,
    errors = CAST(:errors AS jsonb), permission_denials = '[]'::jsonb
  FROM held WHERE runs.tenant_id = :tenant AND runs.id = :run AND runs.session_id = held.id
    AND status = 'queued' AND attempt = 0
  RETURNING session_id),
s AS (
  UPDATE sessions SET last_seq = last_seq + 2, updated_at = clock_timestamp() FROM r
  WHERE sessions.tenant_id = :tenant AND sessions.id = r.session_id
  RETURNING sessions.id, sessions.last_seq),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, subtype, uuid, body)
  SELECT :tenant, s.id, s.last_seq - 1, :run, 'message', 'result', :subtype, :uuid, :result FROM s
  UNION ALL
  SELECT :tenant, s.id, s.last_seq, :run, 'service', 'run.finished', NULL, NULL, :finished FROM s)
SELECT last_seq FROM s"""
        ),
        {
            "tenant": tenant_id,
            "run": run_id,
            "subtype": result.subtype,
            "end_reason": end_reason,
            "errors": orjson.dumps(result.errors or []).decode(),
            "uuid": result.uuid,
            "result": encode_message(result).decode(),
            "finished": finished_body,
        },
    )
    if seq is not None:
        await connection.execute(
            sql("UPDATE runs SET last_seq = :seq WHERE tenant_id = :tenant AND id = :run"),
            {"tenant": tenant_id, "run": run_id, "seq": seq},
        )
    return seq
