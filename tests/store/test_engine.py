"""The pools: what an absent database looks like to those above."""

import asyncio

import asyncpg
import pytest
from sqlalchemy import text

from app.errors import ConfigError, Unavailable
from app.store.engine import GONE, open_database, plain_dsn
from tests.store.proxy import Proxy
from tests.store.seeds import opened


@pytest.mark.parametrize(
    ("url", "dsn"),
    [
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgres://u@h/d", "postgresql://u@h/d"),
        ("postgresql+asyncpg://u@h/d?host=/tmp", "postgresql://u@h/d?host=/tmp"),
    ],
)
def test_usual_spellings_of_a_url_are_read(url: str, dsn: str) -> None:
    assert plain_dsn(url) == dsn


@pytest.mark.parametrize("url", ["mysql://u@h/d", "sqlite:///x", "h/d", ""])
def test_another_kind_of_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="postgresql://"):
        plain_dsn(url)


async def test_a_start_waits_for_a_database_that_comes_late(database_url: str) -> None:
    async with Proxy(database_url) as proxy:
        await proxy.cut()
        opening = asyncio.create_task(_answers(proxy.url, connect_s=20))
        await proxy.is_called()
        await proxy.mend()
        assert await opening == 1


async def test_a_start_gives_up_on_a_database_that_stays_away(database_url: str) -> None:
    async with Proxy(database_url) as proxy:
        await proxy.cut()
        with pytest.raises(ConfigError, match=r"not reachable.*DATABASE_URL"):
            await _answers(proxy.url, connect_s=0.2)


async def _answers(url: str, *, connect_s: float) -> int:
    async with open_database(url, pool_size=1, connect_s=connect_s) as database:
        return int(await database.raw.fetchval("SELECT 1"))


async def test_requests_meet_an_absent_database_as_unavailable_and_a_mended_one_as_before(
    database_url: str,
) -> None:
    async with Proxy(database_url) as proxy, opened(proxy.url, pool_size=2) as database:

        async def read() -> object:
            async with database.connect() as connection:
                return await connection.scalar(text("SELECT 1"))

        async def write() -> object:
            async with database.begin() as connection:
                return await connection.scalar(text("SELECT 1"))

        assert (await read(), await write()) == (1, 1)
        await proxy.cut()
        for ask in (read, write, read, write):
            with pytest.raises(Unavailable):
                await ask()
        with pytest.raises(GONE):
            await database.raw.fetchval("SELECT 1")
        await proxy.mend()
        assert (await read(), await write()) == (1, 1)
        assert await database.raw.fetchval("SELECT 1") == 1


@pytest.mark.parametrize("method", ["connect", "begin"])
async def test_a_connection_that_the_server_ended_is_unavailable_once(
    database_url: str, method: str
) -> None:
    async with opened(database_url, pool_size=1) as database:

        async def ask() -> object:
            async with getattr(database, method)() as connection:
                return await connection.scalar(text("SELECT 1"))

        await ask()
        admin = await asyncpg.connect(database_url)
        try:
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        finally:
            await admin.close()
        with pytest.raises(Unavailable):
            await ask()
        assert await ask() == 1


@pytest.mark.parametrize("method", ["connect", "begin", "raw"])
async def test_a_frozen_database_hangs_nobody_for_ever_and_works_again_afterwards(
    database_url: str, method: str
) -> None:
    async with (
        Proxy(database_url) as proxy,
        open_database(proxy.url, pool_size=2, connect_s=10, command_s=0.3) as database,
    ):

        async def ask() -> object:
            if method == "raw":
                return await database.raw.fetchval("SELECT 1")
            async with getattr(database, method)() as connection:
                return await connection.scalar(text("SELECT 1"))

        assert await ask() == 1
        proxy.freeze()
        async with asyncio.timeout(15):
            with pytest.raises(GONE if method == "raw" else Unavailable):
                await ask()
        await proxy.mend()
        assert await ask() == 1


async def test_a_row_that_stays_locked_is_unavailable_and_its_connection_goes_on(
    database_url: str,
) -> None:
    async with open_database(database_url, pool_size=1, connect_s=10, command_s=0.3) as database:
        holder = await asyncpg.connect(database_url)
        try:
            async with holder.transaction(), asyncio.timeout(10):
                await holder.execute("LOCK TABLE tenants")
                with pytest.raises(Unavailable):
                    async with database.begin() as connection:
                        await connection.scalar(text("SELECT count(*) FROM tenants"))
                async with database.connect() as connection:
                    assert await connection.scalar(text("SELECT 1")) == 1
        finally:
            await holder.close()
        async with database.begin() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM tenants")) is not None


async def test_a_wrong_statement_is_a_fault_of_ours_and_not_an_outage(database_url: str) -> None:
    async with opened(database_url) as database:
        with pytest.raises(Exception, match="nowhere") as raised:
            async with database.connect() as connection:
                await connection.execute(text("SELECT * FROM nowhere"))
        assert not isinstance(raised.value, Unavailable)


async def test_the_server_looks_after_idle_connections_of_both_pools(database_url: str) -> None:
    # Over a Unix socket it has nothing to do; what was asked of it is all that can be seen.
    asked = "SELECT source FROM pg_settings WHERE name = 'tcp_keepalives_idle'"
    async with opened(database_url) as database:
        async with database.connect() as connection:
            assert await connection.scalar(text(asked)) == "client"
        assert await database.raw.fetchval(asked) == "client"
