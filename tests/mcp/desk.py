"""Servers of a run without a run: their tools called as the loop would."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.mcp import ServerPin
from app.domain.mcp_options import HttpServer, SseServer, StdioServer
from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.mcp.servers import McpRules, Server, Servers
from app.mcp.toolbox import ServedToolbox
from app.sandbox.bubblewrap import BubblewrapSandbox
from app.sandbox.egress import EgressRules
from app.sandbox.guarded_http import Guard
from app.sandbox.unsandboxed import Unsandboxed
from app.tools.toolbox import Toolbox
from app.tools.workspace import Workspace
from tests.fakes import mcp_plain
from tests.sandbox.rooms import SANDBOX_UID, Rooms

_PLAIN = Path(mcp_plain.__file__).read_bytes()
LOOPBACK = Guard(EgressRules(private_hosts=("127.0.0.1",)))


@dataclass(frozen=True, slots=True)
class Desk:
    servers: Servers
    toolbox: ServedToolbox
    workspace: Workspace
    sandbox: BubblewrapSandbox | Unsandboxed

    async def call(self, name: str, **given: Any) -> ToolResult:
        call = ToolCall("toolu_1", name, given)
        return self.toolbox.invalid(call) or await self.toolbox.call(call, ToolMemory())

    async def said(self, name: str, **given: Any) -> str:
        """Call; give the text of what came back."""
        content = (await self.call(name, **given)).content
        if isinstance(content, str):
            return content
        return "\n".join(block["text"] for block in content if block["type"] == "text")

    def read(self, path: str) -> bytes:
        with self.workspace.open(path) as file:
            return file.content(10_000_000)


def plain(*args: str, **given: Any) -> StdioServer:
    """A server in the sandbox that needs no package."""
    script = "/workspace/mcp_plain.py"
    return StdioServer(command="python3", args=[script, *args], **given)


def web(site_url: str, kind: str = "http", **given: Any) -> HttpServer | SseServer:
    return (HttpServer if kind == "http" else SseServer)(type=kind, url=site_url, **given)


@asynccontextmanager
async def desk(
    rooms: Rooms,
    servers: Mapping[str, Server],
    *,
    guard: Guard = LOOPBACK,
    pins: dict[str, ServerPin] | None = None,
    is_sandboxed: bool = True,
    **rules: Any,
) -> AsyncIterator[Desk]:
    """Connect to servers, as a run does."""
    sandbox: BubblewrapSandbox | Unsandboxed = rooms.bubblewrap()
    if not is_sandboxed:
        sandbox = Unsandboxed(sandbox.dirs, rooms.programs)
    (sandbox.dirs.ws / "mcp_plain.py").write_bytes(_PLAIN)

    cwd = "/workspace" if is_sandboxed else str(sandbox.dirs.ws)

    async def prepared() -> None:
        pass

    opened = Servers(servers, McpRules(**rules), guard, sandbox, cwd=cwd, prepare=prepared)
    with Workspace.sandboxed(sandbox.dirs, uid=SANDBOX_UID) as workspace:
        toolbox = ServedToolbox(
            opened, lambda tools: Toolbox(tools, workspace, sandbox), lambda _: False
        )
        try:
            await opened.settle(pins or {})
            yield Desk(opened, toolbox, workspace, sandbox)
        finally:
            await opened.close()
