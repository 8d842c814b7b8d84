"""How MCP servers stand."""

from typing import Any

from app.api.schemas.common import Out


class WithheldTool(Out):
    name: str
    reason: str


class ServerObject(Out):
    """An MCP server of a session, as its newest run told of it."""

    name: str
    status: str
    """`connected`, `failed`, `pending`, `needs-auth`, `disabled`."""
    type: str | None = None
    error: str | None = None
    """Why it is not connected."""
    tools: list[str] = []
    """Tools on offer, by the names that the model knows."""
    tools_hash: str | None = None
    """Of all that it lists; `accept_tools` takes it."""
    withheld: list[WithheldTool] = []
    """Tools that are not on offer."""
    server: dict[str, Any] = {}
    """Name and version, as the server tells them."""
    prompts: list[str] = []
    """Its prompts, by the names of their commands."""
    resources: int = 0
    tool_tokens: dict[str, int] = {}
    """Size of each tool on offer, in tokens (an estimate). One that is not loaded yet takes no room."""


class ServerList(Out):
    data: list[ServerObject]
