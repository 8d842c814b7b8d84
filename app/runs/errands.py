"""Calls that a prompt asks for: files that it names, commands in the text of a command."""

from dataclasses import dataclass

from app.agent.tool_effects import Toolbox
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolMemory, ToolResult
from app.runs.gate import RuleGate


@dataclass(frozen=True, slots=True)
class ReadingErrands:
    """Makes those that only read. Fits `app.agent.effects.Errands`."""

    tools: Toolbox
    gate: RuleGate

    async def read(self, call: ToolCall, memory: ToolMemory) -> ToolResult | None:
        spec = self.tools.spec(call.name)
        if spec is None or self.tools.invalid(call) is not None:
            return None
        if not self.gate.reads(call, spec, Scene(memory.cwd)):
            return None
        return await self.tools.call(call, memory)
