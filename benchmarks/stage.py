"""Everything a measurement needs: a database, the scripted model, a workspace, both peers."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg
import orjson

from app.store.embedded import EmbeddedPostgres, ensure_running, stop
from benchmarks.client import Peer
from benchmarks.plan import FILE_BYTES, FILES, SMALL_FILE_BYTES, file_name
from benchmarks.processes import Server, end, free_port, running_server

_ROOT = Path(__file__).parents[1]
_KEY = "benchmark-key-of-no-value-000000000000"
_WORKSPACE_UID = 54321
"""Owns the workspace when we are root: agents never work as root."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The parts that both peers share."""

    folder: Path
    workspace: Path
    floor_dsn: str
    service_dsn: str
    model_url: str
    http: aiohttp.ClientSession

    async def log(self) -> dict[str, list[list[int]]]:
        """Times of all model requests since the last look, by plan."""
        times: dict[str, list[list[int]]] = orjson.loads(await self._model("/log"))
        return times

    async def arrived(self, plan_id: str, number: int) -> None:
        """Wait until the plan's `number`-th request is at the model."""
        await self._model(f"/arrived/{plan_id}/{number}")

    async def release(self) -> None:
        await self._model("/release")

    async def _model(self, path: str) -> bytes:
        async with self.http.get(self.model_url + path) as answer:
            answer.raise_for_status()
            return await answer.read()

    @asynccontextmanager
    async def floor(self) -> AsyncIterator[tuple[Peer, Server]]:
        port = free_port()
        argv = ["-m", "benchmarks.floor", str(port), self.floor_dsn, self.model_url]
        log = self.folder / "floor.log"
        async with running_server([sys.executable, *argv], port=port, log=log) as server:
            yield Peer("floor", server.url, "none", str(self.workspace)), server

    @asynccontextmanager
    async def service(
        self,
        name: str = "service",
        *,
        role: str = "serve",
        settings: Mapping[str, str] | None = None,
    ) -> AsyncIterator[tuple[Peer, Server]]:
        """Run one host; `settings` are named without `TREADLE_`."""
        port = free_port()
        argv = ["-m", "app", role, "--host", "127.0.0.1", "--port", str(port)]
        env = {
            "DATABASE_URL": self.service_dsn,
            "ANTHROPIC_BASE_URL": self.model_url,
            "ANTHROPIC_API_KEY": "x",
            "TREADLE_DATA_DIR": str(self.folder / "data"),
            "TREADLE_AUTH__BOOTSTRAP_KEY": _KEY,
            "TREADLE_WORKSPACE__ALLOWED_ROOTS": f'["{self.workspace}"]',
            "TREADLE_LIMITS__CEILING_MAX_BUDGET_USD": "1000",
            **{f"TREADLE_{key}": value for key, value in (settings or {}).items()},
        }
        log = self.folder / f"{name}.log"
        async with running_server([sys.executable, *argv], port=port, log=log, env=env) as server:
            yield Peer("ours", server.url, _KEY, str(self.workspace)), server


@asynccontextmanager
async def set_stage() -> AsyncIterator[Stage]:
    """`DATABASE_URL` names a server where we may create databases; unset, an embedded one runs."""
    folder = _public_folder()
    try:
        workspace = _make_workspace(folder / "files")
        async with (
            _databases(folder) as (floor_dsn, service_dsn),
            _scripted_model() as model_url,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        ):
            yield Stage(folder, workspace, floor_dsn, service_dsn, model_url, http)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _public_folder() -> Path:
    """The service drops to other users, and so may Postgres: they must get through."""
    folder = Path(tempfile.mkdtemp(prefix="tb-"))
    folder.chmod(0o755)
    return folder


def _make_workspace(folder: Path) -> Path:
    folder.mkdir()
    for number in range(FILES):
        line = f"{number:03} a line of plain words that a Read gives back\n"
        text = (line * (FILE_BYTES // len(line) + 1))[:FILE_BYTES]
        (folder / file_name(number)).write_text(text)
        (folder / file_name(number, is_small=True)).write_text(text[:SMALL_FILE_BYTES])
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, _WORKSPACE_UID, _WORKSPACE_UID)
    return folder


@asynccontextmanager
async def _databases(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Two fresh databases on one server: the floor's and the service's."""
    url = os.environ.get("DATABASE_URL")
    if url is None:
        place = EmbeddedPostgres(folder / "pg", folder / "run", database="bench_floor")
        other = EmbeddedPostgres(folder / "pg", folder / "run", database="bench_treadle")
        try:
            yield await ensure_running(place), await ensure_running(other)
        finally:
            await stop(place)
        return
    names = [f"bench_{part}_{os.getpid()}" for part in ("floor", "treadle")]
    admin = await asyncpg.connect(url)
    try:
        for name in names:
            await admin.execute(f"CREATE DATABASE {name}")
        floor_dsn, service_dsn = (urlunsplit(urlsplit(url)._replace(path=f"/{n}")) for n in names)
        yield floor_dsn, service_dsn
    finally:
        for name in names:
            await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await admin.close()


@asynccontextmanager
async def _scripted_model() -> AsyncIterator[str]:
    argv = [sys.executable, "-m", "benchmarks.scripted_model", "0"]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, cwd=_ROOT)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        await end(process)
