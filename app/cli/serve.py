"""`treadle serve`, `api`, `worker`: the programs that run a host."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from types import FrameType
from typing import Literal

import uvicorn
import uvloop
from anyio.lowlevel import checkpoint
from fastapi import FastAPI

from app.errors import ConfigError
from app.main import create_app
from app.runs.service import Service
from app.settings.loading import unknown_variables
from app.settings.settings import Settings
from app.telemetry.logging import set_up_logging
from app.wiring.service import Role, open_service

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """uvicorn, with our drain in front of its stop.

    uvicorn waits for open streams before it stops the application, so streams are ended and runs
    let go first. A second signal stops at once: leases then run out by themselves.
    """

    def __init__(self, config: uvicorn.Config, service: Callable[[], Service | None]) -> None:
        super().__init__(config)
        self._service = service
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then set what was loaded aside: the collector need not walk it again and again."""
        await super().startup(sockets)
        await checkpoint()  # loads anyio's half for asyncio, which the first stream would wait for
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        service = self._service()
        if self._draining is not None or service is None or not self.started:
            super().handle_exit(sig, frame)
            return
        log.info("Draining: no new work, streams end, runs are let go", extra={"action": "drain"})
        self._draining = asyncio.get_running_loop().create_task(self._drain(service))

    async def _drain(self, service: Service) -> None:
        with contextlib.suppress(Exception):
            await service.drain()
        self.should_exit = True


def run_host(settings: Settings, role: Role, host: str, port: int) -> None:
    """Serve until a signal comes. Exits with status 2 when it cannot start."""
    _begin_log(settings)
    sock = _listen(host, port)
    if role != "api":
        _check_walls(settings, sock)
    app = create_app(settings, role)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",  # ours is opened around the server: uvicorn would bury its error
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=64 * 1024,
        server_header=False,
    )
    server = Server(config, lambda: getattr(app.state, "service", None))
    uvloop.run(_serve(app, server, sock))


async def _serve(app: FastAPI, server: Server, sock: socket.socket) -> None:
    with _plain_config_error():
        async with app.router.lifespan_context(app):
            host, port = sock.getsockname()[:2]
            log.info("Listening on http://%s:%s", host, port, extra={"action": "listening"})
            await server.serve(sockets=[sock])


def run_worker(settings: Settings) -> None:
    """Drive runs without serving HTTP, until a signal comes."""
    _begin_log(settings)
    uvloop.run(_work(settings))


def _begin_log(settings: Settings) -> None:
    usual: Literal["json", "text"] = "text" if sys.stderr.isatty() else "json"
    set_up_logging(settings.log.level, settings.log.format or usual)
    for name, meant in unknown_variables():
        log.warning(
            "%s is no setting, so it sets nothing%s. .env.example lists them all.",
            name,
            f" (is {meant} meant?)" if meant else "",
            extra={"action": "unknown_setting"},
        )


async def _work(settings: Settings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sig, stopped.set)
    with _plain_config_error():
        async with open_service(settings, "worker") as service:
            log.info("Working", extra={"action": "working"})
            await stopped.wait()
            await service.drain()


@contextlib.contextmanager
def _plain_config_error() -> Iterator[None]:
    """Take a `ConfigError` out of the groups that a start's task groups put it into."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ConfigError):
            raise error from None
        raise


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048, reuse_port=False)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host}:{port} ({_reason(error)}). Choose another with --port, or "
            "stop what uses it."
        ) from None


def _check_walls(settings: Settings, sock: socket.socket) -> None:
    """Keep a host whose commands run unprotected to itself. Raises `ConfigError`."""
    address = str(sock.getsockname()[0])
    if settings.sandbox == "bubblewrap" or settings.unprotected_beyond_loopback:
        return
    if not ip_address(address).is_loopback:
        raise ConfigError(
            f"TREADLE_SANDBOX=none runs commands unprotected, and {address} is open to others. Listen on "
            "127.0.0.1, or leave the sandbox on. TREADLE_UNPROTECTED_BEYOND_LOOPBACK=true says that "
            "something else keeps others out."
        )


def _reason(error: OSError) -> str:
    # asyncio and socket add the address to the system's words, where it stands already.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)
