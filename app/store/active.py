"""What the model still sees of a session: the journal from its last `/clear` or compaction on."""

from dataclasses import dataclass

import orjson

from app.agent.active import COMPACTED
from app.store.engine import Database


@dataclass(frozen=True, slots=True)
class ActivePart:
    """Where it begins, in sequence numbers."""

    first: int = 1
    """Row of the first message that the last compaction kept, or of the last `/clear`."""
    boundary: int = 0
    """Row of that compaction's boundary; 0 if there was none. Its summary is the row after it."""


async def active_part(database: Database, tenant_id: str, session_id: str) -> ActivePart:
    """Look it up: from the newest row back, no further than the tail goes.

    A boundary whose summary is not there (a fork or a rewind can end between them) is none.
    """
    found = await database.raw.fetchrow(
        """SELECT b.seq, b.type, s.facts FROM journal b LEFT JOIN journal s
             ON s.tenant_id = b.tenant_id AND s.session_id = b.session_id AND s.seq = b.seq + 1
           WHERE b.tenant_id = $1 AND b.session_id = $2
             AND (b.type = 'conversation_reset'
                  OR b.subtype = 'compact_boundary' AND b.kind = 'message' AND s.type = 'user')
             AND NOT greatest(b.seq, s.seq) <@
               (SELECT dropped FROM sessions WHERE tenant_id = $1 AND id = $2)
           ORDER BY b.seq DESC LIMIT 1""",
        tenant_id,
        session_id,
    )
    if found is None:
        return ActivePart()
    if found["type"] == "conversation_reset":
        return ActivePart(found["seq"])
    head: int = await database.raw.fetchval(
        """SELECT seq FROM journal WHERE tenant_id = $1 AND session_id = $2 AND seq < $3
             AND kind = 'message' AND uuid = $4 ORDER BY seq DESC LIMIT 1""",
        tenant_id,
        session_id,
        found["seq"],
        orjson.loads(found["facts"])[COMPACTED]["head"],
    )
    return ActivePart(head, found["seq"])
