"""What agents mean to do, read from the facts of the journal."""

import orjson

from app.domain.tools import ToolFacts
from app.domain.work_items import Items
from app.store.engine import Database


async def work_items(database: Database, tenant_id: str, session_id: str) -> Items:
    """Give a session's items by id, deleted ones included. An index finds the rows that tell."""
    rows = await database.raw.fetch(
        """SELECT facts FROM journal WHERE tenant_id = $1 AND session_id = $2
             AND facts LIKE '%"work":[%'
             AND NOT seq <@ (SELECT dropped FROM sessions WHERE tenant_id = $1 AND id = $2)
           ORDER BY seq""",
        tenant_id,
        session_id,
    )
    told = [orjson.loads(row["facts"]).get("tool") or {} for row in rows]
    return {item.id: item for facts in told for item in ToolFacts.from_json(facts).work.values()}
