"""How the MCP servers of a session stand, from its log: known on every host."""

from collections.abc import Sequence
from typing import Any

import orjson

from app.domain.mcp import MCP_STATUS
from app.domain.mcp_options import McpServer
from app.domain.options import AgentOptions
from app.domain.tools import ToolSource, ToolSpec
from app.permissions.permissions import Permissions
from app.runs.queries import Queries
from app.store.rows import LogRange
from app.store.sessions import SessionRow


async def server_states(
    queries: Queries, tenant_id: str, session: SessionRow
) -> Sequence[dict[str, Any]]:
    """Say how each server stood when that was last told, as the event `mcp.status` has it.

    Servers of a session that has not used them yet are pending, and one that was switched since
    stands as that says: what was told of it then is so no more.
    """
    options = AgentOptions.model_validate(dict(session.options))
    newest = LogRange(limit=1, is_descending=True)
    rows, _ = await queries.rows(tenant_id, session.id, newest, types=[MCP_STATUS])
    told: list[dict[str, Any]] = orjson.loads(rows[0].body)["servers"] if rows else []
    if not told:
        return [_as_set(name, server) for name, server in sorted(options.mcp_servers.items())]
    return [_now(state, options.mcp_servers.get(state["name"])) for state in told]


def _now(told: dict[str, Any], server: McpServer | None) -> dict[str, Any]:
    """Give what was told of a server, unless it was switched on or off since."""
    if server is None or server.enabled == (told["status"] != "disabled"):
        return told
    return _as_set(told["name"], server)


def _as_set(name: str, server: McpServer) -> dict[str, Any]:
    status = "pending" if server.enabled else "disabled"
    return {"name": name, "status": status, "type": server.type}


def served_tools(
    states: Sequence[dict[str, Any]], options: AgentOptions
) -> tuple[tuple[ToolSpec, ...], dict[str, int]]:
    """Give the tools that a next run would have of its servers, and their sizes in tokens by name.

    Their schemas are not known here: the specs are without.
    """
    rules = Permissions.of(options).rules
    sizes: dict[str, int] = {}
    specs: list[ToolSpec] = []
    for state in states:
        server = options.mcp_servers.get(state["name"])
        if server is None or not server.enabled:
            continue
        for name, tokens in state.get("tool_tokens", {}).items():
            if rules.bare("deny", [name]) is None:
                sizes[name] = tokens
                source = ToolSource(state["name"], name)
                specs.append(ToolSpec(name, "", {}, deferred=True, source=source))
    return tuple(specs), sizes
