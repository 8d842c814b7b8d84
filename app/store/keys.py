"""Tenants and API keys. A key is stored as a hash; it is shown once, when it is made."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from ulid import ULID

from app.domain.ceiling import NO_CEILING, Ceiling
from app.store.engine import Database, sql
from app.store.tables.tenants import api_keys, tenants

DEFAULT_TENANT = "default"
PREFIX = "trd"
_NO_HASH = bytes(32)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a valid key speaks for."""

    tenant_id: str
    key_id: str
    allow_bypass: bool
    ceiling: Ceiling = NO_CEILING


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it may be shown: without its secret."""

    id: str
    tenant_id: str
    name: str
    created_at: str
    revoked_at: str | None


async def ensure_tenant(connection: AsyncConnection, tenant_id: str, *, allow_bypass: bool) -> None:
    """Create the tenant, or bring its policy up to date."""
    await connection.execute(
        sql(
            """INSERT INTO tenants (id, allow_bypass) VALUES (:id, :allow)
               ON CONFLICT (id) DO UPDATE SET allow_bypass = excluded.allow_bypass"""
        ),
        {"id": tenant_id, "allow": allow_bypass},
    )


async def set_ceiling(connection: AsyncConnection, tenant_id: str, ceiling: Ceiling) -> None:
    """Set what a tenant's runs may not do. Requests hear of it within half a minute, runs at once."""
    await connection.execute(
        update(tenants).where(tenants.c.id == tenant_id).values(policy=ceiling.to_json())
    )


async def ceiling_of(connection: AsyncConnection, tenant_id: str) -> Ceiling:
    """Give what a tenant's runs may not do."""
    row = await connection.execute(select(tenants.c.policy).where(tenants.c.id == tenant_id))
    return Ceiling.from_json(row.scalar_one_or_none() or {})


async def create_key(connection: AsyncConnection, tenant_id: str, name: str) -> tuple[str, str]:
    """Make a key; give its id and the key itself, which is nowhere else."""
    key_id = f"key_{ULID()}"
    key = f"{PREFIX}_{key_id.removeprefix('key_').lower()}_{secrets.token_urlsafe(32)}"
    await _store(connection, tenant_id, key_id, key, name)
    return key_id, key


async def ensure_bootstrap_key(connection: AsyncConnection, tenant_id: str, key: str) -> None:
    """Make the operator's own key valid; its id is derived from it."""
    digest = _hash(key)
    await _store(connection, tenant_id, f"key_boot_{digest.hex()[:16]}", key, "bootstrap")


async def _store(
    connection: AsyncConnection, tenant_id: str, key_id: str, key: str, name: str
) -> None:
    await connection.execute(
        sql(
            """INSERT INTO api_keys (tenant_id, id, sha256, name)
               VALUES (:tenant, :id, :sha256, :name) ON CONFLICT (tenant_id, id) DO NOTHING"""
        ),
        {"tenant": tenant_id, "id": key_id, "sha256": _hash(key), "name": name},
    )


async def find_caller(database: Database, key: str) -> Caller | None:
    """Give whom a key speaks for; None when it is unknown or revoked."""
    wanted = _hash(key)
    async with database.connect() as connection:
        row = (
            await connection.execute(
                sql(
                    """SELECT k.tenant_id, k.id, k.sha256, t.allow_bypass, t.policy
                       FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
                       WHERE k.id = :id AND k.revoked_at IS NULL"""
                ),
                {"id": key_id_of(key)},
            )
        ).one_or_none()
    # An unknown id costs one comparison too.
    is_equal = hmac.compare_digest(wanted, row.sha256 if row else _NO_HASH)
    if row is None or not is_equal:
        return None
    ceiling = Ceiling.from_json(row.policy)
    return Caller(row.tenant_id, row.id, row.allow_bypass, ceiling)


async def list_keys(database: Database, tenant_id: str) -> list[ApiKey]:
    """Give a tenant's keys, oldest first."""
    async with database.connect() as connection:
        rows = await connection.execute(
            select(api_keys)
            .where(api_keys.c.tenant_id == tenant_id)
            .order_by(api_keys.c.created_at)
        )
        return [
            ApiKey(
                row.id,
                row.tenant_id,
                row.name,
                row.created_at.isoformat(),
                row.revoked_at.isoformat() if row.revoked_at else None,
            )
            for row in rows
        ]


async def revoke_key(connection: AsyncConnection, tenant_id: str, key_id: str) -> bool:
    """Revoke a key; False when there is no such key. Repeating it is fine."""
    result = await connection.execute(
        sql(
            """UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp())
               WHERE tenant_id = :tenant AND id = :id"""
        ),
        {"tenant": tenant_id, "id": key_id},
    )
    return bool(result.rowcount)


def key_id_of(key: str) -> str:
    """Give the id under which a key would be stored."""
    parts = key.split("_", 2)
    if len(parts) == 3 and parts[0] == PREFIX:
        return f"key_{parts[1].upper()}"
    return f"key_boot_{_hash(key).hex()[:16]}"


def _hash(key: str) -> bytes:
    # Keys are 256 random bits: a slow hash would only slow requests down.
    return hashlib.sha256(key.encode()).digest()
