"""Many runs with one MCP server over HTTP: `python -m benchmarks.mcp [--sessions 200]`.

Connections are counted by the server. When the runs are over there must be none, no task, and no more
descriptors than before; ends with 1 otherwise. Memory is shown for each round: it may not grow.
"""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.fakes.mcp_site import Site, mcp_site
from tests.mcp.desk import desk, web
from tests.sandbox.rooms import Rooms

_ROUNDS = 3
_MOST_EACH = 3
"""Connections of one run: calls one after the other, and the stream of what the server tells."""


def _rss_mb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count


async def _round(rooms: Rooms, site: Site, sessions: int) -> bool:
    before = _descriptors()
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        desks = [
            await stack.enter_async_context(desk(rooms, {"s": web(site.url())}))
            for _ in range(sessions)
        ]
        connected_s = time.monotonic() - began
        said = await asyncio.gather(*(at.said("mcp__s__add", a=1, b=1) for at in desks))
        connections, rss_mb = site.connections, _rss_mb()
    async with asyncio.timeout(10):
        while site.connections:  # noqa: ASYNC110 - uvicorn tells no event
            await asyncio.sleep(0.05)
    left = _descriptors() - before
    print(
        f"{sessions} sessions: connected in {connected_s:.1f} s, {connections} connections, "
        f"{rss_mb} MB; afterwards {site.connections} connections, {left} more descriptors"
    )
    return set(said) == {'{"sum":2}'} and connections <= _MOST_EACH * sessions and left <= 0


async def _rounds(rooms: Rooms, sessions: int) -> bool:
    async with mcp_site() as site:
        await _round(rooms, site, 1)  # imports, and what is made once
        return all([await _round(rooms, site, sessions) for _ in range(_ROUNDS)])


def _main(sessions: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        return asyncio.run(_rounds(Rooms(Path(folder)), sessions))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=200)
    logging.disable(logging.CRITICAL)
    sys.exit(0 if _main(parser.parse_args().sessions) else 1)
