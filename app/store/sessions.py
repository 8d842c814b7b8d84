"""Sessions: create and read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import IdTaken, NotFound, SessionArchived
from app.store.engine import sql


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session on its way in."""

    id: str
    title: str | None
    options: Mapping[str, Any]
    workspace: Mapping[str, Any]
    metadata: Mapping[str, Any]
    created_body: str
    """The `session.created` event, all but its `seq`."""
    tags: Sequence[str] = ()
    user: str | None = None
    """Of the client's: who the session is for."""
    workspace_key: str | None = None
    """What it shares with other sessions of the same place."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as the tables have it, with what is derived from its runs."""

    id: str
    title: str | None
    options: Mapping[str, Any]
    workspace: Mapping[str, Any]
    metadata: Mapping[str, Any]
    is_running: bool
    """Whether a host that holds a live lease drives a run: the only meaning of "busy"."""
    active_run_id: str | None
    queued_runs: int
    last_seq: int
    created_at: datetime
    updated_at: datetime
    last_message_uuid: str | None = None
    num_runs: int = 0
    cost_usd: Decimal = Decimal(0)
    inherited: Mapping[str, Any] | None = None
    parent_id: str | None = None
    forked_at: datetime | None = None
    tags: Sequence[str] = ()
    user: str | None = None
    workspace_key: str | None = None
    archived_at: datetime | None = None
    requires_action: bool = False
    """Whether its run waits for somebody's answer."""
    pending_actions: int = 0
    """What it asks that nobody has answered."""
    version: int = 1
    """Of what clients can edit; the log does not share it."""
    usage: Mapping[str, int] | None = None
    """Tokens of its runs, by class, of which a missing one is zero. None where nobody looked."""


# A host may also keep a session for what goes on in the background: that is not busy.
IS_RUNNING = """(coalesce(s.lease_expires_at > clock_timestamp(), false) AND EXISTS (
    SELECT 1 FROM runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.id
      AND r.status NOT IN ('queued', 'finished') AND r.origin <> 'subagent'))"""
_COLUMNS = f"""
SELECT s.id, s.title, s.options, s.workspace, s.metadata, s.last_seq, s.num_runs, s.cost_usd,
  s.inherited, s.parent_id, s.forked_at, s.created_at, s.updated_at, s.tags,
  EXISTS (SELECT 1 FROM runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.id
    AND r.status = 'requires_action') AS requires_action, s.end_user AS "user", s.workspace_key, s.archived_at, s.version,
  {IS_RUNNING} AS is_running,
  (SELECT r.id FROM runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.id
    AND r.status NOT IN ('queued', 'finished') AND r.origin <> 'subagent' LIMIT 1)
    AS active_run_id,
  (SELECT count(*) FROM runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.id
    AND r.status = 'queued' AND r.origin <> 'subagent') AS queued_runs,
  (SELECT count(*) FROM actions a WHERE a.tenant_id = s.tenant_id AND a.session_id = s.id
    AND a.status = 'pending') AS pending_actions,
  (SELECT coalesce(j.uuid, j.body::json ->> 'at_message') FROM journal j
    WHERE j.tenant_id = s.tenant_id AND j.session_id = s.id
    AND (j.kind = 'message' OR j.type = 'session.rewound') ORDER BY j.seq DESC LIMIT 1)
    AS last_message_uuid"""
_USAGE = """
  (SELECT jsonb_build_object('input_tokens', coalesce(sum(r.input_tokens), 0),
      'output_tokens', coalesce(sum(r.output_tokens), 0),
      'cache_read_tokens', coalesce(sum(r.cache_read_tokens), 0),
      'cache_write_tokens', coalesce(sum(r.cache_write_tokens), 0))
    FROM runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.id) AS usage"""
_FROM = " FROM sessions s WHERE s.tenant_id = :tenant "
SELECT = _COLUMNS + _FROM
"""Without the usage: a list would look at every run of every session."""
_SELECT_ONE = f"{_COLUMNS}, {_USAGE} {_FROM}"


async def create_session(connection: AsyncConnection, tenant_id: str, new: NewSession) -> None:
    """Insert a session and its first event. Raises `IdTaken`."""
    try:
        await connection.execute(
            sql(
                """
WITH s AS (
  INSERT INTO sessions (tenant_id, id, title, options, workspace, metadata, tags, end_user,
                        workspace_key, last_seq)
  VALUES (:tenant, :id, :title, CAST(:options AS jsonb), CAST(:workspace AS jsonb),
          CAST(:metadata AS jsonb), CAST(:tags AS text[]), :user, :workspace_key, 1))
INSERT INTO journal (tenant_id, session_id, seq, kind, type, body)
VALUES (:tenant, :id, 1, 'service', 'session.created', :created)"""
            ),
            {
                "tenant": tenant_id,
                "id": new.id,
                "title": new.title,
                "options": orjson.dumps(new.options).decode(),
                "workspace": orjson.dumps(new.workspace).decode(),
                "metadata": orjson.dumps(new.metadata).decode(),
                "tags": list(new.tags),
                "user": new.user,
                "workspace_key": new.workspace_key,
                "created": new.created_body,
            },
        )
    except IntegrityError:
        raise IdTaken(f"There is a session {new.id} already.") from None


async def find_session(
    connection: AsyncConnection, tenant_id: str, session_id: str
) -> SessionRow | None:
    """Give a session, or None when the tenant has none of this id."""
    row = (
        await connection.execute(
            sql(_SELECT_ONE + "AND s.id = :id"), {"tenant": tenant_id, "id": session_id}
        )
    ).one_or_none()
    return SessionRow(**row._mapping) if row else None  # noqa: SLF001 - SQLAlchemy's public name


async def session_of(connection: AsyncConnection, tenant_id: str, session_id: str) -> SessionRow:
    """Give a session. Raises `NotFound`."""
    row = await find_session(connection, tenant_id, session_id)
    if row is None:
        raise NotFound("There is no such session.")
    return row


async def options_of_session(
    connection: AsyncConnection, tenant_id: str, session_id: str
) -> Mapping[str, Any] | None:
    """Give what a session's runs begin with, in stored form; None for no session."""
    found: Mapping[str, Any] | None = await connection.scalar(
        sql("SELECT options FROM sessions WHERE tenant_id = :tenant AND id = :id"),
        {"tenant": tenant_id, "id": session_id},
    )
    return found


def archived() -> SessionArchived:
    """Give the refusal of a write to an archived session."""
    return SessionArchived("The session is archived, so it can only be read. Unarchive it first.")
