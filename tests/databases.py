"""Databases of a test's own."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from app.store.postgres_cluster import ADMIN

_TRIES = 50
_WAIT_S = 0.1


async def forget_the_disk(postgres: str) -> None:
    """Let a server of tests wait for no disk: nothing of it has to outlive this machine."""
    admin = await asyncpg.connect(postgres, user=ADMIN)
    try:
        for setting in ("fsync", "full_page_writes"):
            await admin.execute(f"ALTER SYSTEM SET {setting} = off")
        await admin.execute("SELECT pg_reload_conf()")
    finally:
        await admin.close()


@asynccontextmanager
async def fresh_database(postgres: str, template: str = "template_treadle") -> AsyncIterator[str]:
    """Make a database from a template, migrated unless another is named; gives its DSN.

    `postgres` is the DSN of the migrated template.
    """
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres.replace("template_treadle", "postgres", 1))
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        yield postgres.replace("template_treadle", name, 1)
        await _drop(admin, name)
    finally:
        await admin.close()


async def _drop(admin: "asyncpg.Connection[asyncpg.Record]", name: str) -> None:
    for tries_left in reversed(range(_TRIES)):
        try:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        except asyncpg.InsufficientPrivilegeError:
            # A vacuum by the server itself is in it, which only a superuser may end.
            if not tries_left:
                raise
            await asyncio.sleep(_WAIT_S)
        else:
            return
