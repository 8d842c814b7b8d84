"""What `treadle migrate` does in the database."""

import asyncio

from alembic.runtime.migration import MigrationContext
from alembic.util.exc import CommandError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.cli.failure import CliFailure
from app.cli.screen import say
from app.settings.loading import load_settings
from app.store.engine import open_database
from app.store.migrate import migrate
from app.wiring.database import database_dsn


def move(revision: str) -> tuple[str | None, str | None]:
    """Bring the schema to `revision`; give the revisions before and after."""
    return asyncio.run(_move(revision))


async def _move(revision: str) -> tuple[str | None, str | None]:
    settings = load_settings()
    dsn = await database_dsn(settings, on_progress=say)
    connect_s = settings.database.connect_s
    async with open_database(dsn, pool_size=2, connect_s=connect_s) as database:
        before = await _current(database.engine)
        try:
            await migrate(database.engine, revision)
        except CommandError as error:
            raise CliFailure(f"{error}. The schema is at {before or 'nothing'} still.") from None
        return before, await _current(database.engine)


async def _current(engine: AsyncEngine) -> str | None:
    async with engine.connect() as connection:
        return await connection.run_sync(
            lambda sync: MigrationContext.configure(sync).get_current_revision()
        )
