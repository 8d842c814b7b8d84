import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.settings.settings import Settings
from tests.conftest import MakeSettings
from tests.fakes.hook_server import HookServer
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, HostProcess, environment, host, host_process
from tests.traces.hook_script import hook_script_of
from tests.traces.http_driver import HttpDriver, OneHost
from tests.traces.scenario import max_retries_of, read_trace
from tests.traces.stand_ins import StandIns


@pytest.fixture
def workspaces(scratch: Path) -> Path:
    """A folder for workspaces, which the sandbox's user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir=scratch))
    folder.chmod(0o755)
    return folder


NOBODY = "http://127.0.0.1:1"
"""Where no model listens."""


@pytest.fixture
async def driver(
    name: str,
    make_settings: MakeSettings,
    messages_api: MessagesApi,
    workspaces: Path,
    tmp_path: Path,
) -> AsyncIterator[HttpDriver]:
    """A host with the stand-in tools, as patient with its model as the recorded one."""
    model: dict[str, Any] = {
        "max_retries": max_retries_of(read_trace(name)),
        "retry_first_delay_s": 0.01,
        "retry_longest_asked_delay_s": 0.02,
    }
    if name == "conn_refused":
        model["base_url"] = NOBODY
    script = hook_script_of(read_trace(name))
    hooks: dict[str, Any] = {"secret": "h" * 32}
    if script.settings is not None:
        hooks["file"] = tmp_path / "settings.json"
        hooks["file"].write_text(script.settings)
    settings = make_settings(
        workspace={"allowed_roots": [workspaces]},
        hooks=hooks,
        egress={"private_hosts": ["127.0.0.1"]},
        model=model,
        limits={"default_max_budget_usd": 50},  # recordings have none unless they say so
        engine={"lease_s": 60.0},  # a slow machine is no lost host
    )
    stand_ins = StandIns()
    async with (
        HookServer() as server,
        host(settings, extra_tools=stand_ins.tools()) as running,
    ):
        serving = OneHost(running.client)
        owner = owner_of(settings)
        npm = settings.data_path / "programs" / "bin" / "npm"
        npm.write_text('#!/bin/sh\necho "fake-npm $*"\n')  # as the recorded machine had it
        npm.chmod(0o755)
        has_bin = "nbin" in json.dumps(read_trace(name))  # as `ls` tells
        yield HttpDriver(
            serving, messages_api, stand_ins, server, workspaces, owner, "bin" if has_bin else None
        )


@dataclass(slots=True)
class Replaceable:
    """A host in a process of its own, and the one that takes its place when it is killed."""

    settings: Settings
    stack: AsyncExitStack
    log: Path
    _process: HostProcess | None = None
    _successor: Host | None = field(default=None)

    async def begin(self) -> None:
        serving = host_process(environment(self.settings), self.log)
        self._process = await self.stack.enter_async_context(serving)

    @property
    def client(self) -> httpx.AsyncClient:
        running = self._successor or self._process
        assert running is not None
        return running.client

    async def crash(self) -> None:
        assert self._process is not None
        await self._process.kill()
        self._successor = await self.stack.enter_async_context(host(self.settings))


@pytest.fixture
async def mortal_driver(
    make_settings: MakeSettings, messages_api: MessagesApi, workspaces: Path, tmp_path: Path
) -> AsyncIterator[HttpDriver]:
    """A host that can be killed, without the stand-in tools."""
    settings = make_settings(
        workspace={"allowed_roots": [workspaces]}, engine={"lease_s": 1.5, "heartbeat_s": 0.5}
    )
    async with AsyncExitStack() as stack:
        serving = Replaceable(settings, stack, tmp_path / "a.log")
        await serving.begin()
        owner = owner_of(settings)
        yield HttpDriver(serving, messages_api, StandIns(), HookServer(), workspaces, owner)


def owner_of(settings: Settings) -> int | None:
    """Give who must own workspaces: root's own are refused."""
    return settings.workspace.sandbox_uid if os.geteuid() == 0 else None
