"""Where a conversation ends: at a message, of a session that is at rest."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import SessionBusy, ValidationFailed
from app.runs.wishes import event_body
from app.store.session_edits import Mark, find_mark, rewind_session
from app.store.sessions import SessionRow, archived
from app.store.waiting import Held, first_run, hold_session


async def rewind(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    at_message: str,
    *,
    pointer: str = "/at_message",
) -> None:
    """Rewind inside the caller's transaction; nothing is written when nothing comes after it."""
    held = await hold_session(connection, tenant_id, session_id)
    if held.is_archived:
        raise archived()
    check_is_free(held, "rewound")
    end = await find_end(connection, tenant_id, session_id, at_message, pointer=pointer)
    if end.is_newest:
        return
    data: Mapping[str, Any] = {"at_message": at_message, "after_seq": end.seq}
    await rewind_session(
        connection,
        tenant_id,
        session_id,
        after_seq=end.seq,
        rewound_body=event_body(session_id, "session.rewound", data),
    )


def check_is_free(held: Held, done: str) -> None:
    """Raise `SessionBusy` for a session with unfinished runs, which cannot be `done` so."""
    if held.first is None:
        if held.beside is not None:
            raise SessionBusy(
                f"A subagent is at work in the background (run {held.beside}), so the session cannot "
                f"be {done}. Wait for its end, or cancel it.",
                context={"active_run_id": held.beside},
            )
        return
    state = "is under way" if held.first.has_begun else "waits"
    raise SessionBusy(
        f"Run {held.first.run_id} {state}, so the session cannot be {done}. Wait for its end, or "
        "cancel it.",
        context={"active_run_id": held.first.run_id},
    )


async def find_end(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    message_uuid: str,
    *,
    pointer: str = "/at_message",
) -> Mark:
    """Find the message that a conversation is to end with. Raises `ValidationFailed`."""
    mark = await find_mark(connection, tenant_id, session_id, message_uuid)
    if mark is None:
        why = "the session has no such message"
    elif mark.is_dropped:
        why = "a rewind took this message out of the conversation"
    else:
        return mark
    raise ValidationFailed(
        f"The conversation cannot end there: {why}.",
        errors=[{"pointer": pointer, "code": "no_end", "message": why}],
    )


async def check_is_at_rest(
    connection: AsyncConnection, tenant_id: str, session: SessionRow
) -> None:
    """Raise `SessionBusy` for a session in the middle of a run. A run that waits does not matter."""
    first = await first_run(connection, tenant_id, session.id)
    if first is None or not first.has_begun:
        return
    raise SessionBusy(
        f"Run {first.run_id} is under way. Name the message to branch at (`at_message`), or wait "
        "for its end.",
        context={
            "active_run_id": first.run_id,
            "last_message_uuid": session.last_message_uuid,
        },
    )
