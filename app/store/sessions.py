"""Sessions: create, read, list, fork."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import IdTaken
from app.store.engine import Database, sql


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


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as the tables have it, with what is derived from its runs."""

    id: str
    title: str | None
    options: Mapping[str, Any]
    workspace: Mapping[str, Any]
    metadata: Mapping[str, Any]
    is_running: bool
    """Whether a host holds a live lease: the only meaning of "busy"."""
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


_SELECT = """
SELECT s.id, s.title, s.options, s.workspace, s.metadata, s.last_seq, s.num_runs, s.cost_usd,
  s.inherited, s.parent_id, s.forked_at, s.created_at, s.updated_at,
  coalesce(s.lease_expires_at > clock_timestamp(), false) AS is_running,
  (SELECT r.id FROM runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.id
    AND r.status NOT IN ('queued', 'finished') LIMIT 1) AS active_run_id,
  (SELECT count(*) FROM runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.id
    AND r.status = 'queued') AS queued_runs,
  (SELECT j.uuid FROM journal j WHERE j.tenant_id = s.tenant_id AND j.session_id = s.id
    AND j.kind = 'message' ORDER BY j.seq DESC LIMIT 1) AS last_message_uuid
FROM sessions s WHERE s.tenant_id = :tenant """


async def create_session(connection: AsyncConnection, tenant_id: str, new: NewSession) -> None:
    """Insert a session and its first event. Raises `IdTaken`."""
    try:
        await connection.execute(
            sql(
                """
WITH s AS (
  INSERT INTO sessions (tenant_id, id, title, options, workspace, metadata, last_seq)
  VALUES (:tenant, :id, :title, CAST(:options AS jsonb), CAST(:workspace AS jsonb),
          CAST(:metadata AS jsonb), 1))
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
            sql(_SELECT + "AND s.id = :id"), {"tenant": tenant_id, "id": session_id}
        )
    ).one_or_none()
    return SessionRow(**row._mapping) if row else None  # noqa: SLF001 - SQLAlchemy's public name


async def list_sessions(
    database: Database,
    tenant_id: str,
    *,
    after: tuple[datetime, str] | None,
    limit: int,
    descending: bool,
    is_running: bool | None = None,
    parent_id: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Sequence[SessionRow]:
    """Give up to `limit` sessions by creation time, beyond the key `after`."""
    compare, order = ("<", "DESC") if descending else (">", "ASC")
    where = ""
    values: dict[str, Any] = {"tenant": tenant_id, "limit": limit}
    if after is not None:
        where += f"AND (s.created_at, s.id) {compare} (:at, :id) "
        values |= {"at": after[0], "id": after[1]}
    if is_running is not None:
        where += "AND coalesce(s.lease_expires_at > clock_timestamp(), false) = :is_running "
        values["is_running"] = is_running
    if parent_id is not None:
        where += "AND s.parent_id = :parent "
        values["parent"] = parent_id
    if metadata:
        where += "AND s.metadata @> CAST(:metadata AS jsonb) "
        values["metadata"] = orjson.dumps(metadata).decode()
    async with database.connect() as connection:
        rows = await connection.execute(
            sql(f"{_SELECT} {where} ORDER BY s.created_at {order}, s.id {order} LIMIT :limit"),
            values,
        )
        return [SessionRow(**row._mapping) for row in rows]  # noqa: SLF001 - as above


async def fork_session(
    connection: AsyncConnection,
    tenant_id: str,
    parent_id: str,
    new: NewSession,
    *,
    up_to_seq: int,
    inherited: Mapping[str, Any],
    forked_body: str,
) -> None:
    """Copy a session's messages up to `up_to_seq` into a new session. The original is untouched.

    The copies speak of the new session; they belong to no run of it. Raises `IdTaken`.
    """
    await create_session(connection, tenant_id, new)
    await connection.execute(
        sql(
            """
WITH copied AS (
  INSERT INTO journal (tenant_id, session_id, seq, kind, type, subtype, uuid, parent_tool_use_id,
                       body, facts, at)
  SELECT tenant_id, :id, 1 + row_number() OVER (ORDER BY seq), kind, type, subtype, uuid,
    parent_tool_use_id,
    replace(body, '"session_id":"' || session_id || '"', '"session_id":"' || :id || '"'),
    facts, at
  FROM journal WHERE tenant_id = :tenant AND session_id = :parent AND kind = 'message'
    AND seq <= :up_to
  RETURNING seq),
s AS (
  UPDATE sessions SET parent_id = :parent, forked_at = clock_timestamp(),
    inherited = CAST(:inherited AS jsonb), last_seq = 2 + (SELECT count(*) FROM copied)
  WHERE tenant_id = :tenant AND id = :id RETURNING last_seq)
INSERT INTO journal (tenant_id, session_id, seq, kind, type, body)
SELECT :tenant, :id, last_seq, 'service', 'session.forked', :forked FROM s"""
        ),
        {
            "tenant": tenant_id,
            "id": new.id,
            "parent": parent_id,
            "up_to": up_to_seq,
            "inherited": orjson.dumps(inherited).decode(),
            "forked": forked_body,
        },
    )
