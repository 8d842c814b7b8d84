"""The embedded PostgreSQL: one server a data directory, shared by all processes of the machine.

It starts at the first need and outlives the process that started it: several share it, and none
owns it. It listens on a unix socket only, in a folder that only our user may enter; that folder is
the lock on the door, so the socket itself asks for no password.

A start is a blocking sequence in a thread. If the caller is cancelled, the thread still ends the
start that it began, so that the next one finds a whole server or none.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import asyncpg

from app.errors import ConfigError
from app.store import postgres_folders as folders
from app.store.postgres_binaries import Binaries
from app.store.postgres_cluster import ADMIN, PORT, Cluster
from app.store.postgres_identity import Identity, choose_identity
from app.store.postgres_processes import Postmaster, end_leftovers

ROLE = "treadle"
"""The role of the service: it owns its databases and may create some, and is no superuser."""
_LOCK_LIMIT_S = 400
_RETRY_LIMIT_S = 30
"""How long the processes of a killed server may take to leave."""
_PATIENCE_S = 3
"""After this they are made to leave."""
_RECOVERY_LIMIT_S = 300
_CONNECT_LIMIT_S = 10
_GOING_DOWN = (
    OSError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.PostgresConnectionError,
)


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """A place for a server; holds no process."""

    data_dir: Path
    """The cluster and its state lie below; absolute. Made with mode 0700 when missing."""
    runtime_dir: Path
    """Holds the unix socket and nothing else; short, absolute. Made with mode 0700 when missing."""
    database: str = "treadle"


@dataclass(frozen=True, slots=True)
class Status:
    running: bool
    pid: int | None
    version: str | None
    """Of the running server, else the major version of the data; None before the first start."""
    dsn: str
    """Where it answers, or would answer once started."""
    data_dir: Path


async def ensure_running(
    place: EmbeddedPostgres, *, on_progress: Callable[[str], None] | None = None
) -> str:
    """Start the server unless it runs, create the database unless it exists, return its DSN.

    Any number of processes may call this at once. `on_progress` hears of slow steps, in the
    event loop's thread.

    Raises:
        ConfigError: it cannot be started; the text says what to do.
    """
    loop = asyncio.get_running_loop()

    def say(text: str) -> None:
        if on_progress is not None:
            loop.call_soon_threadsafe(on_progress, text)

    give_up = loop.time() + _RETRY_LIMIT_S
    while True:
        server = await asyncio.to_thread(_bring_up, place, say)
        try:
            await _create_database(server, place.database)
        except _GOING_DOWN as error:
            # It went down between our look and our call: look again.
            if loop.time() > give_up:
                raise ConfigError(
                    f"The embedded PostgreSQL (pid {server.pid}) does not answer on"
                    f" {server.socket}: {error}. See the log in {place.data_dir}."
                ) from error
            await asyncio.sleep(0.2)
        else:
            return _dsn(server.socket_dir, place.database)


async def stop(place: EmbeddedPostgres) -> bool:
    """Stop the server; open transactions are rolled back. False when none ran."""
    return await asyncio.to_thread(_stop, place)


async def status(place: EmbeddedPostgres) -> Status:
    """Never starts anything."""
    cluster = _cluster(place)
    server = cluster.postmaster()
    version = None if cluster.major is None else str(cluster.major)
    if server is None:
        dsn = _dsn(place.runtime_dir, place.database)
        return Status(running=False, pid=None, version=version, dsn=dsn, data_dir=place.data_dir)
    try:
        connection = await _connect(server, user=ADMIN, database="postgres")
    except (OSError, asyncpg.PostgresError):
        pass  # starting, stopping or crowded: the major version must do
    else:
        try:
            version = str(await connection.fetchval("SHOW server_version"))
        finally:
            await connection.close()
    dsn = _dsn(server.socket_dir, place.database)
    return Status(running=True, pid=server.pid, version=version, dsn=dsn, data_dir=place.data_dir)


def psql_argv(place: EmbeddedPostgres) -> list[str]:
    """The command that opens `psql` on the database; the server must run."""
    cluster = _cluster(place)
    server = cluster.postmaster()
    socket_dir = server.socket_dir if server else place.runtime_dir
    psql = cluster.binaries().program("psql")
    return [psql, "-h", str(socket_dir), "-p", str(PORT), "-U", ROLE, "-d", place.database]


def _cluster(place: EmbeddedPostgres) -> Cluster:
    return Cluster(place.data_dir, place.runtime_dir)


def _dsn(socket_dir: Path, database: str) -> str:
    return f"postgresql://{ROLE}@/{quote(database)}?host={quote(str(socket_dir))}"


# -- in a thread ------------------------------------------------------------------------------


def _bring_up(place: EmbeddedPostgres, say: Callable[[str], None]) -> Postmaster:
    cluster = _cluster(place)
    folders.prepare(place.data_dir, place.runtime_dir, socket=cluster.socket)
    with cluster.starting(limit_s=_LOCK_LIMIT_S):
        began, reason, programs = time.monotonic(), None, None
        while True:
            server = cluster.postmaster()
            waited_s = time.monotonic() - began
            if server is None:
                if waited_s > _PATIENCE_S:
                    end_leftovers(cluster.pgdata)
                programs = programs or _choose_programs(cluster, say)
                limit_s, reason = _RETRY_LIMIT_S, cluster.launch(*programs)
                began = began if reason else time.monotonic()
            elif server.is_ready and server.socket.exists():
                return server
            else:
                limit_s, reason = _RECOVERY_LIMIT_S, "it is not ready"
                if server.is_ready:
                    say("its socket was deleted: restarting the database")
                    with suppress(ProcessLookupError):
                        os.kill(server.pid, signal.SIGINT)
            if reason and waited_s > limit_s:
                raise ConfigError(
                    f"The embedded PostgreSQL in {place.data_dir} did not start within"
                    f" {limit_s} s: {reason}. See {cluster.log}."
                )
            time.sleep(0.1 if reason else 0)


def _choose_programs(cluster: Cluster, say: Callable[[str], None]) -> tuple[Binaries, Identity]:
    binaries = cluster.binaries()
    identity = choose_identity(kept_uid=folders.kept_uid(cluster.data_dir))
    made = "creating and " if cluster.major is None else ""
    say(f"{made}starting PostgreSQL {binaries.version} in {cluster.data_dir}")
    return binaries, identity


def _stop(place: EmbeddedPostgres) -> bool:
    cluster = _cluster(place)
    if not place.data_dir.exists():
        return False
    with (
        folders.disk_errors(place.data_dir, folders.DATA_SETTING),
        cluster.starting(limit_s=_LOCK_LIMIT_S),
    ):
        server = cluster.postmaster()
        if server is None:
            give_up = time.monotonic() + _RETRY_LIMIT_S
            end_leftovers(cluster.pgdata)  # nothing of a killed server stays either
            while cluster.has_processes() and time.monotonic() < give_up:
                time.sleep(0.05)
                end_leftovers(cluster.pgdata)
            return False
        for order, limit_s in ((signal.SIGINT, 60), (signal.SIGQUIT, 15)):
            with suppress(ProcessLookupError):
                os.kill(server.pid, order)
            give_up = time.monotonic() + limit_s
            while time.monotonic() < give_up:
                if cluster.postmaster() is None:
                    if not cluster.has_processes():
                        return True
                    end_leftovers(cluster.pgdata)
                time.sleep(0.05)
    raise ConfigError(f"The embedded PostgreSQL (pid {server.pid}) does not stop: {cluster.log}.")


# -- connections ------------------------------------------------------------------------------


async def _create_database(server: Postmaster, database: str) -> None:
    try:
        await (await _connect(server, user=ROLE, database=database)).close()
    except asyncpg.TooManyConnectionsError:
        return  # it is crowded, so it is there
    except (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError):
        pass
    else:
        return
    connection = await _connect(server, user=ADMIN, database="postgres")
    try:
        await connection.execute("SELECT pg_advisory_lock(hashtext('treadle-database'))")
        if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", ROLE):
            await connection.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB")
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", database):
            quoted = '"' + database.replace('"', '""') + '"'
            await connection.execute(f"CREATE DATABASE {quoted} OWNER {ROLE}")
    finally:
        await connection.close()


async def _connect(
    server: Postmaster, *, user: str, database: str
) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(
        host=str(server.socket_dir),
        port=server.port,
        user=user,
        database=database,
        timeout=_CONNECT_LIMIT_S,
    )
