"""Pages of a journal for readers: bounded in rows and in bytes.

Many slow readers may replay at once, and a row may be large: a page is what each of them holds.
"""

from dataclasses import dataclass
from typing import Literal

from app.store.engine import Database
from app.store.rows import PAGE, ROW_COLUMNS, Row

PAGE_BYTES = 1_000_000
"""A page ends with the row that reaches it, so one large row still comes."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in order, and whether there are more beyond them."""

    rows: list[Row]
    has_more: bool


async def read_page(
    database: Database,
    tenant_id: str,
    session_id: str,
    *,
    after: int,
    up_to: int | None = None,
    of: Literal["rows", "messages", "conversation"] = "rows",
) -> Page:
    """Give the next rows beyond `after`: all, messages alone, or those that no rewind dropped."""
    found = await database.raw.fetch(
        f"""SELECT {ROW_COLUMNS}, found FROM (
             SELECT *, count(*) OVER () AS found,
                    sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
             FROM (SELECT {ROW_COLUMNS} FROM journal
                   WHERE tenant_id = $1 AND session_id = $2 AND seq > $3
                     AND ($6::bigint IS NULL OR seq <= $6) {_OF[of]}
                   ORDER BY seq LIMIT $4) AS page) AS measured
           WHERE before < $5 ORDER BY seq""",
        tenant_id,
        session_id,
        after,
        PAGE,
        PAGE_BYTES,
        up_to,
    )
    rows = [Row.of(row) for row in found]
    has_more = bool(found) and (found[0]["found"] == PAGE or found[0]["found"] > len(rows))
    return Page(rows, has_more)


_OF = {
    "rows": "",
    "messages": "AND kind = 'message'",
    "conversation": """AND kind = 'message' AND parent_tool_use_id IS NULL
      AND NOT seq <@ (SELECT dropped FROM sessions WHERE tenant_id = $1 AND id = $2)""",
}
