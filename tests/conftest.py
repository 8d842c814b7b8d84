"""What tests share: a real Postgres, a scripted Messages API, hosts."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pydantic import SecretStr

from app.settings.settings import Settings
from app.store.embedded import EmbeddedPostgres, ensure_running, stop
from app.store.engine import open_database
from app.store.migrate import migrate
from tests.databases import forget_the_disk, fresh_database
from tests.fakes.messages_api import MessagesApi
from tests.hosts import KEY, Host, host

pytest.register_assert_rewrite("tests.contracts")

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

MakeSettings = Callable[..., Settings]

LONGEST = ("tests/traces/", "tests/test_containers.py", "tests/chaos/", "tests/e2e/")
"""What begins first, so that at the end no worker is waited for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the service runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A folder that the sandbox's user can enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="trd-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(scratch: Path) -> Iterator[str]:
    """A server of our own for all tests, from the wheel; gives the DSN of a migrated template."""
    place = EmbeddedPostgres(scratch / "pg", scratch / "run", database="template_treadle")

    async def prepare() -> str:
        dsn = await ensure_running(place)
        await forget_the_disk(dsn)
        async with open_database(dsn, pool_size=1, connect_s=30) as database:
            await migrate(database.engine)
        return dsn

    yield asyncio.run(prepare())
    asyncio.run(stop(place))


@pytest.fixture
async def database_url(postgres: str) -> AsyncIterator[str]:
    """A fresh, migrated database."""
    async with fresh_database(postgres) as url:
        yield url


@pytest.fixture
async def messages_api() -> AsyncIterator[MessagesApi]:
    """The scripted Messages API; it records every request."""
    async with MessagesApi() as api:
        yield api


@pytest.fixture
def make_settings(
    scratch: Path, database_url: str, messages_api: MessagesApi
) -> Iterator[MakeSettings]:
    """Make settings of a host; hosts of one test share database, data directory and model."""
    data_dir = Path(tempfile.mkdtemp(prefix="d-", dir=scratch))
    data_dir.chmod(0o755)

    def make(**groups: Any) -> Settings:
        defaults: dict[str, dict[str, Any]] = {
            "database": {"url": SecretStr(database_url), "pool_size": 5},
            "model": {
                "api_key": SecretStr("sk-test-provider-key"),
                "base_url": messages_api.base_url,
                "max_retries": 2,
            },
            "engine": {"lease_s": 3.0, "heartbeat_s": 0.5, "poll_s": 0.2, "drain_s": 3.0},
            "auth": {"bootstrap_key": SecretStr(KEY)},
        }
        plain = {k: v for k, v in groups.items() if not isinstance(v, dict)}
        merged = {
            name: {**defaults.get(name, {}), **groups.get(name, {})}
            for name in {*defaults, *(k for k, v in groups.items() if isinstance(v, dict))}
        }
        return Settings.model_validate({"data_dir": data_dir, **plain, **merged})

    yield make
    shutil.rmtree(data_dir, ignore_errors=True)


@pytest.fixture
async def service(make_settings: MakeSettings) -> AsyncIterator[Host]:
    """One host."""
    async with host(make_settings()) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> Iterator[None]:
    """Keep the developer's own settings out of the tests."""
    names = [n for n in os.environ if n.startswith(("TREADLE_", "ANTHROPIC_"))]
    saved = {name: os.environ.pop(name) for name in [*names, "DATABASE_URL"] if name in os.environ}
    yield
    os.environ.update(saved)
