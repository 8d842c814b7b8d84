"""The tenant's skills of a run: which it has, and their files on this host."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from app.domain.options import AgentOptions
from app.domain.skills import UploadedSkill
from app.errors import WorkspaceUnavailable
from app.store.engine import GONE, Database
from app.store.skills import archive_of
from app.tools.bundle_folders import BundleFolders
from app.tools.skills import offered


def chosen(
    skills: Sequence[UploadedSkill], options: AgentOptions, *, is_offered: bool
) -> Sequence[UploadedSkill]:
    """Give those that the options name, as they are offered. None named means all."""
    names = None if options.skills in ("all", None) else options.skills
    return [
        replace(each, note=offered(each.note, is_offered))
        for each in skills
        if names is None or each.note.name in names
    ]


async def bring_files(
    database: Database, folders: BundleFolders, tenant_id: str, skills: Sequence[UploadedSkill]
) -> None:
    """Write the files that are not on this host yet. Raises `WorkspaceUnavailable`.

    A skill that was deleted or replaced since the run began is left out.
    """

    def missing() -> list[UploadedSkill]:
        return [each for each in skills if not folders.has(each.sha256)]

    try:
        for each in await asyncio.to_thread(missing) if skills else ():
            archive = await archive_of(database, tenant_id, each.note.name, each.sha256)
            if archive is not None:
                await asyncio.to_thread(folders.put, each.sha256, archive)
    except GONE as error:  # an OSError is one
        raise WorkspaceUnavailable("The files of the skills cannot be had just now.") from error
