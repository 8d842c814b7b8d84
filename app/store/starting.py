"""A new session with its first run, in one statement: the fast path of `POST /v1/runs`.

One round trip and one commit. The run is claimed for the host that asks when nothing older waits.
"""

from dataclasses import dataclass
from datetime import datetime

import asyncpg
import orjson

from app.errors import IdTaken
from app.store.engine import GONE, Database, gone
from app.store.queue import CLAIMABLE, Host, NewRun, prompts_json, uuid_taken
from app.store.runs import RunRow
from app.store.sessions import NewSession, SessionRow

QUEUED_SEQ = 2
"""The session's first row says that it was created, the second that the run is queued."""

_START = f"""
WITH mine AS (
  SELECT $1::text <> '' AND NOT EXISTS (SELECT 1 {CLAIMABLE}) AS is_ours),
s AS (
  INSERT INTO sessions (tenant_id, id, title, options, workspace, metadata, last_seq, num_runs,
                        owner, epoch, lease_expires_at)
  SELECT $3, $4, $5, $6::jsonb, $7::jsonb, $8::jsonb, {QUEUED_SEQ}, 1,
    CASE WHEN is_ours THEN $1 END, is_ours::int,
    CASE WHEN is_ours THEN clock_timestamp() + make_interval(secs => $2) END
  FROM mine RETURNING created_at, epoch, lease_expires_at),
r AS (
  INSERT INTO runs (tenant_id, id, session_id, status, options, metadata, queued_seq, first_seq,
                    attempt, claim_seq, started_at)
  SELECT $3, $9, $4, CASE WHEN is_ours THEN 'running' ELSE 'queued' END, $10::jsonb, $11::jsonb,
    {QUEUED_SEQ}, {QUEUED_SEQ}, is_ours::int, CASE WHEN is_ours THEN {QUEUED_SEQ} END,
    CASE WHEN is_ours THEN clock_timestamp() END
  FROM mine RETURNING created_at, started_at),
p AS (
  INSERT INTO inbox (tenant_id, id, session_id, run_id, uuid, has_client_uuid, content)
  SELECT $3, p.id, $4, $9, p.uuid, p.has_client_uuid, p.content
  FROM jsonb_to_recordset($12::jsonb)
    AS p(id text, uuid text, has_client_uuid bool, content text)),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  VALUES ($3, $4, 1, NULL, 'service', 'session.created', $13),
         ($3, $4, {QUEUED_SEQ}, $9, 'service', 'run.queued', $14))
SELECT s.epoch, s.lease_expires_at, s.created_at AS session_created_at,
  r.created_at AS run_created_at, r.started_at FROM s, r"""


@dataclass(frozen=True, slots=True)
class Started:
    """What became durable."""

    epoch: int | None
    """Of the lease, when the host claimed the run."""
    lease_expires_at: datetime | None
    session_created_at: datetime
    run_created_at: datetime
    started_at: datetime | None


async def start_session(
    database: Database, tenant_id: str, session: NewSession, run: NewRun, *, host: Host | None
) -> Started:
    """Insert a session, its first run and its prompts. Raises `IdTaken`, `Unavailable`."""
    try:
        row = await database.raw.fetchrow(
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
        )
    except asyncpg.UniqueViolationError as error:
        if error.table_name == "sessions":
            raise IdTaken(f"There is a session {session.id} already.") from None
        raise uuid_taken(run, error.detail or "") or error from None
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
    )


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
    )
