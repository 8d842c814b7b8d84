"""Servers that mean harm, before any call: what they list, and what they pour out."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.domain.mcp import ServerStatus
from app.domain.mcp_options import StdioServer
from app.mcp.listing import MAX_TOOLS
from tests.fakes import mcp_hostile
from tests.mcp.desk import Desk, desk, plain
from tests.sandbox.rooms import Rooms, processes, until

SCRIPT = Path(mcp_hostile.__file__).read_text()
MARK = "An MCP server that means harm"


def hostile(*args: str, **given: Any) -> StdioServer:
    return StdioServer(command="python3", args=["-c", SCRIPT, *args], **given)


def status(at: Desk) -> ServerStatus:
    return next(each for each in at.servers.statuses() if each.name == "h")


def told_bytes(at: Desk) -> int:
    """The size of the event that tells how servers stand."""
    return sum(len(orjson.dumps(event.data)) for event in at.servers.news())


@pytest.mark.requirement("mcp:hostile")
@pytest.mark.parametrize(
    ("how", "offered", "withheld"),
    [
        (
            "names",
            {"Bash", "a_b", "client", "ToolSearch", "mcp__other__tool", "___x", "ok"},
            {"a b", "a.b", "a_b", "", " ", "\n"},
        ),
        ("many", {"t0", f"t{MAX_TOOLS - 1}"}, {f"t{MAX_TOOLS}"}),
        ("wide", {"ok", "t"}, set()),
        ("schemas", {"ok", "bad0", "bad2", "bad3", "bad4"}, {"bad1", "bad6"}),
        ("wrong", {"ok"}, set()),
        ("endless", {"tNone"}, set()),
    ],
)
async def test_a_list_offers_what_it_has_of_use_and_is_bounded(
    rooms: Rooms, how: str, offered: set[str], withheld: set[str]
) -> None:
    async with desk(rooms, {"h": hostile("--list", how), "p": plain()}, wait_s=20) as at:
        told = status(at)
        assert told.state == "connected", told.error
        assert len(told.tools) <= MAX_TOOLS
        assert {f"mcp__h__{name}" for name in offered} <= {*told.tools}
        assert withheld <= told.withheld.keys()
        assert told_bytes(at) < 200_000
        assert await at.said("mcp__p__echo") == "{}"  # others are unaffected


@pytest.mark.requirement("mcp:hostile")
async def test_a_list_that_is_none_fails_its_server_alone(rooms: Rooms) -> None:
    async with desk(rooms, {"h": hostile("--list", "no_list"), "p": plain()}) as at:
        assert status(at).state == "failed"
        assert "validation error" in str(status(at).error)
        assert await at.said("mcp__p__echo") == "{}"


@pytest.mark.requirement("mcp:hostile")
async def test_floods_of_errors_and_lines_without_end_are_nobody_elses_trouble(
    rooms: Rooms,
) -> None:
    servers = {"h": hostile("--flood"), "line": hostile("--endless-line"), "p": plain()}
    async with desk(rooms, servers, max_message_bytes=3_000_000, start_s=20, wait_s=20) as at:
        line = next(each for each in at.servers.statuses() if each.name == "line")
        assert (line.state, line.error) == (
            "failed",
            "it sent a message that is larger than is taken",
        )
        assert await at.said("mcp__h__fine") == "fine"
        assert await at.said("mcp__p__echo") == "{}"
    await until(lambda: not processes(MARK))


@pytest.mark.requirement("mcp:hostile")
async def test_a_storm_of_changes_is_listed_now_and_then(rooms: Rooms) -> None:
    async with desk(rooms, {"h": hostile()}) as at:
        before = at.servers.generation
        for _ in range(3):
            assert await at.said("mcp__h__storm") == "fine"
        assert at.servers.generation - before <= 5


@pytest.mark.requirement("mcp:hostile")
async def test_who_asks_for_ever_and_reads_no_answer_is_not_listened_to(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: the bound stays real, half a minute is only long for a test.
    monkeypatch.setattr("app.mcp.screen._UNTAKEN_S", 3)
    async with desk(rooms, {"h": hostile()}, call_s=60) as at:
        before, most = len(asyncio.all_tasks()), 0
        call = asyncio.create_task(at.said("mcp__h__deaf"))
        while not call.done():
            await asyncio.sleep(0.05)
            most = max(most, len(asyncio.all_tasks()) - before)
        assert "lost during the call (it does not read what it is answered)" in await call
        assert most < 100  # each answer that waits is a task
        assert await at.said("mcp__h__fine") == "fine"
