"""One embedded cluster on disk: how it is made and how its server is launched.

Below the data directory:

    pgdata/        the cluster; made as `pgdata.new` and renamed, so a half-made one is never used
    state.json     its major version, and the uid that owns it if root gave it away
    start.lock     held by whoever starts or stops the server, one at a time
    server.lock    held by the server's processes (`postgres_processes.py`)
    server.log     their output; set aside at a start once it has grown
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from app.errors import ConfigError
from app.store import postgres_folders as folders
from app.store.postgres_binaries import Binaries, choose, installed
from app.store.postgres_identity import Account, Identity, check_reachable, give
from app.store.postgres_processes import (
    Postmaster,
    end_leftovers,
    find_postmaster,
    is_held,
    opened,
    server_lock,
    try_lock,
    works_in,
)

PORT = 5432
"""Only a part of the socket's name: the server listens on no network address."""
ADMIN = "postgres"
"""The superuser's name; the service itself is an ordinary role of the database."""
_INITDB_LIMIT_S = 180
_START_LIMIT_S = 300
"""Long, since a start may have to replay the log of a crash."""
_LOG_LIMIT_BYTES = 8 * 2**20
_CONFIG = """\
# Written by the service at each start of the server: changes here are lost.
listen_addresses = ''
port = {port}
unix_socket_directories = '{socket_dir}'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 128MB
max_wal_size = 512MB
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
log_checkpoints = off
log_min_error_statement = panic  # statements may carry what users wrote
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    data_dir: Path
    socket_dir: Path

    @property
    def pgdata(self) -> Path:
        return self.data_dir / "pgdata"

    @property
    def log(self) -> Path:
        return self.data_dir / "server.log"

    @property
    def socket(self) -> Path:
        return self.socket_dir / f".s.PGSQL.{PORT}"

    @property
    def major(self) -> int | None:
        """The major version of the data; None before the first start."""
        try:
            text = (self.pgdata / "PG_VERSION").read_text()
        except FileNotFoundError:
            return None
        return int(text.split(".")[0])

    def binaries(self) -> Binaries:
        return choose(installed(), data_major=self.major, data_dir=self.data_dir)

    def postmaster(self) -> Postmaster | None:
        return find_postmaster(self.pgdata)

    @contextmanager
    def starting(self, *, limit_s: float) -> Iterator[None]:
        """Hold the right to start or stop the server; blocks while another process holds it."""
        give_up = time.monotonic() + limit_s
        with opened(self.data_dir / "start.lock") as fd:
            while not try_lock(fd):
                if time.monotonic() > give_up:
                    raise ConfigError(
                        f"Another process has been starting the database in {self.data_dir} for"
                        f" {limit_s:.0f} s. See {self.log}; end that process, or set DATABASE_URL."
                    )
                time.sleep(0.05)
            yield

    def has_processes(self) -> bool:
        """Whether any process of the server lives, also without its postmaster."""
        return is_held(server_lock(self.pgdata))

    def launch(self, binaries: Binaries, identity: Identity) -> str | None:
        """Make the cluster if there is none, then start the server. Call inside `starting`.

        Returns None when it is ready, and a reason when it may work a little later (processes of
        a killed server are still leaving).

        Raises:
            ConfigError: it does not start, and waiting does not help.
        """
        with folders.disk_errors(self.data_dir, folders.DATA_SETTING):
            uid = identity.server.uid
            if uid is not None:
                self._open_for(uid)
                binaries = binaries.copied_below(self.data_dir)
            if self.major is None:
                self._make(binaries, identity)
            folders.keep(self.data_dir, major=binaries.major, server_uid=uid)
            with opened(server_lock(self.pgdata)) as lock:
                if not try_lock(lock):
                    return "processes of an earlier server are still ending"
                self._remove_stale_locks()
                self._write_config(uid)
                return self._start(binaries, identity.server, lock)

    def _open_for(self, uid: int) -> None:
        """The server is another user than we are: it must reach its files, and own them."""
        check_reachable(self.data_dir, uid, setting=folders.DATA_SETTING)
        check_reachable(self.socket_dir, uid, setting=folders.RUNTIME_SETTING)
        self.data_dir.chmod(0o711)
        give(self.socket_dir, uid)
        if self.pgdata.exists() and self.pgdata.stat().st_uid != uid:
            give(self.pgdata, uid)

    def _make(self, binaries: Binaries, identity: Identity) -> None:
        if self.pgdata.exists() and any(self.pgdata.iterdir()):
            raise ConfigError(
                f"{self.pgdata} holds files but no PostgreSQL cluster. Move it away, or choose"
                f" another data directory ({folders.DATA_SETTING})."
            )
        folders.check_room(self.data_dir)
        new = self.data_dir / "pgdata.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if identity.initdb.uid is not None:
            give(new, identity.initdb.uid)
        initdb = [binaries.program("initdb"), "-D", str(new), "-U", ADMIN]
        options = ["--no-sync", "--auth-local=trust", "--auth-host=reject", *_locale(binaries)]
        for argv in ([*initdb, *options], [*initdb, "--sync-only"]):
            made = identity.initdb.run(argv, output=subprocess.PIPE, timeout_s=_INITDB_LIMIT_S)
            if made.returncode != 0:
                shutil.rmtree(new, ignore_errors=True)
                if "No space left on device" in made.stdout:
                    raise folders.disk_full(self.data_dir)
                raise ConfigError(f"initdb failed in {self.data_dir}:\n{made.stdout.strip()}")
        if identity.server.uid is not None:
            give(new, identity.server.uid)
        new.rename(self.pgdata)

    def _remove_stale_locks(self) -> None:
        """Remove lock files that name a pid which is no server of ours (any more).

        PostgreSQL believes such a file as long as any process has that pid. Call with
        `server.lock` held, so that no server of these data lives.
        """
        if sys.platform != "linux":
            return  # only here can we tell whose process a pid is
        end_leftovers(self.pgdata)  # of a deleted folder: they would take the socket with them
        if self.postmaster() is None:
            (self.pgdata / "postmaster.pid").unlink(missing_ok=True)
        holder = self._holder_of_socket()
        if holder and holder[1] == str(self.pgdata) and not works_in(holder[0], self.pgdata):
            self._socket_lock.unlink(missing_ok=True)

    @property
    def _socket_lock(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.lock")

    def _holder_of_socket(self) -> tuple[int, str] | None:
        """The pid and the data of the server that has, or had, the socket."""
        try:
            pid, folder = self._socket_lock.read_text().splitlines()[:2]
            return int(pid), folder
        except (FileNotFoundError, ValueError):
            return None

    def _write_config(self, uid: int | None) -> None:
        quoted = '"' + str(self.socket_dir).replace('"', '""').replace("'", "''") + '"'
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        fd = os.open(self.pgdata / "postgresql.conf", flags, 0o600)
        with os.fdopen(fd, "w") as config:
            if uid is not None:
                os.fchown(fd, uid, uid)
            config.write(_CONFIG.format(port=PORT, socket_dir=quoted))

    def _start(self, binaries: Binaries, account: Account, lock: int) -> str | None:
        self._set_log_aside()
        fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(fd, "ab") as log:
            begin = log.tell()
            # pg_ctl makes the postmaster a session of its own, and no child of ours: it lives on
            # when we end. The folder goes by environment since pg_ctl hands its arguments to sh.
            started = account.run(
                [binaries.program("pg_ctl"), "start", "-w", "-t", str(_START_LIMIT_S)],
                output=log,
                pass_fds=(lock,),
                environment={"PGDATA": str(self.pgdata)},
                timeout_s=_START_LIMIT_S + 10,
            )
        if started.returncode == 0:
            return None
        with self.log.open("rb") as log:
            log.seek(begin)
            return self._why(log.read(_LOG_LIMIT_BYTES).decode(errors="replace").strip())

    def _why(self, said: str) -> str:
        """A reason to try again, or the error that ends it."""
        if "No space left on device" in said or shutil.disk_usage(self.data_dir).free < 2**20:
            raise folders.disk_full(self.data_dir)
        holder = self._holder_of_socket()
        if str(self._socket_lock) in said and holder and holder[1] != str(self.pgdata):
            raise ConfigError(
                f"{self.socket_dir} already holds the socket of another database, {holder[1]} (pid"
                f" {holder[0]}). Choose another folder ({folders.RUNTIME_SETTING})."
            )
        if "already exists" in said or "pre-existing shared memory" in said:
            return said
        tail = "\n".join(said.splitlines()[-10:])
        raise ConfigError(f"The embedded PostgreSQL did not start (see {self.log}):\n{tail}")

    def _set_log_aside(self) -> None:
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT_BYTES:
                self.log.replace(self.log.with_suffix(".log.old"))


def _locale(binaries: Binaries) -> list[str]:
    """The same order and case rules on every machine, also where the system has no locales."""
    if binaries.major >= 17:
        provider = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        return ["--encoding=UTF8", "--locale=C", *provider]
    return ["--encoding=UTF8", "--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"]
