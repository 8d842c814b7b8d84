"""A session's unfinished runs, looked at and changed under the session's lock.

Whoever claims a run locks its session too, so what is seen here stays true until the transaction
ends. Rows are always locked in this order: idempotency, sessions (by id), runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.messages import Prompt
from app.errors import NotFound
from app.store.engine import sql
from app.store.inbox import replace_prompts


@dataclass(frozen=True, slots=True)
class First:
    """The unfinished run that is driven now, or is next."""

    run_id: str
    has_begun: bool
    is_cancelled: bool
    """Whether its cancel is asked for."""


@dataclass(frozen=True, slots=True)
class Held:
    """A session whose row is locked."""

    is_live: bool
    """Whether a host holds a live lease."""
    pending_steers: int
    first: First | None
    is_archived: bool = False
    beside: str | None = None
    """The unfinished run of a subagent in the background, one of them."""


async def hold_session(connection: AsyncConnection, tenant_id: str, session_id: str) -> Held:
    """Lock a session for the rest of the transaction. Raises `NotFound`."""
    session = (
        await connection.execute(
            sql(
                """SELECT coalesce(lease_expires_at > clock_timestamp(), false) AS is_live,
                     pending_steers, archived_at IS NOT NULL AS is_archived
                   FROM sessions WHERE tenant_id = :tenant AND id = :session FOR NO KEY UPDATE"""
            ),
            {"tenant": tenant_id, "session": session_id},
        )
    ).one_or_none()
    if session is None:
        raise NotFound("There is no such session.")
    # A statement of its own: it sees what was committed while the lock was waited for.
    first = await first_run(connection, tenant_id, session_id)
    beside = await connection.scalar(
        sql(
            """SELECT id FROM runs WHERE tenant_id = :tenant AND session_id = :session
                 AND status <> 'finished' AND origin = 'subagent' LIMIT 1"""
        ),
        {"tenant": tenant_id, "session": session_id},
    )
    return Held(session.is_live, session.pending_steers, first, session.is_archived, beside)


async def first_run(connection: AsyncConnection, tenant_id: str, session_id: str) -> First | None:
    """Give the unfinished run that is driven now, or is next; None when there is none."""
    run = (
        await connection.execute(
            sql(
                """SELECT id, attempt > 0 AS has_begun,
                     cancel_requested_at IS NOT NULL AS is_cancelled
                   FROM runs WHERE tenant_id = :tenant AND session_id = :session
                     AND status <> 'finished' AND origin <> 'subagent'
                   ORDER BY attempt > 0 DESC, priority DESC, queued_seq LIMIT 1"""
            ),
            {"tenant": tenant_id, "session": session_id},
        )
    ).one_or_none()
    return First(run.id, run.has_begun, run.is_cancelled) if run else None


async def hold_sessions_of(
    connection: AsyncConnection, tenant_id: str, run_ids: Sequence[str]
) -> list[str]:
    """Lock the sessions of these runs; give the runs that there are, oldest first."""
    rows = (
        await connection.execute(
            sql(
                """SELECT id, session_id FROM runs WHERE tenant_id = :tenant AND id = ANY(:ids)
                   ORDER BY created_at, id"""
            ),
            {"tenant": tenant_id, "ids": list(run_ids)},
        )
    ).all()
    await connection.execute(
        sql(
            """SELECT id FROM sessions WHERE tenant_id = :tenant AND id = ANY(:ids)
               ORDER BY id FOR NO KEY UPDATE"""
        ),
        {"tenant": tenant_id, "ids": [row.session_id for row in rows]},
    )
    return [row.id for row in rows]


async def unfinished_runs(
    connection: AsyncConnection,
    tenant_id: str,
    *,
    session_id: str | None,
    statuses: Sequence[str],
    limit: int,
) -> list[str]:
    """Give the ids of unfinished runs, oldest first."""
    result = await connection.execute(
        sql(
            """SELECT id FROM runs WHERE tenant_id = :tenant AND status <> 'finished'
                 AND (CAST(:session AS text) IS NULL OR session_id = :session)
                 AND (cardinality(CAST(:statuses AS text[])) = 0 OR status = ANY(:statuses))
               ORDER BY created_at, id LIMIT :limit"""
        ),
        {"tenant": tenant_id, "session": session_id, "statuses": list(statuses), "limit": limit},
    )
    return list(result.scalars())


@dataclass(frozen=True, slots=True)
class Edit:
    """A waiting run as it is to be."""

    options: Mapping[str, Any]
    changed: Mapping[str, Any]
    """Those of them that are changed: they count for a run that follows by itself, too."""
    metadata: Mapping[str, Any]
    priority: int
    prompts: Sequence[Prompt] | None = None
    """None: they stay."""


async def edit_run(
    connection: AsyncConnection, tenant_id: str, session_id: str, run_id: str, edit: Edit
) -> None:
    """Change a run that has not begun; the caller holds its session's row. Raises `IdTaken`."""
    prompts = edit.prompts
    await connection.execute(
        sql(
            """UPDATE runs SET options = CAST(:options AS jsonb),
                 next_options = next_options || CAST(:changed AS jsonb),
                 metadata = CAST(:metadata AS jsonb), priority = :priority,
                 upfront_steers = coalesce(CAST(:steers AS integer), upfront_steers)
               WHERE tenant_id = :tenant AND id = :run"""
        ),
        {
            "tenant": tenant_id,
            "run": run_id,
            "options": orjson.dumps(edit.options).decode(),
            "changed": orjson.dumps(edit.changed).decode(),
            "metadata": orjson.dumps(edit.metadata).decode(),
            "priority": edit.priority,
            "steers": None if prompts is None else sum(prompt.is_steer for prompt in prompts),
        },
    )
    if prompts is not None:
        await replace_prompts(connection, tenant_id, session_id, run_id, prompts)
