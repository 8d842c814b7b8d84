"""What the log of a session tells of one task: a command or a subagent."""

from dataclasses import dataclass

from app.store.engine import Database


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task, as its log tells of it."""

    is_in_background: bool
    """False of a subagent whose run waits for it."""
    is_over: bool
    """Whether its end was told."""


async def find_task(
    database: Database, tenant_id: str, session_id: str, task_id: str
) -> TaskRow | None:
    """Give what is told of a task; None when nothing is."""
    row = await database.raw.fetchrow(
        """SELECT (body::json ->> 'is_backgrounded') IS DISTINCT FROM 'false' AS is_in_background,
             EXISTS (SELECT FROM journal e WHERE e.tenant_id = $1 AND e.session_id = $2
               AND e.seq > j.seq AND e.subtype = 'task_notification' AND e.kind = 'message'
               AND e.body::json ->> 'task_id' = $3) AS is_over
           FROM journal j WHERE tenant_id = $1 AND session_id = $2 AND subtype = 'task_started'
             AND kind = 'message' AND body::json ->> 'task_id' = $3
           ORDER BY seq DESC LIMIT 1""",
        tenant_id,
        session_id,
        task_id,
    )
    return None if row is None else TaskRow(**row)
