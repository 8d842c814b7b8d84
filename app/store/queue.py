"""Who runs what: enqueue, claim, renew, let go.

A run is claimable when it is the first unfinished run of its session and nobody holds a live lease
on the session. Taking it raises the session's epoch: whoever held it before cannot write any more.
All times are the database's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.agent.state import LoopState
from app.domain.messages import Prompt
from app.errors import NotFound, QueueFull
from app.store.engine import Database, sql
from app.store.inbox import (
    INBOX_COLUMNS,
    PROMPT_COLUMNS,
    PROMPT_TYPES,
    prompts_json,
    refusal,
)
from app.store.leases import Lease
from app.store.runs import Work
from app.store.sessions import archived


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run on its way in."""

    id: str
    options: Mapping[str, Any]
    """Effective options, in stored form."""
    prompts: Sequence[Prompt]
    metadata: Mapping[str, Any]
    queued_body: str
    """The `run.queued` event, all but its `seq`."""
    priority: int = 0
    deadline_s: int | None = None
    """From now on, by the database's clock."""
    recovery_policy: str = "resume"
    max_attempts: int | None = None
    """The run's own bound on attempts without progress; None: the host's."""
    on_disconnect: str = "continue"
    retries: str | None = None
    """The run that it tries again; one without prompts goes on where that run stopped."""

    @property
    def steers(self) -> int:
        """How many of its prompts come after the first, to be taken in while the run goes on."""
        return sum(prompt.is_steer for prompt in self.prompts)


@dataclass(frozen=True, slots=True)
class Host:
    """A process that drives runs."""

    id: str
    lease_s: float


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this host drives from now on."""

    lease: Lease
    attempt: int
    stalled_attempts: int
    """Attempts in a row that ended without a new message."""
    last_seq: int
    was_lost: bool = False
    """Whether the last owner's lease ran out, so that it may have died in the middle."""
    is_cancelled: bool = False
    """Whether its cancel is asked for already."""
    is_new_session: bool = False
    """True when the journal holds no message yet, so that there is nothing to fold."""
    state: LoopState | None = None
    """Where the run stands, when it was opened with its claim."""
    work: Work | None = None
    """What is needed to drive it, when the claimer knows it already."""
    prompts: Sequence[Prompt] | None = None
    """What waits in its inbox, when the claimer knows it already."""
    has_waited: bool = False
    """Whether it waited for an answer without a host, so that nothing of it was under way."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a new run."""

    queued_seq: int
    ahead: int
    """Unfinished runs of the session before it."""
    claim: Claim | None
    """Set when the host that asked claimed it on the spot."""


# The first unfinished run of each free session: one that was begun comes before all others, also
# when its host has let it go. A session that a live host holds is skipped, unless that host asks and
# keeps it for background tasks alone, so that no run of it is going on.
def _claimable(is_free: str) -> str:
    return f"""
  FROM runs r JOIN sessions s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
  WHERE r.status <> 'finished' AND NOT r.is_parked AND {is_free}
    AND NOT EXISTS (SELECT 1 FROM runs e WHERE e.tenant_id = r.tenant_id
      AND e.session_id = r.session_id AND e.status <> 'finished'
      AND (e.attempt > 0, e.priority, -e.queued_seq) > (r.attempt > 0, r.priority, -r.queued_seq))"""


_FREE = "(s.lease_expires_at IS NULL OR s.lease_expires_at <= clock_timestamp())"
CLAIMABLE = _claimable(_FREE)
_CLAIMABLE_BY_1 = _claimable(f"({_FREE} OR (s.owner = $1 AND r.attempt = 0))")


async def enqueue(
    connection: AsyncConnection,
    tenant_id: str,
    session_id: str,
    run: NewRun,
    *,
    queue_limit: int,
    host: Host | None,
    is_next: bool = False,
) -> Enqueued:
    """Put a run into its session's queue, inside the caller's transaction.

    `is_next` puts it before all runs that wait. With a `host`, and when neither this session nor
    any other has older work, the run is claimed for it at once. Raises `NotFound` for an unknown
    session, `SessionArchived`, `IdTaken` for a message that was sent before, and `QueueFull`.
    """
    session = (
        await connection.execute(
            sql(
                """UPDATE sessions SET last_seq = last_seq + 1, num_runs = num_runs + 1,
                     updated_at = clock_timestamp(), prompted_at = clock_timestamp()
                   WHERE tenant_id = :tenant AND id = :session
                   RETURNING last_seq, num_runs, archived_at IS NOT NULL AS is_archived"""
            ),
            {"tenant": tenant_id, "session": session_id},
        )
    ).one_or_none()
    if session is None:
        raise NotFound("There is no such session.")
    if session.is_archived:
        raise archived()
    # The row is locked from here on, and each statement below sees what was committed before.
    values = _values(tenant_id, session_id, run, session.last_seq, host) | {"is_next": is_next}
    try:
        row = (await connection.execute(sql(_INSERT), values)).one()
    except IntegrityError as error:
        raise refusal(run.prompts, error) from None
    if row.ahead > queue_limit:
        raise QueueFull(f"{queue_limit} runs wait in this session already.", retry_after_s=5)
    if row.epoch is None:
        return Enqueued(session.last_seq, row.ahead, None)
    lease = Lease(tenant_id, session_id, run.id, row.epoch)
    is_new = session.num_runs == 1 and not row.has_messages
    return Enqueued(
        session.last_seq, 0, Claim(lease, 1, 0, session.last_seq, is_new_session=is_new)
    )


# Inserts run, prompts and event. Gives the new epoch when the host claimed the run, and how many
# unfinished runs were there.
_INSERT = f"""
WITH last_message AS (
  SELECT coalesce(uuid, body::json ->> 'at_message') AS uuid FROM journal WHERE tenant_id = :tenant AND session_id = :session
    AND (kind = 'message' OR type = 'session.rewound') ORDER BY seq DESC LIMIT 1),
mine AS (
  UPDATE sessions SET owner = :host, epoch = epoch + 1, pending_steers = :steers,
    lease_expires_at = clock_timestamp() + make_interval(secs => :lease_s)
  WHERE :host <> '' AND tenant_id = :tenant AND id = :session
    AND (lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp() OR owner = :host)
    AND NOT EXISTS (SELECT 1 {CLAIMABLE})
    AND NOT EXISTS (SELECT 1 FROM runs WHERE tenant_id = :tenant AND session_id = :session
      AND status <> 'finished')
  RETURNING epoch),
new_run AS (
  INSERT INTO runs (tenant_id, id, session_id, status, options, metadata, queued_seq, first_seq,
                    attempt, claim_seq, started_at, resumed_from, upfront_steers, priority,
                    deadline_at, recovery_policy, max_attempts, on_disconnect, origin,
                    parent_run_id)
  SELECT :tenant, :run, :session, CASE WHEN m.epoch IS NULL THEN 'queued' ELSE 'running' END,
    CAST(:options AS jsonb), CAST(:metadata AS jsonb), :seq, :seq,
    CASE WHEN m.epoch IS NULL THEN 0 ELSE 1 END,
    CASE WHEN m.epoch IS NULL THEN NULL ELSE CAST(:seq AS bigint) END,
    CASE WHEN m.epoch IS NULL THEN NULL ELSE clock_timestamp() END,
    (SELECT uuid FROM last_message), :steers,
    greatest(CAST(:priority AS integer), CASE WHEN :is_next THEN (
      SELECT max(priority) + 1 FROM runs WHERE tenant_id = :tenant AND session_id = :session
        AND status = 'queued' AND attempt = 0) END),
    clock_timestamp() + make_interval(secs => CAST(:deadline_s AS double precision)),
    :recovery_policy, :max_attempts, :on_disconnect,
    CASE WHEN CAST(:retries AS text) IS NULL THEN 'api' ELSE 'retry' END, :retries
  FROM (SELECT (SELECT epoch FROM mine) AS epoch) m),
prompts AS (
  INSERT INTO inbox ({INBOX_COLUMNS})
  SELECT :tenant, :session, :run, {PROMPT_COLUMNS}
  FROM jsonb_to_recordset(CAST(:prompts AS jsonb)) AS {PROMPT_TYPES}),
event AS (
  INSERT INTO journal (tenant_id, session_id, seq, run_id, kind, type, body)
  VALUES (:tenant, :session, :seq, :run, 'service', 'run.queued', :queued))
SELECT (SELECT epoch FROM mine) AS epoch, EXISTS (SELECT 1 FROM last_message) AS has_messages,
  (SELECT count(*) FROM runs WHERE tenant_id = :tenant AND session_id = :session
    AND status <> 'finished') AS ahead"""


def _values(
    tenant_id: str, session_id: str, run: NewRun, seq: int, host: Host | None
) -> dict[str, object]:
    return {
        "tenant": tenant_id,
        "session": session_id,
        "host": host.id if host else "",
        "lease_s": host.lease_s if host else 0.0,
        "run": run.id,
        "options": orjson.dumps(run.options).decode(),
        "metadata": orjson.dumps(run.metadata).decode(),
        "seq": seq,
        "queued": run.queued_body,
        "prompts": prompts_json(run.prompts),
        "steers": run.steers,
        "priority": run.priority,
        "deadline_s": run.deadline_s,
        "recovery_policy": run.recovery_policy,
        "max_attempts": run.max_attempts,
        "on_disconnect": run.on_disconnect,
        "retries": run.retries,
    }


_PASSED_OVER = 100
"""So many runs may be in other hosts' hands at the moment of a claim and it still finds one."""


async def claim(database: Database, host: Host) -> Claim | None:
    """Take the run that is next in fair order, or None when there is no work."""
    claims = await claim_many(database, host, 1)
    return claims[0] if claims else None


async def claim_many(database: Database, host: Host, most: int) -> list[Claim]:
    """Take up to `most` runs in fair order, in one statement.

    None is passed over but what another host is taking at the same moment. Fair: the tenant
    with the fewest live leases first, then priority, then age; a lease that is taken here counts
    for the next.
    """
    rows = await database.raw.fetch(_CLAIM, host.id, host.lease_s, most)
    return [
        Claim(
            Lease(row["tenant_id"], row["session_id"], row["run_id"], row["epoch"]),
            row["attempt"],
            row["stalled_attempts"],
            row["last_seq"],
            was_lost=row["was_lost"],
            is_cancelled=row["is_cancelled"],
            has_waited=row["has_waited"],
        )
        for row in rows
    ]


# What is claimable is looked for without a lock, a little more than is wanted; `next` takes the
# first of it that nobody else is taking, and looks again at what may have changed meanwhile.
_CLAIM = f"""
WITH busy AS MATERIALIZED (
  SELECT tenant_id, count(*) AS runs FROM sessions
  WHERE owner IS NOT NULL AND lease_expires_at > clock_timestamp() GROUP BY tenant_id),
ranked AS (
  SELECT r.tenant_id, r.session_id, r.id, r.priority, r.created_at, s.epoch,
    coalesce((SELECT b.runs FROM busy b WHERE b.tenant_id = r.tenant_id), 0)
      + row_number() OVER (PARTITION BY r.tenant_id ORDER BY r.priority DESC, r.created_at) AS place
  {_CLAIMABLE_BY_1}),
first AS MATERIALIZED (
  SELECT * FROM ranked ORDER BY place, priority DESC, created_at LIMIT $3 + {_PASSED_OVER}),
next AS MATERIALIZED (
  SELECT r.tenant_id, r.session_id, r.id AS run_id,
    s.owner IS NOT NULL AND r.attempt > 0 AS was_lost,
    r.has_waited,
    CASE WHEN r.attempt = 0 THEN r.upfront_steers ELSE s.pending_steers END AS steers,
    first.place, first.priority, first.created_at
  FROM first
    JOIN runs r ON r.tenant_id = first.tenant_id AND r.id = first.id
    JOIN sessions s ON s.tenant_id = first.tenant_id AND s.id = first.session_id
  WHERE r.status <> 'finished' AND NOT r.is_parked
    AND ({_FREE} OR (s.owner = $1 AND r.attempt = 0 AND s.epoch = first.epoch))
  ORDER BY first.place, first.priority DESC, first.created_at
  LIMIT $3 FOR UPDATE OF s, r SKIP LOCKED),
taken AS (
  UPDATE sessions s SET owner = $1, epoch = s.epoch + 1, pending_steers = next.steers,
    lease_expires_at = clock_timestamp() + make_interval(secs => $2)
  FROM next WHERE s.tenant_id = next.tenant_id AND s.id = next.session_id
  RETURNING s.tenant_id, s.id, s.epoch, s.last_seq),
started AS (
  UPDATE runs r SET status = 'running', attempt = r.attempt + 1, claim_seq = taken.last_seq,
    has_waited = false,
    stalled_attempts = CASE WHEN r.claim_seq IS NULL THEN r.stalled_attempts
      WHEN EXISTS (SELECT 1 FROM journal j WHERE j.tenant_id = r.tenant_id
        AND j.session_id = r.session_id AND j.seq > r.claim_seq AND j.run_id = r.id
        AND j.kind <> 'service') THEN 0
      ELSE r.stalled_attempts + 1 END,
    started_at = coalesce(r.started_at, clock_timestamp()),
    resumed_from = CASE WHEN r.attempt > 0 THEN r.resumed_from ELSE (
      SELECT coalesce(j.uuid, j.body::json ->> 'at_message') FROM journal j
      WHERE j.tenant_id = r.tenant_id AND j.session_id = r.session_id
        AND (j.kind = 'message' OR j.type = 'session.rewound') ORDER BY j.seq DESC LIMIT 1) END
  FROM next JOIN taken ON taken.tenant_id = next.tenant_id AND taken.id = next.session_id
  WHERE r.tenant_id = next.tenant_id AND r.id = next.run_id
  RETURNING r.tenant_id, r.id, r.attempt, r.stalled_attempts,
    r.cancel_requested_at IS NOT NULL AS is_cancelled)
SELECT next.tenant_id, next.session_id, next.run_id, next.was_lost, next.has_waited, taken.epoch, taken.last_seq,
  started.attempt, started.stalled_attempts, started.is_cancelled
FROM next
  JOIN taken ON taken.tenant_id = next.tenant_id AND taken.id = next.session_id
  JOIN started ON started.tenant_id = next.tenant_id AND started.id = next.run_id
ORDER BY next.place, next.priority DESC, next.created_at"""


async def renew(database: Database, host: Host, leases: Sequence[Lease]) -> dict[Lease, bool]:
    """Renew this host's leases; give lease → whether its run's cancel is asked for.

    A lease that is missing from the answer is lost. Rows are locked in the order of their keys,
    as every statement does that locks several sessions.
    """
    rows = await database.raw.fetch(
        """
WITH held AS MATERIALIZED (
  SELECT s.tenant_id, s.id, l.run_id, l.position
  FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) WITH ORDINALITY
    AS l(tenant_id, id, run_id, epoch, position)
  JOIN sessions s ON s.tenant_id = l.tenant_id AND s.id = l.id
  WHERE s.epoch = l.epoch AND s.owner = $6
  ORDER BY s.tenant_id, s.id FOR NO KEY UPDATE OF s),
mine AS (
  UPDATE sessions s SET lease_expires_at = clock_timestamp() + make_interval(secs => $1)
  FROM held WHERE s.tenant_id = held.tenant_id AND s.id = held.id
  RETURNING held.tenant_id, held.run_id, held.position)
SELECT mine.position, r.cancel_requested_at IS NOT NULL AS is_cancelled
FROM mine JOIN runs r ON r.tenant_id = mine.tenant_id AND r.id = mine.run_id""",
        host.lease_s,
        [lease.tenant_id for lease in leases],
        [lease.session_id for lease in leases],
        [lease.run_id for lease in leases],
        [lease.epoch for lease in leases],
        host.id,
    )
    return {leases[row["position"] - 1]: row["is_cancelled"] for row in rows}


async def release(database: Database, lease: Lease) -> None:
    """Let an unfinished run go, for another host to take. Does nothing when the lease is lost.

    An orderly end does not count as a lost host.
    """
    await database.raw.execute(
        """
WITH freed AS (
  UPDATE sessions SET owner = NULL, lease_expires_at = NULL
  WHERE tenant_id = $1 AND id = $2 AND epoch = $3 RETURNING id)
UPDATE runs SET status = 'queued', claim_seq = NULL FROM freed
WHERE tenant_id = $1 AND runs.id = $4 AND status <> 'finished'""",
        lease.tenant_id,
        lease.session_id,
        lease.epoch,
        lease.run_id,
    )


async def waiting_prompts(database: Database, lease: Lease) -> list[Prompt]:
    """Give the prompts of a run that the journal does not hold yet, oldest first."""
    rows = await database.raw.fetch(
        """SELECT id, uuid, content, has_client_uuid, is_steer FROM inbox
           WHERE tenant_id = $1 AND run_id = $2 AND consumed_seq IS NULL ORDER BY position""",
        lease.tenant_id,
        lease.run_id,
    )
    return [
        Prompt(
            row["id"],
            row["uuid"],
            orjson.loads(row["content"]),
            row["has_client_uuid"],
            row["is_steer"],
        )
        for row in rows
    ]
