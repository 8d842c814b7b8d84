"""What a retry has to know of a run and its session, asked for under the session's lock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import sql


@dataclass(frozen=True, slots=True)
class Said:
    """A prompt of a run."""

    content: str | list[dict[str, Any]]
    was_taken: bool
    """Whether the conversation holds it."""


async def prompts_of(connection: AsyncConnection, tenant_id: str, run_id: str) -> Sequence[Said]:
    """Give the prompts of a run, those that were sent into it included, in their order."""
    rows = await connection.execute(
        sql(
            """SELECT content, consumed_seq IS NOT NULL AS was_taken FROM inbox
               WHERE tenant_id = :tenant AND run_id = :run ORDER BY position"""
        ),
        {"tenant": tenant_id, "run": run_id},
    )
    return [Said(orjson.loads(row.content), row.was_taken) for row in rows]


async def later_run(connection: AsyncConnection, tenant_id: str, run_id: str) -> str | None:
    """Give the newest run that the conversation went on with after this one; None if none did.

    A run that never began is no part of the conversation: it stands where it was queued.
    """
    found: str | None = await connection.scalar(
        sql(
            """SELECT l.id FROM runs r JOIN runs l
                 ON l.tenant_id = r.tenant_id AND l.session_id = r.session_id AND l.attempt > 0
                 AND l.origin <> 'subagent'
                 AND CASE WHEN r.attempt > 0 THEN l.last_seq > r.last_seq
                   ELSE l.queued_seq > r.queued_seq END
               WHERE r.tenant_id = :tenant AND r.id = :run ORDER BY l.last_seq DESC LIMIT 1"""
        ),
        {"tenant": tenant_id, "run": run_id},
    )
    return found


async def is_dropped(
    connection: AsyncConnection, tenant_id: str, session_id: str, seq: int
) -> bool:
    """Say whether a rewind took the row of this seq out of the conversation."""
    found: bool = await connection.scalar(
        sql(
            """SELECT CAST(:seq AS bigint) <@ dropped FROM sessions
               WHERE tenant_id = :tenant AND id = :session"""
        ),
        {"tenant": tenant_id, "session": session_id, "seq": seq},
    )
    return found
