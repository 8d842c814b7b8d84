"""Servers that are programs: in the sandbox, with their own environment, gone with the run."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys

import pytest

from app.domain.mcp_options import StdioServer
from app.mcp.servers import Servers
from tests.mcp.desk import Desk, desk, plain, web
from tests.sandbox.rooms import Rooms, processes, until


def states(opened: Servers) -> list[tuple[str, str, str | None]]:
    return [(status.name, status.state, status.error) for status in opened.statuses()]


def state(opened: Servers, name: str) -> tuple[str, str | None]:
    return next((s, error) for n, s, error in states(opened) if n == name)


@pytest.mark.requirement("mcp:stdio")
async def test_a_program_runs_in_the_sandbox_with_the_declared_environment_only(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATORS_SECRET", "s3cret")
    server = plain(env={"TOKEN": "it's $HOME\n"})
    async with desk(rooms, {"p": server}) as at:
        seen = json.loads(await at.said("mcp__p__env"))
        assert (seen["TOKEN"], seen["HOME"]) == ("it's $HOME\n", "/home/agent")
        assert "OPERATORS_SECRET" not in seen
        assert await at.said("mcp__p__echo", n="5", deep=[{"a": None}]) == json.dumps(
            {"n": 5, "deep": [{"a": None}]}
        )
        await at.said("mcp__p__touch")
        assert at.read("/workspace/touched") == b"x"
        assert processes("mcp_plain.py")
    await until(lambda: not processes("mcp_plain.py"))


@pytest.mark.requirement("mcp:failures")
async def test_whatever_a_server_does_is_a_result_and_the_next_call_works(rooms: Rooms) -> None:
    server = plain(timeout_seconds=1)
    async with desk(rooms, {"p": server}, max_message_bytes=2_000_000) as at:
        failed = await at.call("mcp__p__fail")
        assert (failed.content, failed.is_error) == ("it went wrong", True)
        assert "malformed answer" in await at.said("mcp__p__weird")
        assert "no answer within 1 s for the tool hang" in await at.said("mcp__p__hang")
        assert await at.said("mcp__p__echo") == "{}"  # the server stays connected
        long = await at.call("mcp__p__huge", n=60_000)
        assert "<persisted-output>" in str(long.content)
        assert (await at.call("mcp__p__huge", n=49_000)).stored is None
        died = await at.call("mcp__p__die")
        assert died.is_error
        assert "exit code 7: I am done for" in str(died.content)
        assert states(at.servers)[0][1] == "failed"
        assert await at.said("mcp__p__echo") == "{}"
        assert "larger than is taken" in await at.said("mcp__p__huge", n=3_000_000)
        assert await at.said("mcp__p__noise", n=500) == "done"
        assert states(at.servers) == [("p", "connected", None)]


@pytest.mark.requirement("mcp:status")
async def test_servers_that_do_not_come_up_are_told_and_hold_nobody_up(rooms: Rooms) -> None:
    servers = {
        "gone": plain("--list", "no JSON"),
        "absent": plain().model_copy(update={"command": "no-such-program"}),
        "silent": plain("--slow", "60"),
        "good": plain(),
    }
    async with desk(rooms, servers, start_s=1.5, wait_s=1.0) as at:
        told = {name: (state, error or "") for name, state, error in states(at.servers)}
        assert told["good"] == ("connected", "")
        assert told["silent"][0] == "pending"
        assert "exit code 1" in told["gone"][1]
        assert "exit code 127" in told["absent"][1]
        assert await at.said("mcp__good__echo") == "{}"
        assert "No such tool" in await at.said("mcp__silent__echo")
        await until(lambda: state(at.servers, "silent")[0] == "failed")
        assert state(at.servers, "silent")[1] == "it was not ready within 1.5 s"
        assert not at.servers.readiness().missing
    await until(lambda: not processes("mcp_plain.py"))


@pytest.mark.requirement("mcp:pinned")
async def test_a_list_that_changes_while_the_run_goes_on_takes_only_away(rooms: Rooms) -> None:
    async with desk(rooms, {"p": plain()}) as at:
        first = at.servers.readiness()
        (told,) = at.servers.news()
        assert [s["status"] for s in told.data["servers"]] == ["connected"]
        assert at.servers.news() == ()
        await at.said("mcp__p__grow")
        await until(lambda: at.toolbox.spec("mcp__p__env") is None)
        assert at.toolbox.spec("mcp__p__grown") is None
        assert "is withheld: it is not as it was" in await at.said("mcp__p__env")
        assert await at.said("mcp__p__echo") == "{}"
        (told,) = at.servers.news()
        (status,) = told.data["servers"]
        assert {tool["name"] for tool in status["withheld"]} == {"env", "grown"}
    later = plain(accept_tools=status["tools_hash"])
    async with desk(rooms, {"p": later}, pins=dict(first.pins)) as at:
        # A new process is as the first one was: the accepted list is another.
        assert at.toolbox.spec("mcp__p__env") is not None
        assert at.servers.readiness().pins == {}


@pytest.mark.requirement("mcp:control")
async def test_a_server_is_switched_off_and_on_while_the_run_goes_on(rooms: Rooms) -> None:
    async with desk(rooms, {"p": plain(), "q": plain(enabled=False)}) as at:
        assert [s for _, s, _ in states(at.servers)] == ["connected", "disabled"]
        assert "No such tool" in await at.said("mcp__q__echo")
        at.servers.adopt({"p": plain(enabled=False), "q": plain()})
        await until(lambda: [s for _, s, _ in states(at.servers)] == ["disabled", "connected"])
        assert await at.said("mcp__q__echo") == "{}"
        assert "No such tool" in await at.said("mcp__p__echo")
        assert not await at.servers.reconnect("p")
        at.servers.adopt({"p": plain(), "q": plain()})
        await until(lambda: state(at.servers, "p")[0] == "connected")
        assert await at.said("mcp__p__echo") == "{}"


@pytest.mark.requirement("mcp:real")
async def test_the_time_server_tells_the_time(rooms: Rooms) -> None:
    # Outside the sandbox, which need not have a Python that the installed packages are made for.
    server = StdioServer(
        command=sys.executable, args=["-m", "mcp_server_time", "--local-timezone", "Asia/Tokyo"]
    )
    async with desk(rooms, {"time": server}, is_sandboxed=False) as at:
        told = await at.said("mcp__time__get_current_time", timezone="Europe/Rome")
        assert json.loads(told)["timezone"] == "Europe/Rome"
        wrong = await at.call("mcp__time__get_current_time", timezone="Nowhere/Else")
        assert wrong.is_error
        assert "Nowhere/Else" in str(wrong.content)
        (status,) = at.servers.statuses()
        assert status.tools == ("mcp__time__get_current_time", "mcp__time__convert_time")


EVERYTHING = shutil.which("mcp-server-everything")
needs_everything = pytest.mark.skipif(
    EVERYTHING is None,
    reason="mcp-server-everything is not installed: "
    "npm install -g @modelcontextprotocol/server-everything (needs Node)",
)


async def uses_everything(at: Desk) -> None:
    assert "hello" in await at.said("mcp__all__echo", message="hello")
    assert "5" in await at.said("mcp__all__get-sum", a=2, b=3)
    (status,) = at.servers.statuses()
    assert status.resources > 0
    assert status.prompts


@pytest.mark.requirement("mcp:real")
@needs_everything
async def test_the_server_that_has_everything_over_its_standard_input(rooms: Rooms) -> None:
    server = StdioServer(command=str(EVERYTHING), args=["stdio"])
    async with desk(rooms, {"all": server}, is_sandboxed=False) as at:
        await uses_everything(at)


@pytest.mark.requirement("mcp:real")
@needs_everything
@pytest.mark.parametrize(("kind", "path"), [("http", "mcp"), ("sse", "sse")])
async def test_the_server_that_has_everything_over_http(rooms: Rooms, kind: str, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    transport = "streamableHttp" if kind == "http" else "sse"
    running = await asyncio.create_subprocess_exec(
        *(str(EVERYTHING), transport),
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until(lambda: is_open(port))
        server = web(f"http://127.0.0.1:{port}/{path}", kind)
        async with desk(rooms, {"all": server}) as at:
            await uses_everything(at)
    finally:
        running.kill()
        await running.wait()


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
