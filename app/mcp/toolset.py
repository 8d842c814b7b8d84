"""Tools of servers as tools of ours."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ConfigDict

from app.domain.mcp import MAX_NAME
from app.domain.text import printable, printable_value
from app.domain.tools import ToolResult, ToolSource, ToolSpec
from app.errors import ToolFailed
from app.mcp.client import Connection
from app.mcp.offer import OfferedTool
from app.mcp.results import resource_contents, tool_result
from app.tools.tool import Tool, ToolContext, ToolInput, tool

MAX_LISTED = 500
"""Resources that one listing shows."""


class AnyInput(ToolInput):
    """What a server's tool is called with: the server checks it, not we."""

    model_config = ConfigDict(extra="allow")


def server_tool(connection: Connection, offered: OfferedTool) -> Tool[AnyInput]:
    """Make a tool that calls a server's."""

    async def run(given: AnyInput, context: ToolContext) -> ToolResult:
        answer = await connection.call_tool(offered.listed.name, given.model_extra or {})
        return await tool_result(answer, connection.name, context)

    spec = ToolSpec(
        offered.name,
        offered.description,
        offered.schema,
        read_only=offered.listed.read_only,
        reaches_out=True,  # so a server's word that it only reads permits nothing
        needs_person=offered.listed.needs_person,
        deferred=True,
        source=ToolSource(
            connection.name, printable(offered.listed.name)[:MAX_NAME], offered.listed.title
        ),
    )
    return Tool(spec, AnyInput, run)


class ListResourcesInput(ToolInput):
    server: str | None = None
    """Only of this server."""


class ReadResourceInput(ToolInput):
    server: str
    """The server that has it."""
    uri: str
    """The resource, as a listing names it."""


def resource_tools(connections: Mapping[str, Connection]) -> tuple[Tool[Any], ...]:
    """Make the tools that list and read what servers have."""

    def named(server: str) -> Connection:
        found = connections.get(server)
        if found is None:
            known = ", ".join(connections) or "none"
            raise ToolFailed(f"There is no MCP server {server!r} here. Servers: {known}.")
        return found

    @tool(
        name="ListMcpResourcesTool",
        description=(
            "List what MCP servers offer to read: data under URIs, such as files or records. Gives a "
            "JSON list with `uri`, `name` and `server` of each."
        ),
        input_model=ListResourcesInput,
        read_only=True,
    )
    async def list_resources(given: ListResourcesInput, _: ToolContext) -> ToolResult:
        chosen = list(connections.values()) if given.server is None else [named(given.server)]
        found = [
            {**resource, "server": connection.name}
            for connection in chosen
            for resource in connection.listing.resources
        ]
        text = orjson.dumps(found[:MAX_LISTED]).decode()
        if len(found) > MAX_LISTED:
            text += f"\n[{len(found) - MAX_LISTED} more are not shown: name a server]"
        return ToolResult(text, structured=found[:MAX_LISTED])

    @tool(
        name="ReadMcpResourceTool",
        description=(
            "Read a resource of an MCP server by its URI. Gives its contents as JSON; what is not "
            "text is saved in a file, whose path it names."
        ),
        input_model=ReadResourceInput,
        read_only=True,
        reaches_out=True,
    )
    async def read_resource(given: ReadResourceInput, context: ToolContext) -> ToolResult:
        connection = named(given.server)
        answer = await connection.read_resource(printable(given.uri))
        result = await resource_contents(answer, connection.name, context)
        return ToolResult(result.content, structured=printable_value(result.structured))

    return list_resources, read_resource
