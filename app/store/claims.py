"""Who runs what: runs are taken by hosts.

A run is claimable when it is the first unfinished run of its session and nobody holds a live lease
on the session. Taking it raises the session's epoch: whoever held it before cannot write any more.
All times are the database's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.agent.state import LoopState
from app.domain.messages import Prompt
from app.store.engine import Database
from app.store.leases import Host, Lease
from app.store.runs import Work


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
    is_beside: bool = False
    """Whether it is a subagent's, driven beside what the session's lease was taken for."""


# The first unfinished run of each free session: one that was begun comes before all others, also
# when its host has let it go. A session that a live host holds is skipped, unless that host asks and
# keeps it for background tasks alone, so that no run of it is going on. Subagents in the background
# are nobody's to claim: who holds the session drives them (`store/beside.py`).
def _claimable(is_free: str) -> str:
    return f"""
  FROM runs r JOIN sessions s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
  WHERE r.status <> 'finished' AND NOT r.is_parked AND r.origin <> 'subagent' AND {is_free}
    AND NOT EXISTS (SELECT 1 FROM runs e WHERE e.tenant_id = r.tenant_id
      AND e.session_id = r.session_id AND e.status <> 'finished' AND e.origin <> 'subagent'
      AND (e.attempt > 0, e.priority, -e.queued_seq) > (r.attempt > 0, r.priority, -r.queued_seq))"""


_FREE = "(s.lease_expires_at IS NULL OR s.lease_expires_at <= clock_timestamp())"


CLAIMABLE = _claimable(_FREE)


_IS_MINE = "(s.owner = $1 AND (r.attempt = 0 OR r.has_waited))"
_CLAIMABLE_BY_1 = _claimable(f"({_FREE} OR {_IS_MINE})")


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
    AND ({_FREE} OR ({_IS_MINE} AND s.epoch = first.epoch))
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
