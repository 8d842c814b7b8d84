"""The pool for raw statements, with a few connections at hand.

A pool lends a connection through three tasks and time-outs, which costs as much as a small
statement does. So single statements, appends above all, go over connections that stay lent: they
are given back to the pool when something went wrong on them, and at the end.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

T = TypeVar("T")
_Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

_SHARE = 4
"""One connection of so many stays lent."""


class Connections:
    """Asks like an asyncpg pool, and raises what one raises.

    Where none is free in time it raises `TimeoutError`: while the database hangs, those who wait would
    else get one after the other what does not answer either.
    """

    def __init__(
        self, pool: "asyncpg.Pool[asyncpg.Record]", size: int, *, wait_s: float = 10.0
    ) -> None:
        """Take over a pool of so many connections, and its end; nobody waits longer for one."""
        self._pool = pool
        self._wait_s = wait_s
        self._at_hand: list[_Connection] = []
        self._most = size // _SHARE
        self._waiting = 0

    @property
    def in_use(self) -> int:
        """Connections that somebody has at this moment."""
        lent: int = self._pool.get_size() - self._pool.get_idle_size()
        return lent - sum(not _is_lost(each) for each in self._at_hand)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[_Connection]:
        """Lend a connection, for a transaction."""
        connection = await self._taken()
        try:
            yield connection
        except BaseException:
            # It may be in any state: the pool looks after that.
            await self._pool.release(connection)
            raise
        await self._put_back(connection)

    async def execute(self, sql: str, *arguments: object) -> str:
        return await self._on_one(lambda one: one.execute(sql, *arguments))

    async def fetch(self, sql: str, *arguments: object) -> list[Any]:
        return await self._on_one(lambda one: one.fetch(sql, *arguments))

    async def fetchrow(self, sql: str, *arguments: object) -> Any:  # noqa: ANN401 - as asyncpg has it
        return await self._on_one(lambda one: one.fetchrow(sql, *arguments))

    async def fetchval(self, sql: str, *arguments: object) -> Any:  # noqa: ANN401 - the same
        return await self._on_one(lambda one: one.fetchval(sql, *arguments))

    async def _on_one(self, ask: Callable[[_Connection], Awaitable[T]]) -> T:
        connection = await self._taken()
        try:
            answer = await ask(connection)
        except BaseException:
            await self._pool.release(connection)
            raise
        await self._put_back(connection)
        return answer

    async def _taken(self) -> _Connection:
        while self._at_hand:
            connection = self._at_hand.pop()
            if not _is_lost(connection):
                return connection
            await self._pool.release(connection)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                return await self._pool.acquire()
        finally:
            self._waiting -= 1

    async def _put_back(self, connection: _Connection) -> None:
        # Whoever waits at the pool gets what comes back there, and nothing else.
        if len(self._at_hand) < self._most and not self._waiting:
            self._at_hand.append(connection)
        else:
            await self._pool.release(connection)

    async def close(self, limit_s: float) -> None:
        """Close all connections; after `limit_s` also those that are in use."""
        self._most = 0
        try:
            async with asyncio.timeout(limit_s):
                while self._at_hand:
                    await self._pool.release(self._at_hand.pop())
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


def _is_lost(connection: _Connection) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # the pool took it back when its end was heard of
        return True
