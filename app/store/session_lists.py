"""Lists of sessions, and the newest of a user or of a place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import Database, sql
from app.store.keyset import Keyset
from app.store.sessions import IS_RUNNING, SELECT, SessionRow


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions a list has. What is None, or empty, does not matter."""

    statuses: Sequence[Literal["idle", "running", "requires_action", "archived"]] = ()
    """One of them is enough."""
    parent_id: str | None = None
    user: str | None = None
    tags: Sequence[str] = ()
    """One of them is enough."""
    metadata: Mapping[str, str] | None = None
    """All of it must be there."""
    is_archived: bool | None = None
    words: str | None = None
    """What stands in its title or first prompt."""
    created_after: datetime | None = None
    """It was made then, or later."""
    created_before: datetime | None = None
    """It was made before."""


async def list_sessions(
    database: Database,
    tenant_id: str,
    keyset: Keyset,
    wanted: SessionFilter | None = None,
) -> Sequence[SessionRow]:
    """Give sessions by creation time."""
    where, values = _where(wanted or SessionFilter())
    values |= {"tenant": tenant_id, **keyset.values}
    async with database.connect() as connection:
        rows = await connection.execute(sql(keyset.within(f"{SELECT} {where}", "s")), values)
        return [SessionRow(**row._mapping) for row in rows]  # noqa: SLF001 - SQLAlchemy's public name


_ASKS = """EXISTS (SELECT 1 FROM runs r WHERE r.tenant_id = s.tenant_id
  AND r.session_id = s.id AND r.status = 'requires_action')"""
# As sessions show it: each has one status. One that asks may be driven by a host, or by none.
_STATUS = {
    "idle": f"s.archived_at IS NULL AND NOT {_ASKS} AND NOT {IS_RUNNING}",
    "running": f"s.archived_at IS NULL AND NOT {_ASKS} AND {IS_RUNNING}",
    "requires_action": f"s.archived_at IS NULL AND {_ASKS}",
    "archived": "s.archived_at IS NOT NULL",
}
# A condition that repeats a partial index's own lets the planner use it.
_TAGS = "AND s.tags <> '{}' AND s.tags && CAST(:tags AS text[]) "
_METADATA = "AND s.metadata <> '{}'::jsonb AND s.metadata @> CAST(:metadata AS jsonb) "

_WORDS = """AND EXISTS (SELECT 1 FROM search w WHERE w.tenant_id = s.tenant_id
  AND w.session_id = s.id AND w.seq = 0
  AND w.words @@ websearch_to_tsquery('simple', CAST(:words AS text))) """


def _where(wanted: SessionFilter) -> tuple[str, dict[str, Any]]:
    """Give the conditions, one of a bounded number of texts, and their values."""
    where = ""
    values: dict[str, Any] = {}
    if wanted.statuses:
        where += f"AND ({' OR '.join(_STATUS[status] for status in sorted(set(wanted.statuses)))}) "
    if wanted.is_archived is not None:
        where += f"AND s.archived_at IS {'NOT ' * wanted.is_archived}NULL "
    if wanted.parent_id is not None:
        where += "AND s.parent_id = :parent "
        values["parent"] = wanted.parent_id
    if wanted.user is not None:
        where += "AND s.end_user = :user "
        values["user"] = wanted.user
    if wanted.tags:
        where += _TAGS
        values["tags"] = list(wanted.tags)
    if wanted.metadata:
        where += _METADATA
        values["metadata"] = orjson.dumps(wanted.metadata).decode()
    if wanted.words is not None:
        where += _WORDS
        values["words"] = wanted.words
    if wanted.created_after is not None:
        where += "AND s.created_at >= :created_after "
        values["created_after"] = wanted.created_after
    if wanted.created_before is not None:
        where += "AND s.created_at < :created_before "
        values["created_before"] = wanted.created_before
    return where, values


async def newest_session(
    connection: AsyncConnection, tenant_id: str, *, user: str | None, workspace_key: str | None
) -> str | None:
    """Give the session that was made or prompted last, of a user, of a place, or of both.

    Until the transaction ends, whoever asks for the same waits: two that would each make one
    because there is none make one.
    """
    values = {"tenant": tenant_id, "user": user, "key": workspace_key}
    await connection.execute(
        sql("SELECT pg_advisory_xact_lock(hashtextextended(CAST(:name AS text), 0))"),
        {"name": orjson.dumps(values).decode()},
    )
    where = "AND end_user = :user " if user is not None else ""
    where += "AND workspace_key = :key " if workspace_key is not None else ""
    found: str | None = await connection.scalar(
        sql(
            f"""SELECT id FROM sessions WHERE tenant_id = :tenant AND archived_at IS NULL {where}
                ORDER BY prompted_at DESC LIMIT 1"""
        ),
        values,
    )
    return found
