"""Whether the schema is the one that this program needs, asked without the tool that moves it.

Alembic, with what it loads, is ten MiB of a host and a good part of its start; only a start that has
something to move needs it.
"""

import re
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from app.store.engine import sql

MIGRATIONS = Path(__file__).parents[2] / "migrations"
_REVISION = re.compile(r'^(down_)?revision = "(\w+)"$', re.MULTILINE)


def newest_revision() -> str:
    """Give the revision that no other one follows, from the files of the migrations."""
    names: dict[str, set[str]] = {"": set(), "down_": set()}
    for file in MIGRATIONS.glob("versions/*.py"):
        for kind, name in _REVISION.findall(file.read_text()):
            names[kind].add(name)
    (newest,) = names[""] - names["down_"]
    return newest


async def is_current(engine: AsyncEngine) -> bool:
    """Tell whether the schema is at the newest revision. False for an empty database."""
    async with engine.connect() as connection:
        if not await connection.scalar(sql("SELECT to_regclass('alembic_version') IS NOT NULL")):
            return False
        stored = await connection.scalars(sql("SELECT version_num FROM alembic_version"))
        return stored.all() == [newest_revision()]
