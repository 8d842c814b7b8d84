"""Connections to Postgres.

Two pools a process: SQLAlchemy's for everything ordinary, a raw asyncpg one for the journal, whose
append is the hot path (raw costs a fifth of Core there).
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

import asyncpg
import orjson
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.errors import ConfigError, Unavailable
from app.store.connections import Connections

log = logging.getLogger(__name__)

sql = cache(text)
"""Gives the parsed form of a statement, parsed once. Only for texts that do not vary by request."""

GONE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # used between the server's farewell and the end of the connection
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.QueryCanceledError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TransactionRollbackError,
    InterfaceError,
    OperationalError,
    PoolTimeoutError,
    TimeoutError,
)
"""What a database that is gone, going, full or failing over raises. Worth another try later."""

TROUBLE = (*GONE, asyncpg.PostgresError, DBAPIError)
"""Whatever a statement can raise: for loops that must outlive it."""


@dataclass(frozen=True, slots=True)
class Database:
    """The two pools. Made by `open_database`, which also closes them."""

    engine: AsyncEngine
    raw: Connections
    dsn: str
    """For connections of one's own (LISTEN)."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction. Raises `Unavailable` when the database is gone."""
        try:
            async with self.engine.begin() as connection:
                yield connection
        except GONE as error:
            raise gone(error) from error
        except DBAPIError as error:
            if (cause := _gone_by(error)) is not None:
                raise gone(cause) from error
            raise

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection for reads: each statement on its own. Raises `Unavailable`."""
        try:
            async with self.engine.connect() as connection:
                yield await connection.execution_options(isolation_level="AUTOCOMMIT")
        except GONE as error:
            raise gone(error) from error
        except DBAPIError as error:
            if (cause := _gone_by(error)) is not None:
                raise gone(cause) from error
            raise


def gone(error: BaseException) -> Unavailable:
    """Give the error that a client sees while the database is away."""
    log.warning("The database is not reachable: %s", type(error).__name__)
    return Unavailable("The database is not reachable. Try again shortly.", retry_after_s=2)


def _gone_by(error: DBAPIError) -> BaseException | None:
    """Give the driver's error if it says that the database is gone; SQLAlchemy wraps it twice."""
    driver_error = error.orig.__cause__ if error.orig is not None else None
    if isinstance(driver_error, GONE):
        return driver_error
    return error if error.connection_invalidated else None


def plain_dsn(url: str) -> str:
    """Give the form that asyncpg reads, of any usual spelling of a Postgres URL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.split("+")[0] not in {"postgres", "postgresql"}:
        raise ConfigError("DATABASE_URL must begin with postgresql://")
    return f"postgresql://{rest}"


@asynccontextmanager
async def open_database(
    dsn: str, *, pool_size: int, connect_s: float, command_s: float = 30.0
) -> AsyncIterator[Database]:
    """Connect, waiting up to `connect_s` for the server. Raises `ConfigError` when it stays away.

    A statement that has no answer after `command_s`, for a lock or a server that is frozen, is
    cancelled; where nobody hears that either, its connection is dropped after as long again.
    """
    dsn = plain_dsn(dsn)
    await _wait_for_server(dsn, connect_s)

    async def connect() -> "asyncpg.Connection[asyncpg.Record]":
        return await asyncpg.connect(
            dsn, timeout=10, command_timeout=command_s, server_settings=_SESSION
        )

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        json_serializer=lambda value: orjson.dumps(value).decode(),
        json_deserializer=orjson.loads,
        hide_parameters=True,  # errors are logged; prompts are not
    )
    pool = await asyncpg.create_pool(
        dsn,
        min_size=1,
        max_size=pool_size,
        command_timeout=command_s,
        timeout=10,
        reset=_leave,
        server_settings=_SESSION,
    )
    connections = Connections(pool, pool_size)
    try:
        yield Database(engine, connections, dsn)
    finally:
        await engine.dispose()
        await connections.close(_CLOSE_LIMIT_S)


_CLOSE_LIMIT_S = 5.0
_SESSION = {"idle_in_transaction_session_timeout": "15s", "tcp_keepalives_idle": "60"}
"""A host that is cut off must not hold a session's row lock until TCP gives up.

Connections may be idle for hours, and what lies between (address translation, balancers) forgets
them in silence after minutes: the next statement would hang. So the server says something.
"""


async def _leave(connection: object) -> None:
    """Leave a connection as it is: no statement of ours changes its session."""


async def _wait_for_server(dsn: str, connect_s: float) -> None:
    deadline = time.monotonic() + connect_s
    while True:
        try:
            connection = await asyncpg.connect(dsn, timeout=5)
        except (OSError, TimeoutError, asyncpg.PostgresError, ValueError) as error:
            if isinstance(error, ValueError) or time.monotonic() >= deadline:
                raise ConfigError(_unreachable(error)) from None
            left = deadline - time.monotonic()
            log.warning(
                "The database is not reachable yet (%s); trying again for %.0f s",
                _cause(error),
                left,
            )
            await asyncio.sleep(min(1.0, max(0.05, left)))
        else:
            await connection.close()
            return


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _unreachable(error: BaseException) -> str:
    return (
        f"The database is not reachable ({_cause(error)}). Check DATABASE_URL and that Postgres "
        "runs, or unset DATABASE_URL to use the embedded one."
    )
