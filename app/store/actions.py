"""Actions: what a run's owner does with them, under the fence. How they are settled is elsewhere."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy

from app.domain.actions import (
    ACTION_OPENED,
    ACTION_WITHDRAWN,
    RUN_RESUMED,
    RUN_WAITS,
    Answer,
    Request,
)
from app.domain.journal import ServiceEvent
from app.errors import LeaseLost
from app.store.engine import Database
from app.store.leases import Lease
from app.store.rows import service_body


@dataclass(frozen=True, slots=True)
class Open:
    """An action as its run sees it."""

    id: str
    status: str
    tool_name: str
    sha256: bytes
    is_used: bool
    answer: Answer | None
    """None while it is pending, and of one that was withdrawn."""

    def is_about(self, tool_name: str, sha256: bytes) -> bool:
        """Whether it was asked about this tool with this input: an answer is good for no other."""
        return (self.tool_name, self.sha256) == (tool_name, sha256)


async def newest_of_call(database: Database, lease: Lease, tool_use_id: str) -> Open | None:
    """Give the newest action of a call of the lease's run."""
    row = await database.raw.fetchrow(
        f"""{_SELECT} WHERE tenant_id = $1 AND run_id = $2 AND tool_use_id = $3
            ORDER BY opened_seq DESC LIMIT 1""",
        lease.tenant_id,
        lease.run_id,
        tool_use_id,
    )
    return _open(row) if row else None


async def find_open(database: Database, lease: Lease, action_id: str) -> Open:
    """Give an action that is there."""
    row = await database.raw.fetchrow(
        f"{_SELECT} WHERE tenant_id = $1 AND id = $2", lease.tenant_id, action_id
    )
    return _open(row)


_SELECT = """SELECT id, status, tool_name, sha256, used_at IS NOT NULL AS is_used, answer, on_timeout,
  answered_by FROM actions"""


def _open(row: "asyncpg.Record") -> Open:
    status, answer = row["status"], None
    if status in {"resolved", "expired"}:
        body = orjson.loads(row["answer"]) if row["answer"] else {}
        ends_run = status == "expired" and row["on_timeout"] == "fail"
        answer = Answer(row["id"], status == "expired", ends_run, body, row["answered_by"] or "")
    return Open(row["id"], status, row["tool_name"], row["sha256"], row["is_used"], answer)


async def open_action(database: Database, lease: Lease, action_id: str, request: Request) -> int:
    """Store an action and the event that tells of it; give the event's seq. Raises `LeaseLost`.

    An older one of the same call that is still pending is withdrawn: its input was another.
    """
    told = {
        "action_id": action_id,
        "action_type": request.type,
        "tool_name": request.tool_name,
        "tool_use_id": request.tool_use_id,
        "timeout_seconds": request.timeout_s,
    }
    async with database.raw.acquire() as connection, connection.transaction():
        await _hold(connection, lease)
        older = await connection.fetchval(
            """UPDATE actions SET status = 'withdrawn', settled_at = clock_timestamp()
               WHERE tenant_id = $1 AND run_id = $2 AND tool_use_id = $3 AND status = 'pending'
               RETURNING id""",
            lease.tenant_id,
            lease.run_id,
            request.tool_use_id,
        )
        if older is not None:
            await _tell_withdrawn(connection, lease, older)
        seq: int = await connection.fetchval(
            _OPEN,
            *_fence(lease),
            ACTION_OPENED,
            _body(lease, ACTION_OPENED, told),
            action_id,
            request.type,
            request.tool_use_id,
            request.tool_name,
            request.sha256,
            orjson.dumps(request.shown).decode(),
            request.timeout_s,
            request.on_timeout,
            request.parent_tool_use_id,
            request.agent_id,
        )
    return seq


async def _hold(connection: "PoolConnectionProxy[asyncpg.Record]", lease: Lease) -> None:
    """Lock the session for the rest of the transaction. Raises `LeaseLost`."""
    held = await connection.fetchval(
        """SELECT 1 FROM sessions WHERE tenant_id = $1 AND id = $2 AND epoch = $3
             AND owner IS NOT NULL FOR NO KEY UPDATE""",
        lease.tenant_id,
        lease.session_id,
        lease.epoch,
    )
    if held is None:
        raise _lost(lease)


_TOLD = """
WITH f AS (
  UPDATE sessions SET last_seq = last_seq + 1, updated_at = clock_timestamp()
  WHERE tenant_id = $1 AND id = $2 AND epoch = $3 AND owner IS NOT NULL RETURNING last_seq),
j AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  SELECT $1, $2, f.last_seq, $4, 'service', $5, $6 FROM f)"""

_OPEN = f"""{_TOLD},
a AS (
  INSERT INTO actions (tenant_id, session_id, run_id, opened_seq, id, type, tool_use_id, tool_name,
    sha256, request, expires_at, on_timeout, parent_tool_use_id, agent_id)
  SELECT $1, $2, $4, f.last_seq, $7, $8, $9, $10, $11, $12,
    clock_timestamp() + make_interval(secs => $13::int), $14, $15, $16 FROM f)
SELECT last_seq FROM f"""


async def tell_waits(
    database: Database, lease: Lease, *, waits: bool, action_ids: list[str]
) -> int:
    """Say that nothing of a run moves but those who are asked, or that it moves again.

    Gives the event's seq. Raises `LeaseLost`.
    """
    kind = RUN_WAITS if waits else RUN_RESUMED
    seq: int | None = await database.raw.fetchval(
        f"""{_TOLD},
r AS (UPDATE runs SET status = $7 FROM f WHERE tenant_id = $1 AND id = $4 AND status <> 'finished')
SELECT last_seq FROM f""",
        *_fence(lease),
        kind,
        _body(lease, kind, {"action_ids": action_ids}),
        "requires_action" if waits else "running",
    )
    if seq is None:
        raise _lost(lease)
    return seq


async def use_answer(database: Database, lease: Lease, action_id: str) -> None:
    """Mark an answer as taken, before what it allows begins. Raises `LeaseLost`."""
    async with database.raw.acquire() as connection, connection.transaction():
        await _hold(connection, lease)
        await connection.execute(
            """UPDATE actions SET used_at = coalesce(used_at, clock_timestamp())
               WHERE tenant_id = $1 AND id = $2""",
            lease.tenant_id,
            action_id,
        )


async def note_begun(database: Database, lease: Lease, tool_use_id: str) -> None:
    """Note which call is about to begin, in place of the one before. Raises `LeaseLost`."""
    async with database.raw.acquire() as connection, connection.transaction():
        await _hold(connection, lease)
        await connection.execute(
            """UPDATE runs SET begun_call = $3 WHERE tenant_id = $1 AND id = $2
               AND begun_call IS NOT NULL""",
            lease.tenant_id,
            lease.run_id,
            tool_use_id,
        )


async def may_have_begun(database: Database, lease: Lease, tool_use_id: str) -> bool:
    """Say whether a call may have been begun by an earlier host that noted what it began."""
    newest: str | None = await database.raw.fetchval(
        "SELECT begun_call FROM runs WHERE tenant_id = $1 AND id = $2",
        lease.tenant_id,
        lease.run_id,
    )
    return newest is None or newest == tool_use_id


async def begun_among(
    database: Database, lease: Lease, tool_use_ids: Collection[str], *, is_noted: bool
) -> frozenset[str]:
    """Give those calls of a run that may have begun.

    Not those whose approval or answer was never taken; nor, where it `is_noted` what begins, those
    that were not the last to begin. A client may have carried out what it was asked for, answered
    or not. The calls may be of any kind: of one that only reads it is never
    noted.
    """
    rows = await database.raw.fetch(
        """SELECT c.id FROM unnest($3::text[]) AS c(id) JOIN runs r ON r.tenant_id = $1 AND r.id = $2
           WHERE r.begun_call IS NULL OR r.begun_call = c.id OR NOT ($4 OR coalesce((
             SELECT a.used_at IS NULL FROM actions a
             WHERE a.tenant_id = $1 AND a.run_id = $2 AND a.tool_use_id = c.id
               AND a.type IN ('permission', 'question')
             ORDER BY a.opened_seq DESC LIMIT 1), false))""",
        lease.tenant_id,
        lease.run_id,
        list(tool_use_ids),
        is_noted,
    )
    return frozenset(row["id"] for row in rows)


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What a run asked until it ended."""

    seq: int | None
    """Of the last event that says so; None when it asked nothing."""
    approvals: frozenset[str]
    """Tool use ids of calls that waited for an approval."""


async def withdraw_elicitation(database: Database, lease: Lease, tool_use_id: str) -> int | None:
    """Withdraw what a server asked in a call that is over; give the event's seq. Raises `LeaseLost`."""
    async with database.raw.acquire() as connection, connection.transaction():
        await _hold(connection, lease)
        withdrawn = await connection.fetchval(
            """UPDATE actions SET status = 'withdrawn', settled_at = clock_timestamp()
               WHERE tenant_id = $1 AND run_id = $2 AND tool_use_id = $3 AND status = 'pending'
                 AND type = 'elicitation'
               RETURNING id""",
            lease.tenant_id,
            lease.run_id,
            tool_use_id,
        )
        return None if withdrawn is None else await _tell_withdrawn(connection, lease, withdrawn)


async def withdraw_pending(database: Database, lease: Lease) -> Withdrawn:
    """Withdraw what a run that is about to end still asks. Raises `LeaseLost`."""
    seq: int | None = None
    async with database.raw.acquire() as connection, connection.transaction():
        await _hold(connection, lease)
        rows = await connection.fetch(
            """UPDATE actions SET status = 'withdrawn', settled_at = clock_timestamp()
               WHERE tenant_id = $1 AND run_id = $2 AND status = 'pending'
               RETURNING id, type, tool_use_id""",
            lease.tenant_id,
            lease.run_id,
        )
        for row in rows:
            seq = await _tell_withdrawn(connection, lease, row["id"])
    approvals = frozenset(row["tool_use_id"] for row in rows if row["type"] == "permission")
    return Withdrawn(seq, approvals)


async def _tell_withdrawn(
    connection: "PoolConnectionProxy[asyncpg.Record]", lease: Lease, action_id: str
) -> int:
    seq: int = await connection.fetchval(
        f"{_TOLD} SELECT last_seq FROM f",
        *_fence(lease),
        ACTION_WITHDRAWN,
        _body(lease, ACTION_WITHDRAWN, {"action_id": action_id}),
    )
    return seq


async def park(database: Database, lease: Lease, action_ids: Sequence[str]) -> None:
    """Let a run go that waits for answers to these actions. Does nothing when the lease is lost.

    It is claimed again once there is an answer, or its cancel, or its deadline comes: at once when one
    of them came meanwhile.
    """
    async with database.raw.acquire() as connection, connection.transaction():
        freed = await connection.fetchval(
            """UPDATE sessions SET owner = NULL, lease_expires_at = NULL
               WHERE tenant_id = $1 AND id = $2 AND epoch = $3 RETURNING 1""",
            lease.tenant_id,
            lease.session_id,
            lease.epoch,
        )
        if freed is None:
            return
        # A statement of its own: it sees what was committed while the lock was waited for.
        await connection.execute(
            """UPDATE runs r SET status = 'requires_action', claim_seq = NULL, has_waited = true,
                 is_parked = cancel_requested_at IS NULL AND NOT EXISTS (
                   SELECT 1 FROM actions a WHERE a.tenant_id = r.tenant_id AND a.id = ANY($3)
                     AND a.status <> 'pending')
               WHERE tenant_id = $1 AND id = $2 AND status <> 'finished'""",
            lease.tenant_id,
            lease.run_id,
            list(action_ids),
        )


def _fence(lease: Lease) -> tuple[str, str, int, str]:
    return lease.tenant_id, lease.session_id, lease.epoch, lease.run_id


def _body(lease: Lease, kind: str, data: dict[str, object]) -> str:
    event = ServiceEvent(kind, data)
    return service_body(event, lease.session_id, lease.run_id, datetime.now(UTC))


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"session {lease.session_id} has another owner than epoch {lease.epoch}")
