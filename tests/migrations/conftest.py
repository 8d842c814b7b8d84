from collections.abc import AsyncIterator

import pytest

from tests.databases import fresh_database


@pytest.fixture
async def empty_url(postgres: str) -> AsyncIterator[str]:
    """A database without any table."""
    async with fresh_database(postgres, "template0") as url:
        yield url
