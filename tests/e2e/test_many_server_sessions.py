"""Many sessions with one server over HTTP: connections are bounded, and none is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conftest import MakeSettings
from tests.fakes.mcp_site import Site, mcp_site
from tests.fakes.messages_api import MessagesApi
from tests.hosts import host
from tests.runs.prompts import finished, scripted, start
from tests.sandbox.rooms import until

SESSIONS, AT_ONCE = 200, 12
KEPT = 80
"""Both ends of the connections that the test's own client keeps, and of the database's."""
PER_RUN = 3
"""Connections that one run's server may have."""


@asynccontextmanager
async def watched(site: Site) -> AsyncIterator[list[int]]:
    """Count the site's connections all the time."""
    seen: list[int] = []

    async def look() -> None:
        while True:
            seen.append(site.connections)
            await asyncio.sleep(0.005)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.requirement("mcp:bounded")
async def test_two_hundred_sessions_share_a_server_and_leave_nothing(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    settings = make_settings(egress={"private_hosts": ["127.0.0.1"]}, engine={"max_runs": AT_ONCE})
    async with mcp_site() as site, host(settings) as service:

        async def one() -> str:
            run = await start(
                service.client,
                scripted({"tool": "mcp__s__add", "input": {"a": 1, "b": 1}}, {"text": "ok"}),
                mcp_servers={"s": {"type": "http", "url": site.url()}},
                allowed_tools=["mcp__s"],
            )
            ended = await finished(service.client, run["id"])
            return str(ended["result_subtype"])

        assert await one() == "success"  # what is opened once is open now
        await until(lambda: site.connections == 0)
        before, tasks = open_files(), len(asyncio.all_tasks())
        async with watched(site) as seen:
            ends = await asyncio.gather(*(one() for _ in range(SESSIONS)))
        assert ends == ["success"] * SESSIONS
        assert 0 < max(seen) <= PER_RUN * AT_ONCE
        await until(lambda: site.connections == 0)
        await until(lambda: not [t for t in asyncio.all_tasks() if "Connection._live" in repr(t)])
        await until(lambda: len(asyncio.all_tasks()) <= tasks + 2)
        await until(lambda: open_files() <= before + KEPT)
