"""A session with the messages of another one."""

from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import sql
from app.store.sessions import NewSession, create_session


async def fork_session(
    connection: AsyncConnection,
    tenant_id: str,
    parent_id: str,
    new: NewSession,
    *,
    up_to_seq: int,
    inherited: Mapping[str, Any],
    forked_body: str,
) -> None:
    """Copy a session's messages up to `up_to_seq` into a new session. The original is untouched.

    What a rewind took out of the conversation is not copied, nor what a subagent in the background
    said whose end is not told in the copy: that goes on, or is told, in the original alone.
    The copies speak of the new session; they belong to no run of it. Raises `IdTaken`.
    """
    await create_session(connection, tenant_id, new)
    await connection.execute(
        sql(
            """
WITH untold AS MATERIALIZED (
  SELECT r.id FROM runs r
  WHERE r.tenant_id = :tenant AND r.session_id = :parent AND r.origin = 'subagent'
    AND NOT EXISTS (SELECT 1 FROM journal t, sessions s WHERE t.tenant_id = :tenant
      AND t.session_id = :parent AND t.seq > r.first_seq AND t.seq <= :up_to
      AND t.subtype = 'task_notification' AND t.kind = 'message' AND t.run_id <> r.id
      AND t.body::json ->> 'task_id' = r.launched ->> 'agent_id'
      AND s.tenant_id = :tenant AND s.id = :parent AND NOT t.seq <@ s.dropped)),
copied AS (
  INSERT INTO journal (tenant_id, session_id, seq, kind, type, subtype, uuid, parent_tool_use_id,
                       body, facts, at)
  SELECT tenant_id, :id, 1 + row_number() OVER (ORDER BY seq), kind, type, subtype, uuid,
    parent_tool_use_id,
    replace(body, '"session_id":"' || session_id || '"', '"session_id":"' || :id || '"'),
    facts, at
  FROM journal WHERE tenant_id = :tenant AND session_id = :parent AND kind <> 'service'
    AND seq <= :up_to AND NOT seq <@ (
      SELECT dropped FROM sessions WHERE tenant_id = :tenant AND id = :parent)
    AND NOT EXISTS (SELECT 1 FROM untold WHERE untold.id = journal.run_id)
  RETURNING seq),
s AS (
  UPDATE sessions SET parent_id = :parent, forked_at = clock_timestamp(),
    inherited = CAST(:inherited AS jsonb), last_seq = 2 + (SELECT count(*) FROM copied),
    copied_to_seq = 1 + (SELECT count(*) FROM copied)
  WHERE tenant_id = :tenant AND id = :id RETURNING last_seq)
INSERT INTO journal (tenant_id, session_id, seq, kind, type, body)
SELECT :tenant, :id, last_seq, 'service', 'session.forked', :forked FROM s"""
        ),
        {
            "tenant": tenant_id,
            "id": new.id,
            "parent": parent_id,
            "up_to": up_to_seq,
            "inherited": orjson.dumps(inherited).decode(),
            "forked": forked_body,
        },
    )
