"""A new session with its first run, in one statement: the fast path of `POST /v1/runs`.

One round trip and one commit. The run is claimed for the host that asks when nothing older waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.skills import UploadedSkill
from app.errors import IdTaken
from app.store.claims import CLAIMABLE
from app.store.engine import GONE, Database, gone
from app.store.inbox import (
    INBOX_COLUMNS,
    PROMPT_COLUMNS,
    PROMPT_TYPES,
    preview,
    prompts_json,
    uuid_taken,
)
from app.store.leases import Host
from app.store.queue import NewRun
from app.store.rows import NewRow, columns
from app.store.runs import RunRow
from app.store.sessions import NewSession, SessionRow
from app.store.skills import VERSIONS, versions

QUEUED_SEQ = 2
"""The session's first row says that it was created, the second that the run is queued."""

_START = f"""
WITH mine AS (
  SELECT $1::text <> '' AND $31 = {VERSIONS.format(tenant="$3")}
    AND NOT EXISTS (SELECT 1 {CLAIMABLE}) AS is_ours),
s AS (
  INSERT INTO sessions (tenant_id, id, title, options, workspace, metadata, tags, end_user,
                        workspace_key, last_seq, num_runs, owner, epoch, pending_steers,
                        lease_expires_at)
  SELECT $3, $4, $5, $6::jsonb, $7::jsonb, $8::jsonb, $28, $29, $30,
    {QUEUED_SEQ} + is_ours::int * cardinality($21::text[]), 1,
    CASE WHEN is_ours THEN $1 END, is_ours::int, is_ours::int * $15::int,
    CASE WHEN is_ours THEN clock_timestamp() + make_interval(secs => $2) END
  FROM mine RETURNING created_at, epoch, lease_expires_at),
r AS (
  INSERT INTO runs (tenant_id, id, session_id, status, options, metadata, queued_seq, first_seq,
                    attempt, claim_seq, started_at, upfront_steers, priority, deadline_at,
                    recovery_policy, max_attempts, on_disconnect)
  SELECT $3, $9, $4, CASE WHEN is_ours THEN 'running' ELSE 'queued' END, $10::jsonb, $11::jsonb,
    {QUEUED_SEQ}, {QUEUED_SEQ}, is_ours::int, CASE WHEN is_ours THEN {QUEUED_SEQ} END,
    CASE WHEN is_ours THEN clock_timestamp() END, $15, $16,
    clock_timestamp() + make_interval(secs => $17), $18, $19, $20
  FROM mine RETURNING created_at, started_at, deadline_at),
p AS (
  INSERT INTO inbox ({INBOX_COLUMNS}, consumed_seq)
  SELECT $3, $4, $9, {PROMPT_COLUMNS},
    CASE WHEN is_ours AND NOT p.is_steer AND cardinality($21::text[]) > 0
      THEN {QUEUED_SEQ} + cardinality($21::text[]) END
  FROM mine, jsonb_to_recordset($12::jsonb) AS {PROMPT_TYPES}),
o AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, subtype, uuid,
                       parent_tool_use_id, body, facts)
  SELECT $3, $4, {QUEUED_SEQ} + o, $9, k, t, s, u, p, b, x
  FROM mine, unnest($21::text[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[],
                    $27::text[]) WITH ORDINALITY AS n(k, t, s, u, p, b, x, o)
  WHERE is_ours),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  VALUES ($3, $4, 1, NULL, 'service', 'session.created', $13),
         ($3, $4, {QUEUED_SEQ}, $9, 'service', 'run.queued', $14))
SELECT s.epoch, s.lease_expires_at, s.created_at AS session_created_at,
  r.created_at AS run_created_at, r.started_at, r.deadline_at FROM s, r"""


@dataclass(frozen=True, slots=True)
class Started:
    """What became durable."""

    epoch: int | None
    """Of the lease, when the host claimed the run."""
    lease_expires_at: datetime | None
    session_created_at: datetime
    run_created_at: datetime
    started_at: datetime | None
    deadline_at: datetime | None


async def start_session(
    database: Database,
    tenant_id: str,
    session: NewSession,
    run: NewRun,
    *,
    host: Host | None,
    opening: Sequence[NewRow] = (),
    skills: Sequence[UploadedSkill] = (),
    within: AsyncConnection | None = None,
) -> Started:
    """Insert a session, its first run and its prompts. Raises `IdTaken`, `Unavailable`.

    When the host gets the run, the rows with which it opens are stored too, and its prompts count
    as taken in: so the first message is there with the answer to the POST. It gets the run only
    while `skills` are all that the tenant uploaded, since the run is opened with them.
    In a transaction of its own, or in one of the caller's in which a statement was made already.
    """
    asked = database.raw if within is None else await _driver_connection(within)
    try:
        row = await asked.fetchrow(
            _START,
            host.id if host else "",
            host.lease_s if host else 0.0,
            tenant_id,
            session.id,
            session.title,
            orjson.dumps(session.options).decode(),
            orjson.dumps(session.workspace).decode(),
            orjson.dumps(session.metadata).decode(),
            run.id,
            orjson.dumps(run.options).decode(),
            orjson.dumps(run.metadata).decode(),
            prompts_json(run.prompts),
            session.created_body,
            run.queued_body,
            run.steers,
            run.priority,
            run.deadline_s,
            run.recovery_policy,
            run.max_attempts,
            run.on_disconnect,
            *columns(opening),
            list(session.tags),
            session.user,
            session.workspace_key,
            versions(skills),
        )
    except asyncpg.UniqueViolationError as error:
        if error.table_name == "sessions":
            raise IdTaken(f"There is a session {session.id} already.") from None
        raise uuid_taken(run.prompts, error.detail or "") or error from None
    except GONE as error:
        raise gone(error) from error
    if row is None:
        raise RuntimeError("a session was neither inserted nor refused")
    return Started(
        row["epoch"] or None,
        row["lease_expires_at"],
        row["session_created_at"],
        row["run_created_at"],
        row["started_at"],
        row["deadline_at"],
    )


async def _driver_connection(connection: AsyncConnection) -> Any:  # noqa: ANN401 - asyncpg's, which SQLAlchemy does not name
    return (await connection.get_raw_connection()).driver_connection


def new_run_row(run: NewRun, session_id: str, started: Started, worker: str | None) -> RunRow:
    """Give the run as it stands now, without asking for it."""
    is_claimed = started.epoch is not None
    return RunRow(
        id=run.id,
        session_id=session_id,
        status="running" if is_claimed else "queued",
        options=run.options,
        metadata=run.metadata,
        first_seq=QUEUED_SEQ,
        created_at=started.run_created_at,
        attempt=int(is_claimed),
        worker=worker,
        lease_expires_at=started.lease_expires_at,
        queue_position=None if is_claimed else 0,
        started_at=started.started_at,
        prompt=preview(run.prompts[0]),
        priority=run.priority,
        deadline_at=started.deadline_at,
        recovery_policy=run.recovery_policy,
        max_attempts=run.max_attempts,
    )


def new_session_row(session: NewSession, run_id: str, started: Started) -> SessionRow:
    """Give the session as it stands now, without asking for it."""
    is_claimed = started.epoch is not None
    return SessionRow(
        id=session.id,
        title=session.title,
        options=session.options,
        workspace=session.workspace,
        metadata=session.metadata,
        is_running=is_claimed,
        active_run_id=run_id if is_claimed else None,
        queued_runs=int(not is_claimed),
        last_seq=QUEUED_SEQ,
        created_at=started.session_created_at,
        updated_at=started.session_created_at,
        num_runs=1,
        tags=session.tags,
        user=session.user,
        workspace_key=session.workspace_key,
        usage={},
    )
