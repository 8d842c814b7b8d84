"""The tool that takes a run's structured output in: the toolbox of a run that asks for one."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from app.agent.structured import OUTPUT_TOOL
from app.agent.tool_effects import Toolbox
from app.domain.blocks import UNPARSED
from app.domain.text import printable
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.tools.json_schema import Checker

ACCEPTED = "The output fits its schema."
_DESCRIPTION = (
    "Takes the result of the whole task, as data. Call it once, at the end, in place of a closing "
    "message: the task is over as soon as the input fits this schema. If it does not fit, you are "
    "told why and can call again."
)


def output_spec(schema: Mapping[str, Any]) -> ToolSpec:
    """Give the tool as it is offered; the provider wants to read that its input is an object."""
    return ToolSpec(OUTPUT_TOOL, _DESCRIPTION, {"type": "object", **schema}, read_only=True)


class OutputToolbox:
    """Other tools, and the one that takes the output in. It touches no workspace."""

    def __init__(self, tools: Toolbox, schema: Mapping[str, Any]) -> None:
        self._tools = tools
        self._spec = output_spec(schema)
        self._checker = Checker(schema)

    def specs(self) -> Sequence[ToolSpec]:
        return (*self._tools.specs(), self._spec)

    def spec(self, name: str) -> ToolSpec | None:
        return self._spec if name == OUTPUT_TOOL else self._tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        return None if call.name == OUTPUT_TOOL else self._tools.invalid(call)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        if call.name != OUTPUT_TOOL:
            return await self._tools.call(call, memory)
        if UNPARSED in call.input:
            return ToolResult("The output is no complete JSON object.", is_error=True)
        # Away from the event loop: a hostile schema may use all the time that it is given.
        problems = await asyncio.to_thread(self._checker.problems, call.input)
        if not problems:
            return ToolResult(ACCEPTED, structured=ACCEPTED)
        why = printable("; ".join(problems))
        return ToolResult(f"The output does not fit its schema: {why}", is_error=True)
