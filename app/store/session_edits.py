"""Changes of a session whose row the caller holds: title and the like, archive, rewind.

Each is an event in the session's log; what clients saw stays there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import sql


@dataclass(frozen=True, slots=True)
class SessionEdit:
    """A session as it is to be."""

    title: str | None
    options: Mapping[str, Any]
    metadata: Mapping[str, Any]
    tags: Sequence[str]
    is_archived: bool


async def edit_session(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    edit: SessionEdit,
    events: Sequence[tuple[str, str]],
) -> None:
    """Change a session, and say so by events `(type, body)`."""
    await connection.execute(
        sql(
            """
WITH s AS (
  UPDATE sessions SET title = :title, options = CAST(:options AS jsonb),
    metadata = CAST(:metadata AS jsonb), tags = CAST(:tags AS text[]), version = version + 1,
    archived_at = CASE WHEN :is_archived THEN coalesce(archived_at, clock_timestamp()) END,
    updated_at = clock_timestamp(), last_seq = last_seq + cardinality(CAST(:types AS text[]))
  WHERE tenant_id = :tenant AND id = :session RETURNING last_seq)
INSERT INTO journal (tenant_id, session_id, seq, kind, type, body)
SELECT :tenant, :session, s.last_seq - cardinality(CAST(:types AS text[])) + o, 'service', t, b
FROM s, unnest(CAST(:types AS text[]), CAST(:bodies AS text[])) WITH ORDINALITY AS n(t, b, o)"""
        ),
        {
            "tenant": tenant_id,
            "session": session_id,
            "title": edit.title,
            "options": orjson.dumps(edit.options).decode(),
            "metadata": orjson.dumps(edit.metadata).decode(),
            "tags": list(edit.tags),
            "is_archived": edit.is_archived,
            "types": [kind for kind, _ in events],
            "bodies": [body for _, body in events],
        },
    )


async def edit_run_options(
    connection: AsyncConnection, tenant_id: str, run_id: str, options: Mapping[str, Any]
) -> None:
    """Give a run other options; whoever drives it looks them up when it is told."""
    await connection.execute(
        sql(
            """UPDATE runs SET options = CAST(:options AS jsonb)
               WHERE tenant_id = :tenant AND id = :run AND status <> 'finished'"""
        ),
        {"tenant": tenant_id, "run": run_id, "options": orjson.dumps(options).decode()},
    )


@dataclass(frozen=True, slots=True)
class FollowedRun:
    """A run that one may follow by itself, once something has ended in its background."""

    id: str
    is_finished: bool
    options: Mapping[str, Any]
    """Those of a run that follows it by itself."""
    are_own: bool
    """Whether they are no more what its own are: else its own count as they are by then."""


async def followed_runs(
    connection: AsyncConnection, tenant_id: str, session_id: str
) -> Sequence[FollowedRun]:
    """Give the runs of a session, no subagents', that one may follow by itself.

    Those are the unfinished ones; and unless one of them has begun, the one that ended last of those that
    did begin, if something goes on in its background.
    """
    rows = await connection.execute(
        sql(
            """SELECT r.id, r.status = 'finished' AS is_finished,
                 coalesce(r.next_options, r.options) AS options, r.next_options IS NOT NULL AS are_own
               FROM runs r JOIN sessions s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
               WHERE r.tenant_id = :tenant AND r.session_id = :session AND r.origin <> 'subagent'
                 AND (r.status <> 'finished' OR r.attempt > 0
                   AND NOT EXISTS (SELECT 1 FROM runs l WHERE l.tenant_id = :tenant
                     AND l.session_id = :session AND l.origin <> 'subagent' AND l.attempt > 0
                     AND (l.status <> 'finished' OR l.last_seq > r.last_seq))
                   AND (s.owner IS NOT NULL OR EXISTS (
                     SELECT 1 FROM runs c WHERE c.tenant_id = :tenant AND c.session_id = :session
                       AND c.origin = 'subagent' AND (c.status <> 'finished' OR c.is_untold))))
               ORDER BY r.queued_seq"""
        ),
        {"tenant": tenant_id, "session": session_id},
    )
    return [FollowedRun(row.id, row.is_finished, row.options, row.are_own) for row in rows]


async def edit_next_options(
    connection: AsyncConnection, tenant_id: str, run_id: str, options: Mapping[str, Any]
) -> None:
    """Give other options to the run that follows one by itself; its own stay as they were."""
    await connection.execute(
        sql(
            """UPDATE runs SET next_options = CAST(:options AS jsonb)
               WHERE tenant_id = :tenant AND id = :run"""
        ),
        {"tenant": tenant_id, "run": run_id, "options": orjson.dumps(options).decode()},
    )


@dataclass(frozen=True, slots=True)
class Mark:
    """A message of a session, as the end of a conversation."""

    seq: int
    is_dropped: bool
    """Whether a rewind took it out of the conversation."""
    is_newest: bool
    """Whether nothing of the conversation comes after it."""


async def find_mark(
    connection: AsyncConnection, tenant_id: str, session_id: str, message_uuid: str
) -> Mark | None:
    """Look a message up, or give None when the session has none of this uuid."""
    row = (
        await connection.execute(
            sql(
                """
SELECT j.seq, j.seq <@ s.dropped AS is_dropped,
  NOT EXISTS (SELECT 1 FROM journal n WHERE n.tenant_id = :tenant AND n.session_id = :session
    AND n.seq > j.seq AND n.kind = 'message' AND NOT n.seq <@ s.dropped) AS is_newest
FROM journal j JOIN sessions s ON s.tenant_id = j.tenant_id AND s.id = j.session_id
WHERE j.tenant_id = :tenant AND j.session_id = :session AND j.kind = 'message' AND j.uuid = :uuid
  AND j.parent_tool_use_id IS NULL"""
            ),
            {"tenant": tenant_id, "session": session_id, "uuid": message_uuid},
        )
    ).first()
    return Mark(**row._mapping) if row else None  # noqa: SLF001 - SQLAlchemy's public name


async def rewind_session(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    *,
    after_seq: int,
    rewound_body: str,
) -> None:
    """Take what comes after `after_seq` out of the conversation; the log keeps it.

    The event's `at_message` names the message that is the last one now.
    """
    await connection.execute(
        sql(
            """
WITH s AS (
  UPDATE sessions SET last_seq = last_seq + 1, updated_at = clock_timestamp(),
    dropped = dropped + int8multirange(int8range(:after, last_seq, '(]'))
  WHERE tenant_id = :tenant AND id = :session RETURNING last_seq)
INSERT INTO journal (tenant_id, session_id, seq, kind, type, body)
SELECT :tenant, :session, last_seq, 'service', 'session.rewound', :rewound FROM s"""
        ),
        {
            "tenant": tenant_id,
            "session": session_id,
            "after": after_seq,
            "rewound": rewound_body,
        },
    )
