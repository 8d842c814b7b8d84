"""The subagents of a session, from what its log tells of their tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from app.store.engine import Database


@dataclass(frozen=True, slots=True)
class SubagentRow:
    """A subagent: how it began, and how it ended."""

    seq: int
    run_id: str | None
    own_run_id: str | None
    """Of one in the background: the run that it is."""
    started: Mapping[str, Any]
    """Its `task_started`."""
    started_at: datetime
    ended: Mapping[str, Any] | None
    """Its `task_notification`."""
    ended_at: datetime | None
    carried_by: str | None
    """The status of the run that it is, or that drives it, `untold` while its end is; None: this
    session has no such run. A fork has copied what was told of it; its call is made anew there."""

    @property
    def is_going_on(self) -> bool:
        """Whether its end is still to come, or to be told."""
        return self.ended is None and self.carried_by not in {None, "finished"}


async def list_subagents(
    database: Database,
    tenant_id: str,
    session_id: str,
    *,
    after: int = 0,
    limit: int,
    tool_use_id: str | None = None,
) -> Sequence[SubagentRow]:
    """Give subagents in the order in which they began, beyond a seq; or the one of a call."""
    rows = await database.raw.fetch(
        """WITH begun AS (
             SELECT seq, run_id, facts::json ->> 'own_run' AS own_run_id, body, at,
               body::json ->> 'task_id' AS task FROM journal
             WHERE tenant_id = $1 AND session_id = $2 AND seq > $3 AND subtype = 'task_started'
               AND kind = 'message' AND body::json ->> 'task_type' = 'local_agent'
               AND ($4::text IS NULL OR body::json ->> 'tool_use_id' = $4)
             ORDER BY seq LIMIT $5)
           SELECT begun.*, e.body AS ended, e.at AS ended_at,
             CASE WHEN r.is_untold THEN 'untold' ELSE r.status END AS carried_by
           FROM begun LEFT JOIN runs r ON r.tenant_id = $1 AND r.session_id = $2
             AND r.id = coalesce(begun.own_run_id, begun.run_id) LEFT JOIN LATERAL (
             SELECT body, at FROM journal j WHERE j.tenant_id = $1 AND j.session_id = $2
               AND j.seq > begun.seq AND j.subtype = 'task_notification' AND j.kind = 'message'
               AND j.body::json ->> 'task_id' = begun.task ORDER BY j.seq LIMIT 1) e ON true
           ORDER BY begun.seq""",
        tenant_id,
        session_id,
        after,
        tool_use_id,
        limit,
    )
    return [
        SubagentRow(
            row["seq"],
            row["run_id"],
            row["own_run_id"],
            orjson.loads(row["body"]),
            row["at"],
            orjson.loads(row["ended"]) if row["ended"] else None,
            row["ended_at"],
            row["carried_by"],
        )
        for row in rows
    ]
