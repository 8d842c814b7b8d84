"""The pool for raw statements: a few connections stay at hand, and nobody waits for those."""

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import pytest

from app.store.connections import Connections
from app.store.engine import plain_dsn
from tests.store.proxy import Proxy
from tests.store.seeds import opened

PID = "SELECT pg_backend_pid()"


async def test_statements_one_after_the_other_go_over_one_connection(database_url: str) -> None:
    async with opened(database_url, pool_size=4) as database:
        raw = database.raw
        pids = {await raw.fetchval(PID) for _ in range(5)}
        pids |= {(await raw.fetchrow(PID))[0], (await raw.fetch(PID))[0][0]}
        async with raw.acquire() as connection:
            pids.add(await connection.fetchval(PID))
        assert len(pids) == 1
        assert raw.in_use == 0


async def test_a_connection_at_hand_is_there_for_whoever_waits_at_the_pool(
    database_url: str,
) -> None:
    async with opened(database_url, pool_size=4) as database, AsyncExitStack() as stack:
        raw = database.raw
        for _ in range(3):
            await stack.enter_async_context(raw.acquire())
        slow = asyncio.create_task(raw.fetchval("SELECT 1 FROM pg_sleep(0.3)"))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            await stack.enter_async_context(raw.acquire())
        assert await slow == 1
        assert raw.in_use == 4


async def test_what_fails_or_is_cut_off_leaves_a_pool_that_works(database_url: str) -> None:
    async with opened(database_url, pool_size=1) as database:
        raw: Connections = database.raw
        with pytest.raises(asyncpg.DivisionByZeroError):
            await raw.fetchval("SELECT 1 / 0")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await raw.execute("SELECT pg_sleep(30)")
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with raw.acquire() as connection, connection.transaction():
                await connection.execute("SELECT 1 / 0")
        async with asyncio.timeout(30):
            assert await raw.fetchval("SELECT 1") == 1
        assert raw.in_use == 0


async def test_a_connection_that_was_lost_at_hand_is_replaced(database_url: str) -> None:
    async with Proxy(database_url) as proxy, opened(proxy.url) as database:
        lost = await database.raw.fetchval(PID)
        await proxy.cut()
        await proxy.mend()

        async def answer() -> int:
            while True:
                try:
                    return int(await database.raw.fetchval(PID))
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    await asyncio.sleep(0.05)

        async with asyncio.timeout(10):
            assert await answer() != lost


async def test_connections_that_the_server_ended_at_hand_cost_nobody_a_failure(
    database_url: str,
) -> None:
    async with opened(database_url, pool_size=8) as database:
        raw = database.raw
        pids = set(await asyncio.gather(*(raw.fetchval(f"{PID} FROM pg_sleep(0.1)") for _ in "12")))
        assert len(pids) == 2
        admin = await asyncpg.connect(database_url)
        try:
            for pid in pids:
                await admin.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
        finally:
            await admin.close()
        await asyncio.sleep(0.1)  # for the farewells to be heard
        assert raw.in_use == 0
        for _ in range(3):
            assert await raw.fetchval(PID) not in pids
        assert raw.in_use == 0


async def test_nobody_waits_for_ever_for_a_connection_and_none_is_lost_by_waiting(
    database_url: str,
) -> None:
    pool = await asyncpg.create_pool(plain_dsn(database_url), min_size=1, max_size=2)
    raw = Connections(pool, 2, wait_s=0.05)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(raw.acquire())
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await raw.fetchval(PID)
        with pytest.raises(TimeoutError):
            await stack.enter_async_context(raw.acquire())
    assert raw.in_use == 0
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(raw.acquire()) for _ in range(2)]
        assert len({await one.fetchval(PID) for one in both}) == 2
    await raw.close(5)
