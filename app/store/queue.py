"""The waiting queue of a session: a run comes in, and may be taken on the spot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.messages import Prompt
from app.errors import NotFound, QueueFull
from app.store.claims import CLAIMABLE, Claim
from app.store.engine import sql
from app.store.inbox import (
    INBOX_COLUMNS,
    PROMPT_COLUMNS,
    PROMPT_TYPES,
    prompts_json,
    refusal,
)
from app.store.leases import Host, Lease
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
class Enqueued:
    """What became of a new run."""

    queued_seq: int
    ahead: int
    """Unfinished runs of the session before it."""
    claim: Claim | None
    """Set when the host that asked claimed it on the spot."""


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
      AND status <> 'finished' AND origin <> 'subagent')
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
    AND status <> 'finished' AND origin <> 'subagent') AS ahead"""


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
