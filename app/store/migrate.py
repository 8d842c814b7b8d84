"""Bring the schema up to date, one process at a time."""

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.errors import ConfigError
from app.store.schema_revision import MIGRATIONS

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('treadle-migrations', 0))"
"""Held to the end of the transaction, so that it works through a transaction-mode pooler too."""


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option(
        "file_template", "%%(year)d-%%(month).2d-%%(day).2d-%%(hour).2d%%(minute).2d_%%(slug)s"
    )
    config.attributes["connection"] = connection
    return config


async def migrate(engine: AsyncEngine, revision: str = "head") -> None:
    """Upgrade to `revision` (or downgrade, when it is older). Raises `ConfigError` as `check`."""
    async with engine.begin() as connection:
        await connection.execute(text(LOCK))
        await connection.run_sync(_refuse_newer)
        await connection.run_sync(_move, revision)


async def check_schema(engine: AsyncEngine) -> None:
    """Raise `ConfigError` when the schema is not the one that this program knows."""
    async with engine.connect() as connection:
        found = await connection.run_sync(_refuse_newer)
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if found != head:
        raise ConfigError(
            f"The database's schema is at {found or 'nothing'}, this program needs {head}. "
            "Run `treadle migrate`, or set MIGRATE_ON_START=1."
        )


def _move(connection: Connection, revision: str) -> None:
    current = MigrationContext.configure(connection).get_current_revision()
    script = ScriptDirectory.from_config(_config())
    known = [entry.revision for entry in script.walk_revisions()]
    target = script.get_current_head() if revision == "head" else revision
    is_older = revision == "base" or (
        current in known and target in known and known.index(target) > known.index(current)
    )
    (command.downgrade if is_older else command.upgrade)(_config(connection), revision)


def _refuse_newer(connection: Connection) -> str | None:
    current = MigrationContext.configure(connection).get_current_revision()
    known = {entry.revision for entry in ScriptDirectory.from_config(_config()).walk_revisions()}
    if current is not None and current not in known:
        raise ConfigError(
            f"The database's schema ({current}) is newer than this program. "
            "Start the version that migrated it, or a later one."
        )
    return current
