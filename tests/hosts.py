"""Hosts for tests: in this process for most, as processes of their own where one is killed."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from app.main import create_app
from app.runs.service import Service
from app.settings.settings import Settings
from app.tools.tool import Tool
from app.wiring.service import Role
from tests.forked import ForkedProcess

KEY = "test-key-" + "k" * 32
TRUSTS_NOTHING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Hosts of tests speak plain HTTP: reading certificates for each client would take longest."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host that serves."""

    base_url: str
    client: httpx.AsyncClient
    """Speaks with a valid key."""
    service: Service
    server: uvicorn.Server


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def client_for(base_url: str) -> httpx.AsyncClient:
    """Give a client with a valid key."""
    return httpx.AsyncClient(
        base_url=base_url,
        headers={"x-api-key": KEY},
        timeout=30,
        trust_env=False,
        verify=TRUSTS_NOTHING,
    )


@asynccontextmanager
async def host(
    settings: Settings, role: Role = "serve", *, extra_tools: Sequence[Tool[Any]] = ()
) -> AsyncIterator[Host]:
    """Serve in this process, over real HTTP, until the block ends."""
    app = create_app(settings, role, extra_tools=extra_tools)
    sock = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=3,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event
        await asyncio.sleep(0.01)
    if serving.done():
        serving.result()
        raise RuntimeError("the host did not start")
    base_url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with client_for(base_url) as client:
        try:
            yield Host(base_url, client, app.state.service, server)
        finally:
            await app.state.service.drain()
            server.should_exit = True
            await serving


@dataclass(slots=True)
class HostProcess:
    """A host in a process of its own."""

    process: ForkedProcess
    base_url: str
    client: httpx.AsyncClient
    log: Path
    _is_stopped: bool = field(default=False)

    async def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        """Ask it to stop; give its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 30)


@asynccontextmanager
async def host_process(environment: Mapping[str, str], log: Path) -> AsyncIterator[HostProcess]:
    """Run `treadle serve` until the block ends."""
    with log.open("ab") as sink:
        came_before = sink.tell()
    process = ForkedProcess(
        ["serve", "--port", "0"], {"PATH": os.environ["PATH"], **environment}, log
    )
    try:
        base_url = await _address(process, log, came_before)
        async with client_for(base_url) as client:
            await _ready(client)
            yield HostProcess(process, base_url, client, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _address(process: ForkedProcess, log: Path, came_before: int) -> str:
    """Wait until a process listens; give its URL."""
    async with asyncio.timeout(120):
        while True:
            said = (await asyncio.to_thread(log.read_bytes))[came_before:].decode()
            if found := re.search(r"Listening on (http://[0-9.]+:[0-9]+)", said):
                return found[1]
            if process.returncode is not None:
                raise RuntimeError(f"the host ended: {said[-3000:]}")
            await asyncio.sleep(0.05)


async def _ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.05)


def environment(settings: Settings) -> dict[str, str]:
    """Give the environment in which a process has these settings."""
    values: dict[str, str] = {}
    for group, value in settings.model_dump(mode="json", exclude_unset=True).items():
        if isinstance(value, dict):
            for name in value:
                given = getattr(getattr(settings, group), name)
                values[f"TREADLE_{group}__{name}".upper()] = _text(given)
        else:
            values[f"TREADLE_{group}".upper()] = _text(getattr(settings, group))
    return values


def _text(value: Any) -> str:
    if hasattr(value, "get_secret_value"):
        return str(value.get_secret_value())
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=str)
    return str(value)
