"""The audit: who decided what. It only grows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from app.store.engine import Database


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One decision about a call."""

    session_id: str
    seq: int
    """Of the call's result, in the session's log."""
    run_id: str
    at: datetime
    body: Mapping[str, Any]
    """See `agent.audit.audit_note`."""


async def decisions(
    database: Database,
    tenant_id: str,
    *,
    session_id: str | None = None,
    run_id: str | None = None,
    before: tuple[datetime, str, int] | None = None,
    limit: int,
) -> list[AuditRow]:
    """Give a tenant's decisions, the newest first, beyond the key `before`."""
    rows = await database.raw.fetch(
        """SELECT session_id, seq, run_id, at, body FROM audit
           WHERE tenant_id = $1 AND ($2::text IS NULL OR session_id = $2)
             AND ($3::text IS NULL OR run_id = $3)
             AND ($4::timestamptz IS NULL OR (at, session_id, seq) < ($4, $5::text, $6::bigint))
           ORDER BY at DESC, session_id DESC, seq DESC LIMIT $7""",
        tenant_id,
        session_id,
        run_id,
        *(before or (None, None, None)),
        limit,
    )
    return [
        AuditRow(r["session_id"], r["seq"], r["run_id"], r["at"], orjson.loads(r["body"]))
        for r in rows
    ]
