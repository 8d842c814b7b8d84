"""One host for most of these tests: each makes sessions of its own in it."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.api.stage import Stage, open_stage
from tests.databases import fresh_database


@pytest.fixture(scope="session")
async def stage(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    """A host as operators have it."""
    async with fresh_database(postgres) as dsn, open_stage(scratch, dsn) as opened:
        yield opened


@pytest.fixture
async def stranger(stage: Stage) -> AsyncIterator[httpx.AsyncClient]:
    """A client of another tenant."""
    _, key = await stage.tenant(f"tenant-{secrets.token_hex(4)}")
    async with httpx.AsyncClient(
        base_url=stage.base_url, headers={"x-api-key": key}, timeout=30, trust_env=False
    ) as client:
        yield client
