"""Actions: reads for clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.actions import ActionStatus, ActionType
from app.store.engine import Database, sql
from app.store.keyset import Keyset


@dataclass(frozen=True, slots=True)
class ActionRow:
    """An action as the table has it."""

    id: str
    session_id: str
    run_id: str
    type: ActionType
    status: ActionStatus
    tool_use_id: str
    tool_name: str
    parent_tool_use_id: str | None
    """The call that began the subagent that asks; None for the main conversation."""
    agent_id: str | None
    request: dict[str, Any]
    answer: dict[str, Any] | None
    answered_by: str | None
    opened_seq: int
    on_timeout: str
    created_at: datetime
    expires_at: datetime
    settled_at: datetime | None
    is_overdue: bool
    """Whether it is pending and its time is over, by the database's clock."""
    last_seq: int
    """Of its session's log when this was read: what came later is beyond it."""


@dataclass(frozen=True, slots=True)
class ActionFilter:
    """Which actions a list has. What is empty, or None, does not matter."""

    statuses: Sequence[str] = ()
    types: Sequence[str] = ()
    session_id: str | None = None
    run_id: str | None = None
    user: str | None = None


_SELECT = """
SELECT a.id, a.session_id, a.run_id, a.type, a.status, a.tool_use_id, a.tool_name,
  a.parent_tool_use_id, a.agent_id, a.request, a.answer, a.answered_by, a.opened_seq, a.on_timeout, a.created_at, a.expires_at, a.settled_at,
  a.status = 'pending' AND a.expires_at <= clock_timestamp() AS is_overdue, s.last_seq
FROM actions a JOIN sessions s ON s.tenant_id = a.tenant_id AND s.id = a.session_id
WHERE a.tenant_id = :tenant """


async def find_action(
    connection: AsyncConnection, tenant_id: str, action_id: str
) -> ActionRow | None:
    """Give an action, or None when the tenant has none of this id."""
    row = (
        await connection.execute(
            sql(_SELECT + "AND a.id = :id"), {"tenant": tenant_id, "id": action_id}
        )
    ).one_or_none()
    return _row(row._mapping) if row else None  # noqa: SLF001 - SQLAlchemy's public name


async def list_actions(
    database: Database,
    tenant_id: str,
    keyset: Keyset,
    wanted: ActionFilter,
) -> Sequence[ActionRow]:
    """Give actions by creation time."""
    where = ""
    values: dict[str, Any] = {"tenant": tenant_id, **keyset.values}
    if list(wanted.statuses) == ["pending"]:
        where += "AND a.status = 'pending' "  # as a partial index has it
    elif wanted.statuses:
        where += "AND a.status = ANY(:statuses) "
        values["statuses"] = list(wanted.statuses)
    if wanted.types:
        where += "AND a.type = ANY(:types) "
        values["types"] = list(wanted.types)
    for column, given in (("session_id", wanted.session_id), ("run_id", wanted.run_id)):
        if given is not None:
            where += f"AND a.{column} = :{column} "
            values[column] = given
    if wanted.user is not None:
        where += "AND s.end_user = :user "
        values["user"] = wanted.user
    async with database.connect() as connection:
        rows = await connection.execute(sql(keyset.within(_SELECT + where, "a")), values)
        return [_row(row._mapping) for row in rows]  # noqa: SLF001 - as above


def _row(columns: Any) -> ActionRow:  # noqa: ANN401 - a row's mapping, which SQLAlchemy does not type
    values = dict(columns)
    answer = values["answer"]
    values["request"] = orjson.loads(values["request"])
    values["answer"] = None if answer is None else orjson.loads(answer)
    return ActionRow(**values)
