"""Skills that tenants uploaded: one row each, with all its files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.skills import SkillNote, UploadedSkill
from app.store.engine import Database, sql


@dataclass(frozen=True, slots=True)
class SkillRow:
    """A skill, without the content of its files."""

    name: str
    sha256: str
    note: Mapping[str, Any]
    """Of `SkillNote`, with `allowed_tools` beside."""
    files: Sequence[Mapping[str, Any]]
    """Of each its `path`, `size_bytes` and `is_executable`."""
    created_at: datetime
    updated_at: datetime


_SELECT = "SELECT name, sha256, note, files, created_at, updated_at FROM skills "

AS_JSON = """(SELECT json_agg(json_build_array(k.note->'note', k.sha256) ORDER BY k.name)::text
  FROM skills k WHERE k.tenant_id = {tenant})"""
"""A column for `decoded`: all skills of a tenant."""

VERSIONS = """(SELECT coalesce(string_agg(k.name || ' ' || k.sha256, ',' ORDER BY k.name), '')
  FROM skills k WHERE k.tenant_id = {tenant})"""
"""A column that tells what a tenant uploaded from what it had before: see `versions`."""


def versions(skills: Sequence[UploadedSkill]) -> str:
    """Give what `VERSIONS` selects while these, in their order, are all skills of a tenant."""
    return ",".join(f"{each.note.name} {each.sha256}" for each in skills)


def decoded(column: str | None) -> tuple[UploadedSkill, ...]:
    """Read what `AS_JSON` selects."""
    return tuple(
        UploadedSkill(SkillNote.from_json(note), sha256)
        for note, sha256 in orjson.loads(column or "[]")
    )


async def uploaded_skills(database: Database, tenant_id: str) -> tuple[UploadedSkill, ...]:
    """Give what a tenant's runs may load, by name."""
    return decoded(await database.raw.fetchval(f"SELECT {AS_JSON.format(tenant='$1')}", tenant_id))


async def archive_of(database: Database, tenant_id: str, name: str, sha256: str) -> bytes | None:
    """Give a skill's files, packed; None when it is gone, or another by now."""
    archive: bytes | None = await database.raw.fetchval(
        "SELECT archive FROM skills WHERE tenant_id = $1 AND name = $2 AND sha256 = $3",
        tenant_id,
        name,
        sha256,
    )
    return archive


async def list_skills(database: Database, tenant_id: str) -> Sequence[SkillRow]:
    """Give a tenant's skills by name. They are few."""
    async with database.connect() as connection:
        rows = await connection.execute(
            sql(_SELECT + "WHERE tenant_id = :tenant ORDER BY name"), {"tenant": tenant_id}
        )
        return [SkillRow(**row._mapping) for row in rows]  # noqa: SLF001 - SQLAlchemy's public name


async def find_skill(connection: AsyncConnection, tenant_id: str, name: str) -> SkillRow | None:
    """Give a skill, or None when the tenant has none of this name."""
    row = (
        await connection.execute(
            sql(_SELECT + "WHERE tenant_id = :tenant AND name = :name"),
            {"tenant": tenant_id, "name": name},
        )
    ).one_or_none()
    return SkillRow(**row._mapping) if row else None  # noqa: SLF001 - as above


async def count_others(connection: AsyncConnection, tenant_id: str, name: str) -> int:
    """Lock a tenant's skills against further ones, and count those of other names."""
    await connection.execute(
        sql("SELECT id FROM tenants WHERE id = :tenant FOR NO KEY UPDATE"), {"tenant": tenant_id}
    )
    count: int = await connection.scalar(
        sql("SELECT count(*) FROM skills WHERE tenant_id = :tenant AND name <> :name"),
        {"tenant": tenant_id, "name": name},
    )
    return count


async def put_skill(
    connection: AsyncConnection,
    tenant_id: str,
    name: str,
    *,
    sha256: str,
    note: Mapping[str, Any],
    files: Sequence[Mapping[str, Any]],
    archive: bytes,
) -> None:
    """Store a skill, in the place of one of the same name."""
    await connection.execute(
        sql(
            """INSERT INTO skills (tenant_id, name, sha256, note, files, archive)
               VALUES (:tenant, :name, :sha256, CAST(:note AS jsonb), CAST(:files AS jsonb), :archive)
               ON CONFLICT (tenant_id, name) DO UPDATE SET sha256 = excluded.sha256,
                 note = excluded.note, files = excluded.files, archive = excluded.archive,
                 updated_at = clock_timestamp()"""
        ),
        {
            "tenant": tenant_id,
            "name": name,
            "sha256": sha256,
            "note": orjson.dumps(note).decode(),
            "files": orjson.dumps(files).decode(),
            "archive": archive,
        },
    )


async def delete_skill(connection: AsyncConnection, tenant_id: str, name: str) -> bool:
    """Remove a skill; False when there is none."""
    result = await connection.execute(
        sql("DELETE FROM skills WHERE tenant_id = :tenant AND name = :name"),
        {"tenant": tenant_id, "name": name},
    )
    return bool(result.rowcount)
