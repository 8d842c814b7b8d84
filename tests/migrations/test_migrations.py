"""The schema: from nothing to the newest, a step back, many at once, and what is refused."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from pydantic import SecretStr
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.errors import ConfigError
from app.store.engine import Database, open_database
from app.store.migrate import check_schema, migrate
from app.store.schema_revision import is_current, newest_revision
from app.store.tables import metadata
from app.wiring.database import open_store
from tests.conftest import MakeSettings
from tests.hosts import environment

ROOT = Path(__file__).parents[2]
MIGRATE = """
import asyncio, sys
from app.store.engine import open_database
from app.store.migrate import migrate

async def main():
    async with open_database(sys.argv[1], pool_size=1, connect_s=10) as database:
        print("ready", flush=True)
        sys.stdin.readline()
        await migrate(database.engine)

asyncio.run(main())
"""
"""A process that migrates as soon as it is told to."""


START = """
import asyncio, sys
from app.settings.loading import load_settings
from app.wiring.database import open_store

async def main():
    async with open_store(load_settings()):
        print("alembic" in sys.modules)

asyncio.run(main())
"""
"""A process that opens the store as a host does, and tells whether that took the tool."""


def revisions() -> list[str]:
    """All of them, the newest first."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    return [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()]


def opened(url: str) -> Any:
    return open_database(url, pool_size=1, connect_s=10)


async def differences(engine: AsyncEngine) -> list[Any]:
    def compare(connection: Connection) -> list[Any]:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, metadata))

    async with engine.connect() as connection:
        return await connection.run_sync(compare)


async def revision(engine: AsyncEngine) -> str | None:
    async with engine.connect() as connection:
        return await connection.run_sync(
            lambda sync: MigrationContext.configure(sync).get_current_revision()
        )


async def set_revision(database: Database, value: str) -> None:
    async with database.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": value})


async def test_the_migrations_build_what_the_program_knows(empty_url: str) -> None:
    async with opened(empty_url) as database:
        assert await differences(database.engine) != []
        await migrate(database.engine)
        assert await differences(database.engine) == []
        assert await revision(database.engine) == revisions()[0]
        await check_schema(database.engine)
        await migrate(database.engine)  # a second time there is nothing to do
        assert await differences(database.engine) == []


async def test_every_step_can_be_taken_back_and_again(empty_url: str) -> None:
    steps = revisions()
    async with opened(empty_url) as database:
        await migrate(database.engine)
        for older in [*steps[1:], "base"]:
            await migrate(database.engine, older)
            assert await revision(database.engine) == (None if older == "base" else older)
            await migrate(database.engine)
            assert await differences(database.engine) == []
        await migrate(database.engine, "base")
        async with database.connect() as connection:
            left = await connection.scalars(
                text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            )
            assert list(left) == ["alembic_version"]


async def test_only_a_start_that_has_something_to_move_loads_what_moves_it(
    empty_url: str, make_settings: MakeSettings
) -> None:
    assert newest_revision() == revisions()[0]
    settings = make_settings(database={"url": SecretStr(empty_url)})
    told = []
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", START, cwd=ROOT, stdout=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **environment(settings)},
        )  # fmt: skip
        told.append((await process.communicate())[0].split())
    assert told == [[b"True"], [b"False"]]
    async with opened(empty_url) as database:
        assert await is_current(database.engine)
        for other in (revisions()[1], "9999"):
            await set_revision(database, other)
            assert not await is_current(database.engine)


async def test_six_processes_that_start_at_once_all_succeed(empty_url: str) -> None:
    pipe = asyncio.subprocess.PIPE
    async with AsyncExitStack() as stack:
        processes = []
        for _ in range(6):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", MIGRATE, empty_url, cwd=ROOT, stdin=pipe, stdout=pipe,
                stderr=pipe,
            )  # fmt: skip
            processes.append(process)
            stack.push_async_callback(ended, process)
        async with asyncio.timeout(60):
            for process in processes:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            answers = await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    failures = [err.decode()[-500:] for _, err in answers if err]
    assert ([process.returncode for process in processes], failures) == ([0] * 6, [])
    async with opened(empty_url) as database:
        assert await differences(database.engine) == []


async def ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def test_a_newer_schema_refuses_this_program_and_stays_as_it_is(database_url: str) -> None:
    async with opened(database_url) as database:
        await set_revision(database, "9999")
        for start in (migrate, check_schema):
            with pytest.raises(ConfigError, match=r"\(9999\) is newer than this program"):
                await start(database.engine)
        assert await revision(database.engine) == "9999"


async def test_a_host_that_meets_a_newer_schema_ends_with_status_2_and_says_why(
    database_url: str, make_settings: MakeSettings
) -> None:
    async with opened(database_url) as database:
        await set_revision(database, "9999")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app", "serve", "--port", "0",
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment(make_settings())},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(30):
            _, err = await process.communicate()
    finally:
        await ended(process)
    assert process.returncode == 2
    assert "newer than this program" in err.decode()


async def test_a_start_that_may_not_migrate_refuses_an_old_schema(
    empty_url: str, make_settings: MakeSettings
) -> None:
    settings = make_settings(database={"url": SecretStr(empty_url), "migrate_on_start": False})
    with pytest.raises(ConfigError, match=r"is at nothing, .* Run `treadle migrate`"):
        async with open_store(settings):
            pass
    async with opened(empty_url) as database:
        assert await revision(database.engine) is None
        await migrate(database.engine)
    async with open_store(settings):
        pass


async def test_a_start_that_may_migrate_does(empty_url: str, make_settings: MakeSettings) -> None:
    async with open_store(make_settings(database={"url": SecretStr(empty_url)})) as database:
        assert await revision(database.engine) == revisions()[0]
