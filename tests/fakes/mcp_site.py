"""An MCP server over HTTP, by the official package, as real as it gets: uvicorn on loopback."""

import asyncio
import base64
import contextlib
import io
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from PIL import Image as Pillow

READ_ONLY = ToolAnnotations(read_only_hint=True)


def png(side: int = 8) -> bytes:
    file = io.BytesIO()
    Pillow.new("RGB", (side, side), "red").save(file, "PNG")
    return file.getvalue()


@dataclass(slots=True)
class Site:
    """The server, and what it has seen."""

    port: int = 0
    together: int = 0
    """Calls of `meet` that run now."""
    most_together: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)
    server: uvicorn.Server | None = None

    def url(self, kind: Literal["http", "sse"] = "http") -> str:
        return f"http://127.0.0.1:{self.port}/{'mcp' if kind == 'http' else 'sse'}"

    @property
    def connections(self) -> int:
        assert self.server is not None
        return len(self.server.server_state.connections)


def _made(site: Site) -> MCPServer[Any]:  # noqa: C901 - many small tools
    made: MCPServer[Any] = MCPServer("site", instructions="Ask nicely.", version="1.2")

    @made.tool(annotations=READ_ONLY)
    def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": a + b}

    @made.tool(annotations=READ_ONLY, structured_output=False)
    async def meet() -> str:
        """Wait until two calls run at once, or a second has passed."""
        site.together += 1
        site.most_together = max(site.most_together, site.together)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while site.most_together < 2:  # noqa: ASYNC110 - the plainest way
                    await asyncio.sleep(0.01)
        site.together -= 1
        return "met"

    @made.tool(structured_output=False)
    def picture() -> Image:
        """Give a picture."""
        return Image(data=png(), format="png")

    @made.tool(structured_output=False)
    def bad_picture() -> CallToolResult:
        """Give what calls itself a picture."""
        data = base64.b64encode(b"\x89PNG\r\n\x1a\nnothing").decode()
        image = ImageContent(type="image", data=data, mime_type="image/jpeg")
        return CallToolResult(content=[image])

    @made.tool(structured_output=False)
    def parts() -> CallToolResult:
        """Give one of each kind."""
        text = TextResourceContents(uri="notes://a", text="a note", mime_type="text/plain")
        blob = BlobResourceContents(uri="notes://b", blob="AAEC", mime_type="application/pdf")
        link = ResourceLink(
            type="resource_link", uri="notes://c", name="c", description="the third"
        )
        return CallToolResult(
            content=[
                TextContent(type="text", text="first"),
                EmbeddedResource(type="resource", resource=text),
                EmbeddedResource(type="resource", resource=blob),
                link,
            ]
        )

    @made.tool(structured_output=False)
    def nothing() -> CallToolResult:
        """Give nothing."""
        return CallToolResult(content=[])

    @made.tool()
    def boom() -> str:
        """Fail."""
        raise ValueError("it is broken")

    @made.tool(structured_output=False)
    def who(context: Context) -> str:
        """Note the request's headers."""
        request = context.request_context.request
        site.headers.append(dict(request.headers) if request is not None else {})
        return "noted"

    @made.tool(structured_output=False)
    async def grow(context: Context) -> str:
        """Have one more tool from now on, and say so."""
        made.add_tool(add, name="grown")
        await context.notify_tools_changed()
        return "grown"

    @made.resource("notes://today", mime_type="text/plain")
    def today() -> str:
        """What is to be done today."""
        return "rest"

    @made.resource("notes://scan", mime_type="image/png")
    def scan() -> bytes:
        """A scanned page."""
        return png()

    @made.prompt()
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Please greet {name}."

    return made


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@asynccontextmanager
async def mcp_site(kind: Literal["http", "sse"] = "http", port: int = 0) -> AsyncIterator[Site]:
    """Serve until the block ends."""
    site = Site()
    made = _made(site)
    app = made.streamable_http_app() if kind == "http" else made.sse_app()
    sock = socket.create_server(("127.0.0.1", port))
    site.port = sock.getsockname()[1]
    site.server = _Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1
        )
    )
    serving = asyncio.create_task(site.server.serve(sockets=[sock]))
    while not site.server.started:  # noqa: ASYNC110 - uvicorn has no event
        await asyncio.sleep(0.01)
    try:
        yield site
    finally:
        site.server.should_exit = True
        await serving
