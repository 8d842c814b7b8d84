import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest


@pytest.fixture
async def empty_url(postgres: str) -> AsyncIterator[str]:
    """A database without any table."""
    name = f"empty_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres.replace("template_treadle", "postgres", 1))
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield postgres.replace("template_treadle", name, 1)
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()
