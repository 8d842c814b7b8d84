"""Skills of a tenant: put, list, read, remove."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.skills import UploadedSkill
from app.errors import NotFound, TooManySkills
from app.runs.once import Once, guarded
from app.store import skills
from app.store.engine import Database
from app.store.skills import SkillRow as SkillRow
from app.tools.bundle import Bundle as Bundle
from app.tools.bundle import bundle_of_texts as bundle_of_texts
from app.tools.bundle import bundle_of_zip as bundle_of_zip

MOST = 100
"""Of a tenant: all that can be announced to a model."""
MOST_TENANTS = 10_000
"""Whose skills a host remembers."""


@dataclass(frozen=True, slots=True)
class Put:
    """What became of an upload."""

    skill: SkillRow
    is_new: bool
    """Whether there was none of this name."""


@dataclass(frozen=True, slots=True)
class Skills:
    """All that clients do to skills. Runs that begin afterwards have what is there then."""

    database: Database

    async def put(self, tenant_id: str, bundle: Bundle, *, once: Once | None = None) -> Put:
        """Store a skill, in the place of one of the same name; the same content changes nothing.

        Raises `TooManySkills`.
        """
        packed = await asyncio.to_thread(bundle.packed)
        files = [
            {"path": path, "size_bytes": len(file.data), "is_executable": file.is_executable}
            for path, file in bundle.files.items()
        ]
        note = {"note": bundle.note.to_json(), "allowed_tools": list(bundle.allowed_tools)}

        async def write(connection: AsyncConnection) -> Put:
            others = await skills.count_others(connection, tenant_id, bundle.name)
            known = await skills.find_skill(connection, tenant_id, bundle.name)
            if known is not None and known.sha256 == bundle.sha256:
                return Put(known, is_new=False)
            if others >= MOST:
                raise TooManySkills(f"A tenant may have {MOST} skills. Delete one first.")
            await skills.put_skill(
                connection,
                tenant_id,
                bundle.name,
                sha256=bundle.sha256,
                note=note,
                files=files,
                archive=packed,
            )
            return Put(await _skill(connection, tenant_id, bundle.name), is_new=known is None)

        return await guarded(self.database, once, write)

    async def list_all(self, tenant_id: str) -> Sequence[SkillRow]:
        """Give a tenant's skills by name."""
        return await skills.list_skills(self.database, tenant_id)

    async def get(self, tenant_id: str, name: str) -> SkillRow:
        """Give a skill. Raises `NotFound`."""
        async with self.database.connect() as connection:
            return await _skill(connection, tenant_id, name)

    async def delete(self, tenant_id: str, name: str, *, once: Once | None = None) -> None:
        """Remove a skill; runs that are under way keep it. Raises `NotFound`."""

        async def write(connection: AsyncConnection) -> None:
            if not await skills.delete_skill(connection, tenant_id, name):
                raise _unknown()

        await guarded(self.database, once, write)


@dataclass(slots=True)
class KnownSkills:
    """What tenants uploaded, as this host last read it: others may have changed it since.

    So it is only for what is checked when it is stored (`store.starting`).
    """

    database: Database
    _known: dict[str, Sequence[UploadedSkill]] = field(default_factory=dict)

    async def of(self, tenant_id: str) -> Sequence[UploadedSkill]:
        """Give a tenant's skills by name."""
        known = self._known.get(tenant_id)
        if known is None:
            known = await skills.uploaded_skills(self.database, tenant_id)
            if len(self._known) >= MOST_TENANTS:
                self._known.clear()
            self._known[tenant_id] = known
        return known

    def forget(self, tenant_id: str) -> None:
        """Read a tenant's skills anew the next time."""
        self._known.pop(tenant_id, None)


async def _skill(connection: AsyncConnection, tenant_id: str, name: str) -> SkillRow:
    found = await skills.find_skill(connection, tenant_id, name)
    if found is None:
        raise _unknown()
    return found


def _unknown() -> NotFound:
    return NotFound("There is no such skill. `GET /v1/skills` lists those that there are.")
