"""The database that settings name, or the embedded one."""

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError
from ulid import ULID

from app.errors import (
    ConfigError,
    Unavailable,
)
from app.settings.settings import Settings
from app.store.embedded import EmbeddedPostgres, ensure_running
from app.store.engine import GONE, Database, open_database
from app.store.keys import DEFAULT_TENANT, ensure_bootstrap_key, ensure_tenant
from app.store.schema_revision import is_current

log = logging.getLogger(__name__)


def embedded_place(settings: Settings) -> EmbeddedPostgres:
    """Give where the embedded Postgres lies."""
    return EmbeddedPostgres(settings.data_path / "postgres", settings.runtime_path)


async def database_dsn(
    settings: Settings, *, on_progress: Callable[[str], None] | None = None
) -> str:
    """Give the database to use; start the embedded one when none is named."""
    if settings.database.url is not None:
        return settings.database.url.get_secret_value()
    prepare_data_dir(settings)
    return await ensure_running(embedded_place(settings), on_progress=on_progress)


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[Database]:
    """Connect to the database and bring its schema and first tenant up to date."""
    dsn = await database_dsn(settings, on_progress=log.info)
    async with open_database(
        dsn, pool_size=settings.database.pool_size, connect_s=settings.database.connect_s
    ) as database:
        try:
            await _prepare(settings, database)
        except (*GONE, DBAPIError, Unavailable) as error:
            raise ConfigError(
                f"The database went away during the start ({type(error).__name__}). Start again "
                "when it is back."
            ) from error
        yield database


async def _prepare(settings: Settings, database: Database) -> None:
    if not await is_current(database.engine):
        from app.store.migrate import check_schema, migrate  # noqa: PLC0415 - most starts need it not

        move = migrate if settings.database.migrate_on_start else check_schema
        await move(database.engine)
    async with database.begin() as connection:
        await ensure_tenant(connection, DEFAULT_TENANT, allow_bypass=settings.policy.allow_bypass)
        if (key := settings.auth.bootstrap_key) is not None:
            await ensure_bootstrap_key(connection, DEFAULT_TENANT, key.get_secret_value())


def prepare_data_dir(settings: Settings) -> Path:
    """Make the data directory. Raises `ConfigError` when it cannot be written."""
    folder = settings.data_path
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}-{ULID()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"The data directory {folder} cannot be written ({error.strerror}). Set "
            "TREADLE_DATA_DIR to a folder that this user may write."
        ) from None
    return folder
