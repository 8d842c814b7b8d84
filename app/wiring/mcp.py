"""MCP servers: what the operator's settings say of them, and those of one run."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from app.agent.tool_effects import Toolbox
from app.domain.mcp_options import HttpServer, SseServer, still_masked
from app.domain.options import AgentOptions
from app.errors import EgressRefused, ValidationFailed
from app.mcp.servers import McpRules, Servers
from app.mcp.toolbox import ServedToolbox
from app.mcp.variables import HeaderVariables
from app.permissions.permissions import Permissions
from app.runs.desk import Desk
from app.runs.eliciting import Elicitor
from app.runs.gate import RuleGate
from app.sandbox.driver import Sandbox
from app.sandbox.egress import EgressRules
from app.sandbox.guarded_http import Guard
from app.sandbox.process import uninterrupted
from app.settings.groups import McpSettings
from app.tools.tool import Tool

_MASKED = (
    "It is masked, as options are shown; a masked value means the stored one only for a server of the "
    "same session whose address or command is the same"
)


def header_variables(settings: McpSettings) -> HeaderVariables:
    """Give the variables that headers may name."""
    hosts = {name: tuple(hosts) for name, hosts in settings.header_variables.items()}
    return HeaderVariables(hosts, settings.variables())


def mcp_rules(settings: McpSettings, version: str) -> McpRules:
    """Give what servers of all runs have in common."""
    return McpRules(
        start_s=settings.start_s,
        wait_s=settings.wait_s,
        call_s=settings.call_s,
        max_message_bytes=settings.max_message_bytes,
        variables=header_variables(settings),
        folders=tuple(settings.folders),
        version=version,
    )


def check_servers(
    egress: EgressRules, variables: HeaderVariables
) -> Callable[[AgentOptions], None]:
    """Give what refuses servers that are not reached from here; names are looked up later."""

    def check(options: AgentOptions) -> None:
        for name, server in options.mcp_servers.items():
            for place in still_masked(server):
                raise _refused(name, "/".join(filter(None, place)), _MASKED)
            if isinstance(server, HttpServer | SseServer):
                _check(name, server, egress, variables)

    return check


def _check(
    name: str, server: HttpServer | SseServer, egress: EgressRules, variables: HeaderVariables
) -> None:
    try:
        egress.check_url(httpx.URL(server.url))
    except EgressRefused as refused:
        raise _refused(name, "url", str(refused)) from None
    except (httpx.InvalidURL, UnicodeError):
        raise _refused(name, "url", "The URL is not valid.") from None
    if refusal := variables.refusal(server):
        header, why = refusal
        raise _refused(name, f"headers/{header}", why)


def _refused(name: str, field: str, why: str) -> ValidationFailed:
    escaped = name.replace("~", "~0").replace("/", "~1")
    pointer = f"/options/mcp_servers/{escaped}/{field}"
    return ValidationFailed(
        f"The MCP server {name!r} cannot be used: {why}",
        errors=[{"pointer": pointer, "code": "not_allowed", "message": why}],
    )


@asynccontextmanager
async def run_servers(
    options: AgentOptions,
    rules: McpRules,
    guard: Guard,
    sandbox: Sandbox,
    *,
    cwd: str,
    prepare: Callable[[], Awaitable[None]],
    taken: Sequence[str],
    desk: Desk,
) -> AsyncIterator[Servers]:
    """Give the servers of a run; none of them outlives it."""
    elicitor = Elicitor(desk, options.actions)
    servers = Servers(
        options.mcp_servers,
        rules,
        guard,
        sandbox,
        cwd=cwd,
        prepare=prepare,
        taken=taken,
        ask=elicitor.ask if elicitor.is_asking else None,
    )
    try:
        yield servers
    finally:
        await uninterrupted(servers.close())


def with_servers(
    servers: Servers,
    make: Callable[[Sequence[Tool[Any]]], Toolbox],
    options: AgentOptions,
) -> Toolbox:
    """Give all tools of a run; `make` puts those of servers behind the others."""
    if not options.mcp_servers:
        return make(())
    rules = Permissions.of(options).rules
    return ServedToolbox(servers, make, lambda name: rules.bare("deny", [name]) is not None)


def adopting(gate: RuleGate, servers: Servers) -> Callable[[AgentOptions], None]:
    """Give what takes options that were changed while the run goes on."""

    def adopt(options: AgentOptions) -> None:
        gate.adopt(options)
        servers.adopt(options.mcp_servers)

    return adopt
