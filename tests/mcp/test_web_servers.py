"""Servers over HTTP: results of each kind, the guard, credentials, connections."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Literal

import orjson
import pytest

from app.domain.tools import ToolResult
from app.mcp.variables import HeaderVariables
from app.sandbox.guarded_http import Guard
from tests.fakes.mcp_older_site import OlderSite
from tests.fakes.mcp_site import mcp_site, png
from tests.fakes.site import Site as PlainSite
from tests.mcp.desk import Desk, desk, web
from tests.sandbox.rooms import Rooms, until

Kind = Literal["http", "sse"]


def status(at: Desk) -> tuple[str, str | None]:
    (told,) = at.servers.statuses()
    return told.state, told.error


def blocks(result: ToolResult) -> list[dict[str, Any]]:
    assert isinstance(result.content, list)
    return result.content


@pytest.mark.requirement("mcp:results")
async def test_each_kind_of_content_reaches_the_model(rooms: Rooms) -> None:
    async with mcp_site() as site, desk(rooms, {"s": web(site.url())}) as at:
        added = await at.call("mcp__s__add", a=2, b=3)
        assert added.content == '{"sum":5}'
        assert added.structured == {"content": '{"sum":5}', "structuredContent": {"sum": 5}}
        image, where = blocks(await at.call("mcp__s__picture"))
        assert (image["type"], image["source"]["media_type"]) == ("image", "image/png")
        assert at.read(where["text"].split()[-1].rstrip("]")) == png()
        assert "is not shown: it is not an image of a known kind" in await at.said(
            "mcp__s__bad_picture"
        )
        parts = await at.call("mcp__s__parts")
        first, text, blob, link = (block["text"] for block in blocks(parts))
        assert (first, text) == ("first", "[Resource from s at notes://a] a note")
        assert blob.startswith("[Resource from s at notes://b] (application/pdf, 0.0KB): saved as ")
        assert at.read(blob.split()[-1]) == b"\0\1\2"
        assert link == "[Resource link: c] notes://c (the third)"
        assert parts.structured["resourceLinks"] == [
            {"uri": "notes://c", "name": "c", "description": "the third"}
        ]
        assert (await at.call("mcp__s__nothing")).content == (
            "(mcp__s__nothing completed with no output)"
        )
        broken = await at.call("mcp__s__boom")
        assert broken.is_error
        assert "boom" in str(broken.content)


@pytest.mark.requirement("mcp:resources")
async def test_resources_are_listed_and_read(rooms: Rooms) -> None:
    async with mcp_site() as site, desk(rooms, {"s": web(site.url())}) as at:
        found = orjson.loads(await at.said("ListMcpResourcesTool"))
        assert [(r["uri"], r["server"]) for r in found] == [
            ("notes://today", "s"),
            ("notes://scan", "s"),
        ]
        read = orjson.loads(await at.said("ReadMcpResourceTool", server="s", uri="notes://today"))
        assert read == {
            "contents": [{"uri": "notes://today", "mimeType": "text/plain", "text": "rest"}]
        }
        scan = orjson.loads(await at.said("ReadMcpResourceTool", server="s", uri="notes://scan"))
        assert at.read(scan["contents"][0]["blobSavedTo"]) == png()
        assert "no MCP server 'x' here. Servers: s." in await at.said(
            "ReadMcpResourceTool", server="x", uri="notes://today"
        )
        assert (await at.call("ReadMcpResourceTool", server="s", uri="notes://no")).is_error
        (told,) = at.servers.statuses()
        assert (told.resources, told.prompts) == (2, ("mcp__s__greet",))


@pytest.mark.requirement("mcp:web")
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_both_transports_go_through_the_guard(rooms: Rooms, kind: Kind) -> None:
    async with mcp_site(kind) as site:
        server = {"s": web(site.url(kind), kind)}
        async with desk(rooms, server) as at:
            assert await at.said("mcp__s__add", a=1, b=1) == '{"sum":2}'
            assert site.connections
        async with desk(rooms, server, guard=Guard()) as at:
            assert status(at) == ("failed", f"Requests to port {site.port} are not allowed.")
        hidden = {"s": web("http://127.0.0.1/mcp", kind)}
        async with desk(rooms, hidden, guard=Guard()) as at:
            assert status(at)[1] == "127.0.0.1 is not at a public address, so it is not reached."


@pytest.mark.requirement("mcp:pinned")
async def test_a_web_server_tells_that_its_list_is_another(rooms: Rooms) -> None:
    async with mcp_site() as site, desk(rooms, {"s": web(site.url())}) as at:
        assert await at.said("mcp__s__grow") == "grown"
        await until(lambda: "grown" in next(iter(at.servers.statuses())).withheld)
        assert at.toolbox.spec("mcp__s__grown") is None
        assert await at.said("mcp__s__add", a=1, b=2) == '{"sum":3}'


@pytest.mark.requirement("mcp:secrets")
async def test_a_header_takes_a_variable_to_the_hosts_that_may_have_it(rooms: Rooms) -> None:
    async with mcp_site() as site:
        servers: dict[str, Any] = {
            "s": web(site.url(), headers={"Authorization": "Bearer ${TOKEN}", "X-Plain": "$5"})
        }
        rules: dict[str, Any] = {"hosts": {"TOKEN": ("127.0.0.1",)}, "values": {"TOKEN": "s3cret"}}
        async with desk(rooms, servers, variables=HeaderVariables(**rules)) as at:
            await at.said("mcp__s__who")
            assert site.headers[-1]["authorization"] == "Bearer s3cret"
            assert site.headers[-1]["x-plain"] == "$5"
        elsewhere = HeaderVariables({"TOKEN": ("api.example.com",)}, {"TOKEN": "s3cret"})
        unset = HeaderVariables({"TOKEN": ("127.0.0.1",)}, {})
        for variables, why in (
            (elsewhere, "the operator does not let 127.0.0.1 have the variable TOKEN"),
            (HeaderVariables(), "the operator lets no header name the variable TOKEN"),
            (unset, "the variable TOKEN of its headers is not set on this host"),
        ):
            async with desk(rooms, servers, variables=variables) as at:
                assert status(at) == ("failed", why)


@pytest.mark.requirement("mcp:failures")
async def test_a_web_server_that_went_away_is_found_again(rooms: Rooms) -> None:
    async with mcp_site() as site:
        opened = desk(rooms, {"s": web(site.url())}, call_s=5)
        at = await opened.__aenter__()
        assert await at.said("mcp__s__add", a=1, b=1) == '{"sum":2}'
    try:
        assert (await at.call("mcp__s__add", a=1, b=1)).is_error
        async with mcp_site(port=site.port):
            assert await at.said("mcp__s__add", a=1, b=2) == '{"sum":3}'
            assert status(at) == ("connected", None)
    finally:
        await opened.__aexit__(None, None, None)


def page(status: str, body: bytes = b"", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.mark.requirement("mcp:failures")
@pytest.mark.parametrize(
    ("answer", "state", "why"),
    [
        (page("401 Unauthorized"), "needs-auth", "it asks for authorization (HTTP 401)"),
        (page("503 Away"), "failed", "it answered with HTTP 503"),
        (page("200 OK", b"x" * 100_000), "failed", "The answer is larger than 70000 bytes."),
        (page("200 OK", b"[" * 60_000), "failed", ""),
        (page("200 OK", b'{"jsonrpc": "2.0", "id": 99, "result": {}}'), "failed", "not ready"),
        (page("307 There", more="Location: http://169.254.169.254/x\r\n"), "failed", "Redirect"),
        (b"no HTTP at all", "failed", ""),
    ],
    ids=["401", "503", "huge", "deep", "other id", "redirect", "noise"],
)
async def test_a_bad_answer_of_a_web_server_is_its_own_trouble(
    rooms: Rooms, answer: bytes, state: str, why: str
) -> None:
    async with PlainSite({"/mcp": answer}) as site:
        server = {"s": web(f"http://127.0.0.1:{site.port}/mcp")}
        start_s = 1 if why == "not ready" else 20  # the first is waited for to the end
        async with desk(rooms, server, start_s=start_s, max_message_bytes=70_000) as at:
            told, error = status(at)
            assert told == state
            assert why in (error or "")


@pytest.mark.requirement("mcp:failures")
@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        (page("500 Broken"), "it answered with HTTP 500"),
        (page("307 There", more="Location: http://169.254.169.254/x\r\n"), "HTTP 307"),
        (b"no HTTP at all", ""),
    ],
    ids=["500", "redirect", "noise"],
)
async def test_a_call_that_the_older_transport_could_not_send_is_not_waited_for(
    rooms: Rooms, refusal: bytes, why: str
) -> None:
    async with OlderSite(refusal) as site:
        server = web(f"http://127.0.0.1:{site.port}/sse", "sse")
        async with desk(rooms, {"s": server}, call_s=600) as at:
            assert status(at) == ("connected", None)
            said = await asyncio.wait_for(at.said("mcp__s__t"), 60)
            assert "connection to the MCP server s was lost" in said
            assert why in said
            site.refusal = None  # the next call connects again
            assert await at.said("mcp__s__t") == "fine"


@pytest.mark.requirement("mcp:bounded")
async def test_connections_are_bounded_and_end_with_their_run(rooms: Rooms) -> None:
    async with mcp_site() as site:
        async with AsyncExitStack() as stack:
            desks = [
                await stack.enter_async_context(desk(rooms, {"s": web(site.url())}))
                for _ in range(20)
            ]
            said = await asyncio.gather(*(at.said("mcp__s__add", a=1, b=1) for at in desks))
            assert set(said) == {'{"sum":2}'}
            assert site.connections <= 3 * len(desks)
        await until(lambda: site.connections == 0)
        assert not [task for task in asyncio.all_tasks() if "_live" in repr(task)]
