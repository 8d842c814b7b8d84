"""Databases of a test's own."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

_TRIES = 50
_WAIT_S = 0.1


@asynccontextmanager
async def fresh_database(postgres: str, template: str = "template_treadle") -> AsyncIterator[str]:
    """Make a database from a template, migrated unless another is named; gives its DSN.

    `postgres` is the DSN of the migrated template.
    """
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres.replace("template_treadle", "postgres", 1))
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
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
