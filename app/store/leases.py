"""Leases: the right to write to a session, taken with a claim, renewed, let go."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.store.engine import Database


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a session: valid while nobody has a higher epoch."""

    tenant_id: str
    session_id: str
    run_id: str
    epoch: int

    @property
    def session(self) -> tuple[str, str]:
        """Tenant and session."""
        return self.tenant_id, self.session_id


@dataclass(frozen=True, slots=True)
class Host:
    """A process that drives runs."""

    id: str
    lease_s: float


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

    An orderly end does not count as a lost host. One that waits for an answer goes on to wait.
    """
    await database.raw.execute(
        """
WITH freed AS (
  UPDATE sessions SET owner = NULL, lease_expires_at = NULL
  WHERE tenant_id = $1 AND id = $2 AND epoch = $3 RETURNING id)
UPDATE runs SET status = 'queued', claim_seq = NULL FROM freed
WHERE tenant_id = $1 AND runs.id = $4 AND status <> 'finished' AND NOT is_parked""",
        lease.tenant_id,
        lease.session_id,
        lease.epoch,
        lease.run_id,
    )
