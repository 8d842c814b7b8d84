"""Full text of sessions: filled behind the runs, never in their way.

A row of `search` holds the words of one message, or, with seq 0, of a session's title and first
prompt. Whoever has time takes runs that are not in it yet (`runs.searched`: 1 when the prompt is,
2 when the messages are) and copies (`sessions.copied_to_seq`), so that nothing is missing after a crash, and an append costs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import Database, sql
from app.store.replay import read_page

MOST_CHARS = 100_000
"""Of a message; what is beyond is not found."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A message in which the words stand."""

    session_id: str
    title: str | None
    seq: int
    run_id: str | None
    type: str
    uuid: str
    at: datetime
    text: str


def text_of(body: str) -> str:
    """Give what is said in a message: prompts, answers, calls and their results."""
    message = orjson.loads(body)
    content = message.get("message", {}).get("content", ())
    if isinstance(content, str):
        return content[:MOST_CHARS]
    return "\n".join(_said(block) for block in content)[:MOST_CHARS]


def _said(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "tool_use", "name": name, "input": given}:
            return f"{name} {orjson.dumps(given).decode()}"
        case {"type": "tool_result", "content": str(text)}:
            return text
        case {"type": "tool_result", "content": list(parts)}:
            return "\n".join(str(part.get("text", "")) for part in parts)
        case _:
            return ""


# -- filling ----------------------------------------------------------------------------------


async def index_prompts(database: Database, *, most: int = 100) -> int:
    """Take in titles and first prompts of sessions with new runs; give how many runs there were."""
    done: int = await database.raw.fetchval(_PROMPTS, most)
    return done


_WORDS_OF_SESSION = """
  SELECT s.tenant_id, s.id, 0, to_tsvector('simple', coalesce(s.title, '') || ' ' || coalesce(
    (SELECT i.preview FROM inbox i WHERE i.tenant_id = s.tenant_id AND i.session_id = s.id
     ORDER BY i.position LIMIT 1), '')), s.created_at
  FROM sessions s"""
# A run that is quite new is left alone: a host may be about to claim it, and skips locked rows.
_PROMPTS = f"""
WITH todo AS (
  SELECT tenant_id, id, session_id FROM runs
  WHERE searched = 0 AND created_at < clock_timestamp() - interval '1 s'
  LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED),
words AS (
  INSERT INTO search (tenant_id, session_id, seq, words, at) {_WORDS_OF_SESSION}
  WHERE (s.tenant_id, s.id) IN (SELECT tenant_id, session_id FROM todo)
  ON CONFLICT (tenant_id, session_id, seq) DO UPDATE SET words = excluded.words),
done AS (
  UPDATE runs SET searched = 1 FROM todo
  WHERE runs.tenant_id = todo.tenant_id AND runs.id = todo.id)
SELECT count(*) FROM todo"""


async def index_title(connection: AsyncConnection, tenant_id: str, session_id: str) -> None:
    """Take in a session's title as it is now, inside the caller's transaction."""
    await connection.execute(
        sql(
            f"""INSERT INTO search (tenant_id, session_id, seq, words, at) {_WORDS_OF_SESSION}
                WHERE s.tenant_id = :tenant AND s.id = :session
                ON CONFLICT (tenant_id, session_id, seq) DO UPDATE SET words = excluded.words"""
        ),
        {"tenant": tenant_id, "session": session_id},
    )


async def index_messages(database: Database) -> bool:
    """Take in the messages of one run that has ended; False when none is left."""
    async with database.raw.acquire() as connection, connection.transaction():
        run = await connection.fetchrow(
            """SELECT tenant_id, id, session_id, first_seq, last_seq FROM runs
               WHERE searched = 1 AND status = 'finished' LIMIT 1 FOR UPDATE SKIP LOCKED"""
        )
        if run is None:
            return False
        place = _Place(run["tenant_id"], run["session_id"], run["id"])
        await _take_in(
            database, connection, place, after=run["first_seq"] - 1, up_to=run["last_seq"]
        )
        await connection.execute(
            "UPDATE runs SET searched = 2 WHERE tenant_id = $1 AND id = $2",
            run["tenant_id"],
            run["id"],
        )
    return True


async def index_copies(database: Database) -> bool:
    """Take in what came with one fork or import; False when none is left.

    The session's row is not locked meanwhile, since its runs need it: hosts agree by a lock of
    their own.
    """
    async with database.raw.acquire() as connection, connection.transaction():
        copy = await connection.fetchrow(
            """SELECT tenant_id, id, copied_to_seq FROM sessions WHERE copied_to_seq IS NOT NULL
                 AND pg_try_advisory_xact_lock(hashtextextended(tenant_id || ' ' || id, 1))
               LIMIT 1"""
        )
        if copy is None:
            return False
        place = _Place(copy["tenant_id"], copy["id"], None)
        await _take_in(database, connection, place, after=0, up_to=copy["copied_to_seq"])
        await connection.execute(
            "UPDATE sessions SET copied_to_seq = NULL WHERE tenant_id = $1 AND id = $2",
            copy["tenant_id"],
            copy["id"],
        )
    return True


@dataclass(frozen=True, slots=True)
class _Place:
    tenant_id: str
    session_id: str
    run_id: str | None
    """None: messages that belong to no run of the session."""


async def _take_in(
    database: Database,
    connection: "PoolConnectionProxy[asyncpg.Record]",
    place: _Place,
    *,
    after: int,
    up_to: int,
) -> None:
    has_more = True
    while has_more:
        page = await read_page(
            database, place.tenant_id, place.session_id, after=after, up_to=up_to, of="messages"
        )
        said = [row for row in page.rows if row.run_id == place.run_id and row.type in _SAID]
        await connection.execute(
            """INSERT INTO search (tenant_id, session_id, seq, words, at)
               SELECT $1, $2, n, to_tsvector('simple', t), a
               FROM unnest($3::bigint[], $4::text[], $5::timestamptz[]) AS m(n, t, a)
               ON CONFLICT DO NOTHING""",
            place.tenant_id,
            place.session_id,
            [row.seq for row in said],
            [text_of(row.body) for row in said],
            [row.at for row in said],
        )
        has_more, after = page.has_more, page.rows[-1].seq if page.rows else after


_SAID = {"user", "assistant"}


# -- finding ----------------------------------------------------------------------------------


async def find_messages(
    database: Database,
    tenant_id: str,
    query: str,
    *,
    after: tuple[datetime, str, int] | None,
    limit: int,
) -> list[Hit]:
    """Give messages that hold the query's words, the newest first, beyond the key `after`."""
    at, session_id, seq = after or (None, "", 0)
    rows = await database.raw.fetch(
        """SELECT w.session_id, s.title, w.seq, j.run_id, j.type, j.uuid, w.at,
             CASE WHEN octet_length(j.body) <= $7 THEN j.body END AS body
           FROM search w
           JOIN sessions s ON s.tenant_id = w.tenant_id AND s.id = w.session_id
           JOIN journal j ON j.tenant_id = w.tenant_id AND j.session_id = w.session_id
             AND j.seq = w.seq
           WHERE w.tenant_id = $1 AND w.seq > 0 AND w.words @@ websearch_to_tsquery('simple', $2)
             AND ($3::timestamptz IS NULL OR (w.at, w.session_id, w.seq) < ($3, $4, $5))
           ORDER BY w.at DESC, w.session_id DESC, w.seq DESC LIMIT $6""",
        tenant_id,
        query,
        at,
        session_id,
        seq,
        limit,
        _MOST_SHOWN_BYTES,
    )
    return [
        Hit(
            row["session_id"],
            row["title"],
            row["seq"],
            row["run_id"],
            row["type"],
            row["uuid"],
            row["at"],
            text_of(row["body"]) if row["body"] else "",
        )
        for row in rows
    ]


_MOST_SHOWN_BYTES = 200_000
"""A message that is larger is found, but not shown: a page of them is what an answer holds."""
