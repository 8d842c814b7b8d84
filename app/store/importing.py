"""A session that comes in whole: its messages are stored with it, or nothing is."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.journal import Entry
from app.domain.messages import Message
from app.store.engine import sql
from app.store.rows import columns, message_row
from app.store.sessions import NewSession, create_session

_ROWS_AT_ONCE = 500


async def import_session(
    connection: AsyncConnection,
    tenant_id: str,
    new: NewSession,
    messages: Iterable[Message],
    *,
    inherited: Mapping[str, Any],
) -> None:
    """Insert a session with messages that belong to no run of it. Raises `IdTaken`."""
    await create_session(connection, tenant_id, new)
    left = iter(messages)
    last_seq = 1
    while some := list(islice(left, _ROWS_AT_ONCE)):
        names = ("kinds", "types", "subtypes", "uuids", "parents", "bodies", "facts")
        arrays = columns([message_row(Entry.of(message)) for message in some])
        await connection.execute(
            sql(_INSERT),
            {
                "tenant": tenant_id,
                "session": new.id,
                "after": last_seq,
                **dict(zip(names, arrays, strict=True)),
            },
        )
        last_seq += len(some)
    await connection.execute(
        sql(
            """UPDATE sessions SET last_seq = :last_seq, copied_to_seq = :last_seq,
                 inherited = CAST(:inherited AS jsonb)
               WHERE tenant_id = :tenant AND id = :session"""
        ),
        {
            "tenant": tenant_id,
            "session": new.id,
            "last_seq": last_seq,
            "inherited": orjson.dumps(inherited).decode() if inherited else None,
        },
    )


_INSERT = """
INSERT INTO journal (tenant_id, session_id, seq, kind, type, subtype, uuid, parent_tool_use_id,
                     body, facts)
SELECT :tenant, :session, CAST(:after AS bigint) + o, k, t, s, u, p, b, x
FROM unnest(CAST(:kinds AS text[]), CAST(:types AS text[]), CAST(:subtypes AS text[]),
            CAST(:uuids AS text[]), CAST(:parents AS text[]), CAST(:bodies AS text[]),
            CAST(:facts AS text[])) WITH ORDINALITY AS n(k, t, s, u, p, b, x, o)"""
