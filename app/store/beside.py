"""Subagents in the background: runs beside the one that a host drives in their session.

Nobody claims them. Whoever holds a session's lease drives them all, under that lease; a session that
nobody holds is taken for their sake when no run of it can be claimed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

from app.domain.options import stored_budget
from app.domain.runs import EndReason
from app.errors import LeaseLost
from app.store.engine import Database
from app.store.journal import CONVERSATIONS, ConversationRow
from app.store.leases import Host, Lease


@dataclass(frozen=True, slots=True)
class Beginning:
    """An attempt at a subagent's run."""

    attempt: int
    stalled_attempts: int
    """Attempts in a row that ended without a new message."""
    was_lost: bool
    """Whether the last owner may have died in the middle."""
    is_cancelled: bool
    last_seq: int
    """Of the session, as it began."""
    launched: Mapping[str, Any]


async def begin(database: Database, lease: Lease) -> Beginning | None:
    """Begin an attempt under the lease; None when the run is over. Raises `LeaseLost`."""
    row = await database.raw.fetchrow(
        """
WITH s AS (
  SELECT last_seq FROM sessions
  WHERE tenant_id = $1 AND id = $2 AND epoch = $3 AND owner IS NOT NULL FOR NO KEY UPDATE),
old AS (SELECT status FROM runs WHERE tenant_id = $1 AND id = $4),
r AS (
UPDATE runs r SET status = 'running', attempt = r.attempt + 1, claim_seq = s.last_seq,
  has_waited = false,
  stalled_attempts = CASE WHEN r.claim_seq IS NULL THEN r.stalled_attempts
    WHEN EXISTS (SELECT 1 FROM journal j WHERE j.tenant_id = $1 AND j.session_id = $2
      AND j.seq > r.claim_seq AND j.run_id = $4 AND j.kind <> 'service') THEN 0
    ELSE r.stalled_attempts + 1 END,
  started_at = coalesce(r.started_at, clock_timestamp())
FROM s, old WHERE r.tenant_id = $1 AND r.id = $4 AND r.status <> 'finished'
RETURNING r.attempt, r.stalled_attempts, old.status <> 'queued' AS was_lost,
  r.cancel_requested_at IS NOT NULL AS is_cancelled, s.last_seq, r.launched::text)
SELECT EXISTS (SELECT 1 FROM s) AS is_held, r.* FROM (SELECT 1) AS one LEFT JOIN r ON true""",
        lease.tenant_id,
        lease.session_id,
        lease.epoch,
        lease.run_id,
    )
    if not row["is_held"]:
        raise LeaseLost(f"session {lease.session_id} has another owner than epoch {lease.epoch}")
    if row["attempt"] is None:
        return None
    return Beginning(
        row["attempt"],
        row["stalled_attempts"],
        row["was_lost"],
        row["is_cancelled"],
        row["last_seq"],
        orjson.loads(row["launched"]),
    )


async def let_go(database: Database, lease: Lease) -> None:
    """Let a subagent's run go, for the session's next holder. Does nothing when the lease is lost."""
    await database.raw.execute(
        """WITH held AS MATERIALIZED (
             SELECT id FROM sessions WHERE tenant_id = $1 AND id = $2 AND epoch = $3
               AND owner IS NOT NULL FOR NO KEY UPDATE)
           UPDATE runs SET status = 'queued', claim_seq = NULL FROM held
           WHERE runs.tenant_id = $1 AND runs.id = $4 AND runs.status <> 'finished'""",
        lease.tenant_id,
        lease.session_id,
        lease.epoch,
        lease.run_id,
    )


async def tell_no_more(database: Database, lease: Lease, shown: Sequence[str]) -> None:
    """Let ends be that the conversation has no place for, since a rewind took their begin out of it.

    `shown` are runs of those that it shows as working. Else a run would follow for the others' sake,
    which tells nothing, and again one. Does nothing when the lease is lost.
    """
    await database.raw.execute(
        """WITH held AS MATERIALIZED (
             SELECT id FROM sessions WHERE tenant_id = $1 AND id = $2 AND epoch = $3
               AND owner IS NOT NULL FOR NO KEY UPDATE)
           UPDATE runs SET is_untold = false FROM held
           WHERE tenant_id = $1 AND session_id = $2 AND origin = 'subagent' AND is_untold
             AND runs.id <> ALL($4::text[])""",
        lease.tenant_id,
        lease.session_id,
        lease.epoch,
        list(shown),
    )


@dataclass(frozen=True, slots=True)
class Beside:
    """A subagent in the background whose end is not told."""

    run_id: str
    agent_id: str
    parent_run_id: str
    is_finished: bool
    end_reason: EndReason | None
    launched: Mapping[str, Any]
    options: Mapping[str, Any]
    ended_s: float | None
    """Seconds since 1970."""
    took_ms: int | None


async def untold(database: Database, tenant_id: str, session_id: str) -> list[Beside]:
    """Give a session's subagents in the background whose ends are not told, oldest first."""
    rows = await database.raw.fetch(
        """SELECT id, parent_run_id, status = 'finished' AS is_finished, end_reason,
             launched::text, options::text,
             extract(epoch FROM finished_at)::float8 AS ended_s,
             (extract(epoch FROM finished_at - started_at) * 1000)::bigint AS took_ms
           FROM runs WHERE tenant_id = $1 AND session_id = $2 AND origin = 'subagent'
             AND (status <> 'finished' OR is_untold) ORDER BY queued_seq, id""",
        tenant_id,
        session_id,
    )
    found = []
    for row in rows:
        launched = orjson.loads(row["launched"])
        found.append(
            Beside(
                row["id"],
                launched.get("agent_id", row["id"]),  # of another version of the program, maybe
                row["parent_run_id"],
                row["is_finished"],
                row["end_reason"],
                launched,
                orjson.loads(row["options"]),
                row["ended_s"],
                row["took_ms"],
            )
        )
    return found


async def rows_of(
    database: Database, tenant_id: str, session_id: str, run_id: str
) -> list[ConversationRow]:
    """Give the conversation of one run, oldest first: what a subagent's state is folded from."""
    rows = await database.raw.fetch(
        f"""SELECT run_id, body, facts FROM journal
            WHERE tenant_id = $1 AND session_id = $2 AND run_id = $3 AND {CONVERSATIONS}
              AND seq >= (SELECT first_seq FROM runs WHERE tenant_id = $1 AND id = $3)
            ORDER BY seq""",
        tenant_id,
        session_id,
        run_id,
    )
    return [(row["run_id"], row["body"], row["facts"]) for row in rows]


async def cancelled(database: Database, runs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Give those of these runs `(tenant, id)` whose cancel is asked for."""
    if not runs:
        return set()
    rows = await database.raw.fetch(
        """SELECT r.tenant_id, r.id FROM runs r
             JOIN unnest($1::text[], $2::text[]) AS w(tenant_id, id)
             ON r.tenant_id = w.tenant_id AND r.id = w.id
           WHERE r.cancel_requested_at IS NOT NULL""",
        [tenant for tenant, _ in runs],
        [run_id for _, run_id in runs],
    )
    return {(row["tenant_id"], row["id"]) for row in rows}


@dataclass(frozen=True, slots=True)
class Family:
    """The runs that share one budget: the one that has it, what it began, and what followed."""

    budget_usd: Decimal | None
    spent: Mapping[str, Decimal]
    """By run."""


async def family_of(database: Database, tenant_id: str, run_id: str) -> Family:
    """Give the family of a run."""
    rows = await database.raw.fetch(
        """
WITH RECURSIVE up AS (
  SELECT id, parent_run_id, origin FROM runs WHERE tenant_id = $1 AND id = $2
  UNION ALL
  SELECT r.id, r.parent_run_id, r.origin FROM runs r JOIN up ON r.id = up.parent_run_id
  WHERE r.tenant_id = $1 AND up.origin IN ('subagent', 'task-notification')),
family AS (
  SELECT id FROM up WHERE origin NOT IN ('subagent', 'task-notification')
  UNION ALL
  SELECT r.id FROM runs r JOIN family ON r.parent_run_id = family.id
  WHERE r.tenant_id = $1 AND r.origin IN ('subagent', 'task-notification')
    AND r.session_id = (SELECT session_id FROM runs WHERE tenant_id = $1 AND id = $2))
SELECT r.id, r.cost_usd, r.origin, r.options ->> 'max_budget_usd' AS budget
FROM family JOIN runs r ON r.id = family.id WHERE r.tenant_id = $1""",
        tenant_id,
        run_id,
    )
    root = next(row for row in rows if row["origin"] not in {"subagent", "task-notification"})
    return Family(
        stored_budget(root["budget"]),
        {row["id"]: row["cost_usd"] for row in rows},
    )


@dataclass(frozen=True, slots=True)
class Orphans:
    """A session that this host holds from now on, for the sake of its subagents."""

    lease: Lease
    """Of the run whose place a run that follows takes."""
    options: Mapping[str, Any]
    """Of that run, in stored form."""


async def take_orphans(database: Database, host: Host) -> Orphans | None:
    """Take a free session whose subagents nobody drives, or whose ends nobody tells.

    None when there is none. One with a run that can be claimed is left: who claims that takes them. In one
    that is archived nothing more is told.
    """
    row = await database.raw.fetchrow(
        _TAKE,
        host.id,
        host.lease_s,
    )
    if row is None:
        return None
    lease = Lease(row["tenant_id"], row["session_id"], row["run_id"], row["epoch"])
    return Orphans(lease, orjson.loads(row["options"]))


# A run that waits for an answer without a host tells the ends itself, once it goes on. Who held the
# session since it was looked at has left nothing to take, as far as is known: the epoch tells.
_TAKE = """
WITH wanted AS MATERIALIZED (
  SELECT c.tenant_id, c.session_id, c.parent_run_id, s.epoch FROM runs c
    JOIN sessions s ON s.tenant_id = c.tenant_id AND s.id = c.session_id
  WHERE c.origin = 'subagent'
    AND (c.status <> 'finished' OR c.is_untold AND s.archived_at IS NULL)
    AND (s.lease_expires_at IS NULL OR s.lease_expires_at <= clock_timestamp())
    AND NOT EXISTS (SELECT 1 FROM runs e WHERE e.tenant_id = c.tenant_id
      AND e.session_id = c.session_id AND e.status <> 'finished' AND e.origin <> 'subagent'
      AND (c.status = 'finished' OR NOT e.is_parked))
  ORDER BY c.created_at LIMIT 20),
next AS MATERIALIZED (
  SELECT s.tenant_id, s.id, wanted.parent_run_id FROM wanted
    JOIN sessions s ON s.tenant_id = wanted.tenant_id AND s.id = wanted.session_id
  WHERE s.epoch = wanted.epoch
    AND (s.lease_expires_at IS NULL OR s.lease_expires_at <= clock_timestamp())
  LIMIT 1 FOR NO KEY UPDATE OF s SKIP LOCKED),
taken AS (
  UPDATE sessions s SET owner = $1, epoch = s.epoch + 1,
    lease_expires_at = clock_timestamp() + make_interval(secs => $2)
  FROM next WHERE s.tenant_id = next.tenant_id AND s.id = next.id
  RETURNING s.tenant_id, s.id AS session_id, s.epoch, next.parent_run_id),
last AS (
  SELECT r.id, r.options FROM runs r JOIN taken ON r.tenant_id = taken.tenant_id
    AND r.session_id = taken.session_id
  WHERE r.origin <> 'subagent' AND r.status = 'finished' AND r.attempt > 0
  ORDER BY r.last_seq DESC LIMIT 1)
SELECT taken.tenant_id, taken.session_id, taken.epoch, coalesce(last.id, parent.id) AS run_id,
  coalesce(last.options, parent.options)::text AS options
FROM taken JOIN runs parent ON parent.tenant_id = taken.tenant_id
    AND parent.id = taken.parent_run_id
  LEFT JOIN last ON true"""
