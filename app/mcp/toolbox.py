"""The toolbox of a run with MCP servers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from app.agent.tool_effects import Toolbox
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.mcp.servers import Servers
from app.tools.tool import Tool


class ServedToolbox:
    """Other tools, and those of the servers: as they are at each moment."""

    def __init__(
        self,
        servers: Servers,
        make: Callable[[Sequence[Tool[Any]]], Toolbox],
        is_removed: Callable[[str], bool],
    ) -> None:
        """`make` puts servers' tools behind all others; `is_removed` says which are taken away."""
        self._servers = servers
        self._make = make
        self._is_removed = is_removed
        self._made = make(())
        self._generation = 0

    @property
    def _tools(self) -> Toolbox:
        if self._generation != self._servers.generation:
            self._generation = self._servers.generation
            offered = [t for t in self._servers.tools() if not self._is_removed(t.spec.name)]
            self._made = self._make(offered)
        return self._made

    def specs(self) -> Sequence[ToolSpec]:
        return self._tools.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self._tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        why = self._servers.withheld().get(call.name)
        if why and self._tools.spec(call.name) is None:
            return ToolResult(f"The tool {call.name} is withheld: {why}.", is_error=True)
        return self._tools.invalid(call)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        with self._servers.calling(call):
            result = await self._tools.call(call, memory)
        pins = self._servers.new_pins(memory.servers)
        return replace(result, facts=replace(result.facts, servers=pins)) if pins else result
