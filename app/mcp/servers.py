"""The MCP servers of one run: opened for it, never shared, closed with it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from app.domain.journal import ServiceEvent
from app.domain.mcp import (
    MCP_STATUS,
    Readiness,
    ServerPin,
    ServerStatus,
    tool_name,
)
from app.domain.mcp_options import HttpServer, SseServer, StdioServer
from app.domain.tools import ToolCall
from app.errors import ToolFailed
from app.mcp.listing import ListedPrompt
from app.mcp.offer import Offer, judge
from app.mcp.variables import HeaderVariables
from app.sandbox.driver import Channel, Command, Limits, Sandbox
from app.sandbox.guarded_http import Guard
from app.tools.tool import Tool

if TYPE_CHECKING:
    from app.mcp.client import Connection
    from app.mcp.eliciting import Ask
    from app.mcp.ending import Link

Server = StdioServer | HttpServer | SseServer

_LIFE_S = 7 * 86_400.0
"""Last bound of a server's process: no run is longer."""


@dataclass(frozen=True, slots=True)
class McpRules:
    """What the operator says about servers."""

    start_s: float = 30.0
    """Longest wait until a server is ready."""
    wait_s: float = 10.0
    """How long a run waits for servers that it does not require."""
    call_s: float = 600.0
    """Longest wait for one answer, where the server's configuration names none."""
    max_message_bytes: int = 16_000_000
    variables: HeaderVariables = field(default_factory=HeaderVariables)
    folders: Sequence[Path] = ()
    """Folders of the host that programs may read."""
    version: str = ""


class Servers:
    """Owns the connections. Fits `agent.effects.Servers`."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        rules: McpRules,
        guard: Guard,
        sandbox: Sandbox,
        *,
        cwd: str,
        prepare: Callable[[], Awaitable[None]],
        taken: Sequence[str] = (),
        ask: "Ask | None" = None,
    ) -> None:
        """`prepare`: awaited before a program starts. `taken`: names of other tools.

        `ask` puts what servers ask to somebody; None: nobody is asked.
        """
        self._ask = ask
        self._servers = dict(sorted(servers.items()))  # the store keeps no order
        self._rules = rules
        self._guard = guard
        self._sandbox = sandbox
        self._cwd = cwd
        self._prepare = prepare
        self._taken = frozenset(taken)
        self._connections: dict[str, Connection] = {}
        self._offers: dict[str, Offer] = {}
        self._pins: dict[str, ServerPin] = {}
        self._known: Mapping[str, ServerPin] = {}
        self._told: tuple[ServerStatus, ...] = ()
        self._package: ModuleType | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self.generation = 0
        """Grows when tools on offer may be others than before."""

    async def settle(self, pins: Mapping[str, ServerPin]) -> None:
        """Connect, and wait: for required servers until they are ready or failed."""
        if not self._servers or self._connections:
            return
        self._known, self._pins = pins, dict(pins)
        self._connections = await self._made()
        for name, connection in self._connections.items():
            if self._servers[name].enabled:
                connection.begin()
            else:
                await connection.close()
        waits = [
            asyncio.create_task(self._settled(name, connection))
            for name, connection in self._connections.items()
        ]
        try:
            await asyncio.wait(waits)
        finally:
            for wait in waits:
                wait.cancel()

    async def _settled(self, name: str, connection: "Connection") -> None:
        if self._servers[name].required:
            await connection.settled()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rules.wait_s):
                await connection.settled()

    async def reconnect(self, name: str) -> bool:
        """Begin to connect one anew; say whether there is one of this name."""
        connection = self._connections.get(name)
        if connection is None or not self._servers[name].enabled:
            return False
        self._start(self._again(connection))
        return True

    def adopt(self, servers: Mapping[str, Server]) -> None:
        """Take what clients have changed: who is switched on, and what is accepted.

        A server that is new comes with the next run.
        """
        for name, connection in self._connections.items():
            old, new = self._servers[name], servers.get(name)
            if new is None or new.identity != old.identity:
                continue
            self._servers[name] = new
            if new.accept_tools != old.accept_tools:
                self._start(self._changed(name))
            if new.enabled and not old.enabled:
                connection.begin()
            elif old.enabled and not new.enabled:
                self._start(self._off(name, connection))

    async def _again(self, connection: "Connection") -> None:
        await connection.close()
        connection.begin()

    async def _off(self, name: str, connection: "Connection") -> None:
        await connection.close()
        await self._changed(name)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def close(self) -> None:
        """End every connection, and every process."""
        for errand in self._errands:
            errand.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)
        await asyncio.gather(*(c.close() for c in self._connections.values()))

    # -- what is told ---------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Say how the run stands with its servers as it begins."""
        statuses = tuple(self.statuses())
        missing = {
            status.name: f"The MCP server {status.name!r} is required and is not there: "
            f"{status.error or status.state}."
            for status in statuses
            if self._servers[status.name].required and status.state != "connected"
        }
        instructions = {
            name: connection.listing.instructions
            for name, connection in self._connections.items()
            if connection.state == "connected" and connection.listing.instructions
        }
        return Readiness(statuses, missing, self.new_pins(self._known), instructions)

    async def prompt(self, name: str, arguments: str) -> str | None:
        """Give what a prompt of a server says; None when there is none of this name."""
        for server, connection in self._connections.items():
            for prompt in connection.listing.prompts:
                if connection.state == "connected" and tool_name(server, prompt.name) == name:
                    return await self._said(connection, prompt, arguments)
        return None

    async def _said(self, connection: "Connection", prompt: ListedPrompt, arguments: str) -> str:
        try:
            return await connection.prompt_text(prompt.name, given_to(prompt, arguments))
        except ToolFailed as error:
            return f"(The prompt {prompt.name} of {connection.name} was not given: {error.message})"

    def statuses(self) -> Iterator[ServerStatus]:
        """Say how each server stands."""
        for name, server in self._servers.items():
            connection = self._connections.get(name)
            if connection is None:
                yield ServerStatus(name, "pending", server.type)
                continue
            offer, listing = self._offers.get(name), connection.listing
            is_there = connection.state == "connected" and offer is not None
            yield ServerStatus(
                name,
                connection.state,
                server.type,
                connection.error,
                tuple(tool.name for tool in offer.tools) if offer and is_there else (),
                offer.tools_hash if offer and is_there else None,
                offer.withheld if offer and is_there else {},
                listing.server if is_there else {},
                _prompt_names(name, listing.prompts) if is_there else (),
                len(listing.resources) if is_there else 0,
                {tool.name: tool.tokens for tool in offer.tools} if offer and is_there else {},
            )

    def news(self) -> tuple[ServiceEvent, ...]:
        """Give how all servers stand, if that is otherwise than when it was last asked for."""
        now = tuple(self.statuses())
        if now == self._told:
            return ()
        self._told = now
        return (ServiceEvent(MCP_STATUS, {"servers": [status.to_json() for status in now]}),)

    def calling(self, call: ToolCall) -> AbstractContextManager[None]:
        """Know which call is being made in the block, for what a server may ask."""
        return nullcontext() if self._package is None else self._package.calling(call)

    def new_pins(self, known: Mapping[str, ServerPin]) -> Mapping[str, ServerPin]:
        """Give what the session has to remember beyond what it does."""
        return {name: pin for name, pin in self._pins.items() if known.get(name) != pin}

    # -- what is offered ------------------------------------------------------------------

    def tools(self) -> tuple[Tool[Any], ...]:
        """Give the tools of all servers that are there, or were: a call connects again."""
        if self._package is None:
            return ()
        made: list[Tool[Any]] = []
        for name, offer in self._offers.items():
            connection = self._connections[name]
            if connection.state != "disabled":
                made += [self._package.server_tool(connection, tool) for tool in offer.tools]
        with_resources = {
            name: connection
            for name, connection in self._connections.items()
            if connection.listing.has_resources and connection.state != "disabled"
        }
        if with_resources:
            made += self._package.resource_tools(with_resources)
        return tuple(made)

    def withheld(self) -> Mapping[str, str]:
        """Give tools that are not on offer, by the names that they would have, and why."""
        return {
            tool_name(name, own): why
            for name, offer in self._offers.items()
            for own, why in offer.withheld.items()
        }

    async def _changed(self, name: str) -> None:
        """Judge what a server lists now."""
        connection, server = self._connections[name], self._servers[name]
        if connection.has_listed:
            pin = self._pins.get(name)
            others = {t.name for n, o in self._offers.items() if n != name for t in o.tools}
            offer = await asyncio.to_thread(
                judge,
                name,
                connection.listing.tools,
                identity=server.identity,
                pin=pin,
                accepted=server.accept_tools,
                taken=self._taken | others,
            )
            self._offers[name], self._pins[name] = offer, offer.pin
        self.generation += 1

    # -- connections ----------------------------------------------------------------------

    async def _made(self) -> "dict[str, Connection]":
        self._package = await asyncio.to_thread(_package)
        return {name: self._connection(name, server) for name, server in self._servers.items()}

    def _connection(self, name: str, server: Server) -> "Connection":
        package, rules = self._package, self._rules
        if package is None:
            raise RuntimeError("the package is not imported")
        call_s = server.timeout_seconds or rules.call_s
        link: Link = (
            package.stdio_link(server, self._launch, self._prepare, rules.max_message_bytes)
            if isinstance(server, StdioServer)
            else package.web_link(
                server,
                self._guard,
                rules.variables,
                max_message_bytes=rules.max_message_bytes,
                answer_s=call_s + 5,  # the limit of the call itself comes first
            )
        )
        made: Connection = package.Connection(
            name, link, rules.start_s, call_s, lambda: self._changed(name), rules.version, self._ask
        )
        return made

    def _launch(self, script: bytes, fd: int) -> Command:
        channel = Channel(fd, self._rules.folders)
        return self._sandbox.start(
            ["bash"], cwd=self._cwd, limits=Limits(wall_s=_LIFE_S), script=script, channel=channel
        )


def given_to(prompt: ListedPrompt, arguments: str) -> dict[str, str]:
    """Put words behind a prompt's name into its arguments, in their order; the last gets the rest."""
    count = len(prompt.arguments)
    words = arguments.split(maxsplit=max(count - 1, 0)) if count else []
    return dict(zip(prompt.arguments, words, strict=False))


def _prompt_names(server: str, prompts: Sequence[ListedPrompt]) -> tuple[str, ...]:
    """Give each name once: of prompts that look the same the first is meant."""
    return tuple(dict.fromkeys(tool_name(server, prompt.name) for prompt in prompts))


def _package() -> ModuleType:
    """Import what needs the package `mcp`: a second and 23 MB, which other hosts do not pay."""
    from app.mcp import package  # noqa: PLC0415

    return package
