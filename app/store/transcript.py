"""The messages of a session that the model still sees."""

from app.store.active import active_part
from app.store.engine import Database
from app.store.rows import ROW_COLUMNS, LogRange, Row


async def read_active(
    database: Database,
    tenant_id: str,
    session_id: str,
    span: LogRange,
) -> list[Row]:
    """Give messages from the tail of the last compaction on.

    Its boundary and its summary come behind that tail, as they were written. Older summaries are
    left out: the last one has taken them in.
    """
    part = await active_part(database, tenant_id, session_id)
    order = "DESC" if span.is_descending else "ASC"
    rows = await database.raw.fetch(
        f"""SELECT {ROW_COLUMNS} FROM journal
            WHERE tenant_id = $1 AND session_id = $2 AND seq > $3
              AND ($4::bigint IS NULL OR seq < $4) AND kind = 'message' AND seq >= $5
              AND parent_tool_use_id IS NULL
              AND (seq >= $6 OR subtype IS DISTINCT FROM 'compact_boundary')
              AND NOT seq <@ (SELECT dropped FROM sessions WHERE tenant_id = $1 AND id = $2)
              AND (seq >= $6 OR facts IS NULL OR facts NOT LIKE '{{"compacted":%')
            ORDER BY seq {order} LIMIT $7""",
        tenant_id,
        session_id,
        span.after,
        span.before,
        part.first,
        part.boundary,
        span.limit,
    )
    return [Row.of(row) for row in rows]
