"""Answers that are kept, so that a repeated write gets the first one's (ADR 10)."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import Database, sql

KEEP_HOURS = 24


@dataclass(frozen=True, slots=True)
class Answer:
    """What a write is answered with."""

    status: int
    body: str
    run_id: str | None = None
    """The run that the write is about."""
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What the first request with a key was, and was answered with."""

    sha256: bytes
    answer: Answer


class InProgress(Exception):
    """Another transaction that holds the key has not ended yet."""


async def begin(
    connection: AsyncConnection, tenant_id: str, key: str, sha256: bytes
) -> Kept | None:
    """Claim a key for this transaction, or give what another one has kept under it.

    Never waits: raises `InProgress` while another transaction holds the key. A key older than a
    day is free again.
    """
    claimed = await connection.scalar(
        sql(
            """INSERT INTO idempotency (tenant_id, key, sha256)
               SELECT :tenant, :key, :sha256
               WHERE pg_try_advisory_xact_lock(hashtextextended(:tenant || ' ' || :key, 0))
               ON CONFLICT (tenant_id, key) DO UPDATE
                 SET sha256 = excluded.sha256, status = NULL, body = NULL, run_id = NULL,
                     location = NULL, created_at = clock_timestamp()
               WHERE idempotency.created_at < clock_timestamp() - make_interval(hours => :hours)
               RETURNING true"""
        ),
        {"tenant": tenant_id, "key": key, "sha256": sha256, "hours": KEEP_HOURS},
    )
    if claimed:
        return None
    row = (
        await connection.execute(
            sql(
                """SELECT sha256, status, body, run_id, location FROM idempotency
                   WHERE tenant_id = :tenant AND key = :key
                     AND created_at >= clock_timestamp() - make_interval(hours => :hours)"""
            ),
            {"tenant": tenant_id, "key": key, "hours": KEEP_HOURS},
        )
    ).one_or_none()
    if row is None:
        raise InProgress
    return Kept(bytes(row.sha256), Answer(row.status, row.body, row.run_id, row.location))


async def keep(connection: AsyncConnection, tenant_id: str, key: str, answer: Answer) -> None:
    """Keep the answer, in the transaction of the write itself."""
    await connection.execute(
        sql(
            """UPDATE idempotency SET status = :status, body = :body, run_id = :run,
                 location = :location
               WHERE tenant_id = :tenant AND key = :key"""
        ),
        {
            "tenant": tenant_id,
            "key": key,
            "status": answer.status,
            "body": answer.body,
            "run": answer.run_id,
            "location": answer.location,
        },
    )


async def forget_old(database: Database) -> None:
    """Delete keys that are older than a day; those that somebody is at are left for the next time."""
    await database.raw.execute(
        """WITH old AS MATERIALIZED (
             SELECT tenant_id, key FROM idempotency
             WHERE created_at < clock_timestamp() - make_interval(hours => $1)
             FOR UPDATE SKIP LOCKED)
           DELETE FROM idempotency k USING old WHERE k.tenant_id = old.tenant_id AND k.key = old.key""",
        KEEP_HOURS,
    )
