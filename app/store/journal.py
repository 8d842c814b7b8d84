"""The journal, read: a page of rows, one message, the conversation that a fold is made of."""

from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from app.store.active import active_part
from app.store.engine import Database
from app.store.rows import BEGINNING, PAGE, ROW_COLUMNS, LogRange, Row

CONVERSATIONS = "kind IN ('message', 'aside')"
"""Rows of which a fold is made: the main conversation and those of subagents."""
ConversationRow: TypeAlias = tuple[str | None, str, str | None]
"""The run, the body, the facts: as they are stored."""


async def read(
    database: Database,
    tenant_id: str,
    session_id: str,
    span: LogRange = BEGINNING,
    *,
    run_id: str | None = None,
    kind: str | None = None,
    types: Sequence[str] | None = None,
    thread: str | None = None,
) -> list[Row]:
    """Give rows of one `thread`, asides among them; or all but asides."""
    order = "DESC" if span.is_descending else "ASC"
    rows = await database.raw.fetch(
        f"""SELECT {ROW_COLUMNS} FROM journal
            WHERE tenant_id = $1 AND session_id = $2 AND seq > $3
              AND ($4::bigint IS NULL OR seq < $4) AND ($5::text IS NULL OR run_id = $5)
              AND ($6::text IS NULL OR kind = $6 OR (kind = 'aside' AND $9::text IS NOT NULL))
              AND ($7::text[] IS NULL OR type = ANY($7))
              AND CASE WHEN $9::text IS NULL THEN kind <> 'aside'
                ELSE parent_tool_use_id = $9 AND kind <> 'service' END
            ORDER BY seq {order} LIMIT $8""",
        tenant_id,
        session_id,
        span.after,
        span.before,
        run_id,
        kind,
        list(types) if types else None,
        span.limit,
        thread,
    )
    return [Row.of(row) for row in rows]


async def find_message(
    database: Database, tenant_id: str, session_id: str, uuid: str
) -> tuple[Row, str | None] | None:
    """Give a message with its facts; None when the session has none of this uuid.

    Looks through the session's rows: 3 ms for 50,000, while an index of random ids costs each append.
    """
    found = await database.raw.fetchrow(
        f"""SELECT {ROW_COLUMNS}, facts FROM journal WHERE tenant_id = $1
             AND session_id = $2 AND {CONVERSATIONS} AND uuid = $3 ORDER BY seq LIMIT 1""",
        tenant_id,
        session_id,
        uuid,
    )
    if found is None:
        return None
    row = Row.of(found)
    return row, found["facts"]


async def history(
    database: Database, tenant_id: str, session_id: str
) -> AsyncIterator[ConversationRow]:
    """Give the rows of a session's conversation, oldest first, in pages.

    What a rewind took out of it is left out, and so is what a compaction took away from the model:
    a fold needs it no more.
    """
    after = (await active_part(database, tenant_id, session_id)).first - 1
    while True:
        rows = await database.raw.fetch(
            f"""SELECT seq, run_id, body, facts FROM journal
               WHERE tenant_id = $1 AND session_id = $2 AND seq > $3 AND {CONVERSATIONS}
                 AND NOT seq <@ (SELECT dropped FROM sessions WHERE tenant_id = $1 AND id = $2)
               ORDER BY seq LIMIT $4""",
            tenant_id,
            session_id,
            after,
            PAGE,
        )
        for row in rows:
            yield row["run_id"], row["body"], row["facts"]
        if len(rows) < PAGE:
            return
        after = rows[-1]["seq"]


async def last_seqs(
    database: Database, sessions: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Give the newest sequence number of each session `(tenant, id)` that exists."""
    rows = await database.raw.fetch(
        """SELECT s.tenant_id, s.id, s.last_seq FROM sessions s
           JOIN unnest($1::text[], $2::text[]) AS w(tenant_id, id)
             ON s.tenant_id = w.tenant_id AND s.id = w.id""",
        [tenant for tenant, _ in sessions],
        [session for _, session in sessions],
    )
    return {(row["tenant_id"], row["id"]): row["last_seq"] for row in rows}
