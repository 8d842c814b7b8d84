"""Runs: reads. They are written by the queue and the journal."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.ceiling import NO_CEILING, Ceiling
from app.domain.skills import UploadedSkill
from app.store import skills
from app.store.engine import Database, sql
from app.store.keyset import Keyset
from app.store.leases import Lease


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the tables have it."""

    id: str
    session_id: str
    status: str
    options: Mapping[str, Any]
    metadata: Mapping[str, Any]
    first_seq: int
    created_at: datetime
    origin: str = "api"
    parent_run_id: str | None = None
    attempt: int = 0
    worker: str | None = None
    lease_expires_at: datetime | None = None
    queue_position: int | None = None
    last_seq: int | None = None
    resumed_from: str | None = None
    result_subtype: str | None = None
    end_reason: str | None = None
    is_error: bool | None = None
    stop_reason: str | None = None
    terminal_reason: str | None = None
    num_turns: int | None = None
    result_text: str | None = None
    errors: Sequence[str] | None = None
    permission_denials: Sequence[Mapping[str, Any]] | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    is_estimated: bool = False
    cancel_requested_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    prompt: str | None = None
    """How its first prompt begins."""
    priority: int = 0
    deadline_at: datetime | None = None
    recovery_policy: str = "resume"
    max_attempts: int | None = None
    spent: Sequence[Mapping[str, Any]] | None = None
    """Its ledger, summed by `model` and `is_main` (of the main thread): classes of tokens,
    `web_search_requests`, `cost_usd` as text, `is_unpriced`. None while it has asked nothing."""


_SELECT = """
SELECT r.id, r.session_id, r.status, r.options, r.metadata, r.origin, r.parent_run_id, r.attempt,
  CASE WHEN r.status = 'running' THEN s.owner END AS worker,
  CASE WHEN r.status = 'running' THEN s.lease_expires_at END AS lease_expires_at,
  CASE WHEN r.status = 'queued' AND r.origin <> 'subagent' THEN (SELECT count(*) FROM runs e WHERE e.tenant_id = r.tenant_id
    AND e.session_id = r.session_id AND e.status <> 'finished' AND e.origin <> 'subagent'
    AND (e.attempt > 0, e.priority, -e.queued_seq) > (r.attempt > 0, r.priority, -r.queued_seq))
    END AS queue_position,
  r.first_seq, r.last_seq, r.resumed_from, r.result_subtype, r.end_reason, r.is_error,
  r.stop_reason, r.terminal_reason, r.num_turns, r.result_text, r.errors, r.permission_denials,
  r.input_tokens, r.output_tokens, r.cache_read_tokens, r.cache_write_tokens, r.cost_usd,
  r.is_estimated, r.cancel_requested_at, r.created_at, r.started_at, r.finished_at, r.priority,
  r.deadline_at, r.recovery_policy, r.max_attempts,
  CASE WHEN r.input_tokens + r.output_tokens > 0 OR r.cost_usd > 0 THEN (
    SELECT jsonb_agg(to_jsonb(m) ORDER BY m.model, m.is_main) FROM (
      SELECT model, thread IS NULL AS is_main, sum(input_tokens) AS input_tokens,
        sum(output_tokens) AS output_tokens, sum(cache_read_tokens) AS cache_read_tokens,
        sum(cache_write_5m_tokens + cache_write_1h_tokens) AS cache_write_tokens,
        sum(web_search_requests) AS web_search_requests,
        coalesce(sum(cost_usd), 0)::text AS cost_usd, bool_or(cost_usd IS NULL) AS is_unpriced
      FROM ledger l WHERE l.tenant_id = r.tenant_id AND l.run_id = r.id
      GROUP BY model, thread IS NULL) m) END AS spent,
  (SELECT i.preview FROM inbox i WHERE i.tenant_id = r.tenant_id AND i.run_id = r.id
   ORDER BY i.position LIMIT 1) AS prompt
FROM runs r JOIN sessions s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
WHERE r.tenant_id = :tenant """


async def find_run(connection: AsyncConnection, tenant_id: str, run_id: str) -> RunRow | None:
    """Give a run, or None when the tenant has none of this id."""
    row = (
        await connection.execute(
            sql(_SELECT + "AND r.id = :id"), {"tenant": tenant_id, "id": run_id}
        )
    ).one_or_none()
    return RunRow(**row._mapping) if row else None  # noqa: SLF001 - SQLAlchemy's public name


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list has. What is None, or empty, does not matter; one of several is enough."""

    session_id: str | None = None
    statuses: Sequence[str] = ()
    result_subtypes: Sequence[str] = ()
    end_reasons: Sequence[str] = ()
    user: str | None = None
    """Whom its session is for."""
    created_after: datetime | None = None
    """It was made then, or later."""
    created_before: datetime | None = None
    """It was made before."""


_CONDITIONS = {
    "session_id": "r.session_id = :session_id",
    "statuses": "r.status = ANY(:statuses)",
    "result_subtypes": "r.result_subtype = ANY(:result_subtypes)",
    "end_reasons": "r.end_reason = ANY(:end_reasons)",
    "user": "s.end_user = :user",
    "created_after": "r.created_at >= :created_after",
    "created_before": "r.created_at < :created_before",
}


async def list_runs(
    database: Database,
    tenant_id: str,
    keyset: Keyset,
    wanted: RunFilter | None = None,
) -> Sequence[RunRow]:
    """Give runs by creation time."""
    values: dict[str, Any] = {"tenant": tenant_id, **keyset.values}
    where = ""
    for name, given in asdict(wanted or RunFilter()).items():
        if given not in (None, (), []):
            where += f"AND {_CONDITIONS[name]} "
            values[name] = given
    async with database.connect() as connection:
        rows = await connection.execute(sql(keyset.within(_SELECT + where, "r")), values)
        return [RunRow(**row._mapping) for row in rows]  # noqa: SLF001 - as above


async def result_body(database: Database, tenant_id: str, run: RunRow) -> str | None:
    """Give the exact JSON of a finished run's result message."""
    body: str | None = await database.raw.fetchval(
        """SELECT body FROM journal WHERE tenant_id = $1 AND session_id = $2 AND run_id = $3
             AND seq BETWEEN $4 AND $5 AND type = 'result' AND kind <> 'service'""",
        tenant_id,
        run.session_id,
        run.id,
        run.first_seq,
        run.last_seq or 0,
    )
    return body


async def finished_event(database: Database, tenant_id: str, run: RunRow) -> str | None:
    """Give the body of a finished run's `run.finished` event."""
    body: str | None = await database.raw.fetchval(
        """SELECT body FROM journal WHERE tenant_id = $1 AND session_id = $2 AND run_id = $3
             AND seq <= $4 AND type = 'run.finished' AND kind = 'service'
           ORDER BY seq DESC LIMIT 1""",
        tenant_id,
        run.session_id,
        run.id,
        run.last_seq or 0,
    )
    return body


@dataclass(frozen=True, slots=True)
class Work:
    """What a host needs to drive a run."""

    options: Mapping[str, Any]
    """Effective options, in stored form."""
    workspace: Mapping[str, Any]
    inherited: Mapping[str, Any] | None
    """What a fork's parent had spent."""
    elapsed_ms: int
    """Since the run's first claim, by the database's clock."""
    allows_bypass: bool
    """Whether the tenant's policy allows `bypassPermissions` now."""
    deadline_left_s: float | None = None
    """Until the run's deadline, by the database's clock; negative when it has passed."""
    recovery_policy: str = "resume"
    """`resume`, or `fail`: what happens when a host is lost with the run."""
    max_attempts: int | None = None
    """The run's own bound on attempts without progress."""
    follows: str | None = None
    """The run whose background task ended, where that began this one."""
    ceiling: Ceiling = NO_CEILING
    """What the tenant's policy forbids now."""
    skills: Sequence[UploadedSkill] = ()
    """What the tenant uploaded."""


async def work_of(database: Database, tenant_id: str, run_id: str) -> Work:
    """Give what a host needs to drive a claimed run."""
    row = await database.raw.fetchrow(
        f"""SELECT r.options::text, s.workspace::text, s.inherited::text, t.allow_bypass,
             t.policy::text,
             (extract(epoch FROM clock_timestamp() - r.started_at) * 1000)::bigint AS elapsed_ms,
             extract(epoch FROM r.deadline_at - clock_timestamp())::float8 AS deadline_left_s,
             r.recovery_policy, r.max_attempts,
             CASE WHEN r.origin = 'task-notification' THEN r.parent_run_id END AS follows,
             {skills.AS_JSON.format(tenant="r.tenant_id")} AS skills
           FROM runs r JOIN sessions s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
           JOIN tenants t ON t.id = r.tenant_id
           WHERE r.tenant_id = $1 AND r.id = $2""",
        tenant_id,
        run_id,
    )
    inherited = row["inherited"]
    return Work(
        orjson.loads(row["options"]),
        orjson.loads(row["workspace"]),
        orjson.loads(inherited) if inherited else None,
        row["elapsed_ms"],
        row["allow_bypass"],
        row["deadline_left_s"],
        row["recovery_policy"],
        row["max_attempts"],
        row["follows"],
        Ceiling.from_json(orjson.loads(row["policy"])),
        skills.decoded(row["skills"]),
    )


async def options_of(database: Database, lease: Lease) -> dict[str, Any]:
    """Give a run's options as they are now, in stored form."""
    stored: dict[str, Any] = orjson.loads(
        await database.raw.fetchval(
            "SELECT options::text FROM runs WHERE tenant_id = $1 AND id = $2",
            lease.tenant_id,
            lease.run_id,
        )
    )
    return stored


async def marks_of_options(
    database: Database, leases: Sequence[Lease]
) -> dict[tuple[str, str], int]:
    """Give `(tenant, run)` → a number that is another one when the run's options have changed."""
    rows = await database.raw.fetch(
        """SELECT r.tenant_id, r.id, jsonb_hash_extended(r.options, 0) AS mark
           FROM unnest($1::text[], $2::text[]) AS l(tenant_id, id)
           JOIN runs r ON r.tenant_id = l.tenant_id AND r.id = l.id""",
        [lease.tenant_id for lease in leases],
        [lease.run_id for lease in leases],
    )
    return {(row["tenant_id"], row["id"]): row["mark"] for row in rows}
