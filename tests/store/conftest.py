from collections.abc import AsyncIterator

import pytest

from app.store.engine import Database
from tests.store.seeds import opened


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A migrated database with the default tenant."""
    async with opened(database_url) as database:
        yield database
