"""Full text of sessions: filled behind the runs, never in their way.

A row of `search` holds the words of one message, or, with seq 0, of a session's title and first
prompt. Whoever has time takes runs that are not in it yet (`runs.searched`: 1 when the prompt is,
2 when the messages are) and copies (`sessions.copied_to_seq`), so that nothing is missing after a crash, and an append costs nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import Database, sql

log = logging.getLogger(__name__)

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
  ORDER BY s.tenant_id, s.id
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


# The words of a message, as `text_of` has them. The body does not leave the database.
_WORDS_OF_MESSAGE = f"""to_tsvector('simple', left(CASE json_typeof(content)
  WHEN 'string' THEN content #>> '{{}}'
  WHEN 'array' THEN (
    SELECT string_agg(CASE b ->> 'type'
      WHEN 'text' THEN b ->> 'text'
      WHEN 'tool_use' THEN (b ->> 'name') || ' ' || (b ->> 'input')
      WHEN 'tool_result' THEN CASE json_typeof(b -> 'content')
        WHEN 'string' THEN b ->> 'content'
        WHEN 'array' THEN (SELECT string_agg(p ->> 'text', E'\\n')
                           FROM json_array_elements(b -> 'content') AS p) END
      END, E'\\n' ORDER BY o)
    FROM json_array_elements(content) WITH ORDINALITY AS blocks(b, o))
  END, {MOST_CHARS}))"""


def _taken_in(place: str) -> str:
    """Give the statement that takes in what is said in a `place`: a run's rows, or some of them."""
    return f"""
  INSERT INTO search (tenant_id, session_id, seq, words, at)
  SELECT j.tenant_id, j.session_id, j.seq, coalesce({_WORDS_OF_MESSAGE}, ''), j.at
  FROM {place} AS place JOIN journal j ON j.tenant_id = place.tenant_id
      AND j.session_id = place.session_id AND j.run_id IS NOT DISTINCT FROM place.run_id
      AND j.seq BETWEEN place.first_seq AND place.last_seq
      AND j.kind = 'message' AND j.type IN ('user', 'assistant')
    CROSS JOIN LATERAL (SELECT j.body::json #> '{{message,content}}' AS content) AS said
  ON CONFLICT DO NOTHING"""


_MOST_ROWS = 500
"""Of a run that is taken in with others."""
_PART_ROWS = 100
"""Of a session that one statement takes in: a row may hold much."""
_AT_ONCE = 10
"""Runs."""
_UNREADABLE = (asyncpg.DataError, asyncpg.ProgramLimitExceededError)
"""What a body raises that Postgres cannot read as JSON or text, or whose words are too many."""
_UNFIT = (*_UNREADABLE, asyncpg.QueryCanceledError, TimeoutError)
"""What a smaller statement may be spared."""
# A run that no host has begun has no last row, and nothing is said in it.
_SHORT_RUNS = f"""
WITH todo AS (
  SELECT tenant_id, id, id AS run_id, session_id, first_seq, last_seq FROM runs
  WHERE searched = 1 AND status = 'finished'
    AND coalesce(last_seq, first_seq) - first_seq < {_MOST_ROWS}
  LIMIT {_AT_ONCE} FOR NO KEY UPDATE SKIP LOCKED),
words AS ({_taken_in("todo")}),
done AS (
  UPDATE runs SET searched = 2 FROM todo
  WHERE runs.tenant_id = todo.tenant_id AND runs.id = todo.id)
SELECT count(*) FROM todo"""
_SOME_ROWS = _taken_in(
    """(SELECT $1::text AS tenant_id, $2::text AS session_id, $3::text AS run_id,
          $4::bigint AS first_seq, $5::bigint AS last_seq)"""
)


async def index_messages(database: Database) -> bool:
    """Take in messages of runs that have ended; False when none is left."""
    try:
        taken: int = await database.raw.fetchval(_SHORT_RUNS)
    except _UNFIT as error:
        # The same runs would be chosen, and fail, for ever.
        log.warning("Runs are taken into the search one by one: %s", type(error).__name__)
        return any([await _index_run(database) for _ in range(_AT_ONCE)])
    return taken > 0 or await _index_run(database)


async def _index_run(database: Database) -> bool:
    async with database.raw.acquire() as connection, connection.transaction():
        run = await connection.fetchrow(
            """SELECT tenant_id, id, session_id, first_seq, last_seq FROM runs
               WHERE searched = 1 AND status = 'finished' LIMIT 1 FOR UPDATE SKIP LOCKED"""
        )
        if run is None:
            return False
        place = _Place(run["tenant_id"], run["session_id"], run["id"])
        await _take_in(connection, place, first=run["first_seq"], last=run["last_seq"])
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
        await _take_in(connection, place, first=1, last=copy["copied_to_seq"])
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
    connection: "PoolConnectionProxy[asyncpg.Record]", place: _Place, *, first: int, last: int
) -> None:
    for start in range(first, last + 1, _PART_ROWS):
        await _take_part(connection, place, start, min(last, start + _PART_ROWS - 1))


async def _take_part(
    connection: "PoolConnectionProxy[asyncpg.Record]", place: _Place, first: int, last: int
) -> None:
    """Take in rows, by halves when they cannot be at once; one that cannot be read is left out."""
    try:
        async with connection.transaction():
            await connection.execute(
                _SOME_ROWS, place.tenant_id, place.session_id, place.run_id, first, last
            )
    except _UNFIT as error:
        if first < last:
            middle = (first + last) // 2
            await _take_part(connection, place, first, middle)
            await _take_part(connection, place, middle + 1, last)
        elif isinstance(error, _UNREADABLE):
            row = (place.session_id, first, type(error).__name__)
            log.warning("Session %s: message %s is not in the search: %s", *row)
        else:
            raise


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
