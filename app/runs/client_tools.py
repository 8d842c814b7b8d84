"""The toolbox of a run whose client carries out tools itself: a call waits for its result as an action."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from app.agent.audit import input_sha256
from app.agent.tool_effects import Toolbox
from app.domain.actions import Answer, Request
from app.domain.blocks import UNPARSED
from app.domain.client_tools import CLIENT, ClientTool
from app.domain.options import AgentOptions
from app.domain.text import printable, printable_value
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSource, ToolSpec
from app.permissions.permissions import Permissions
from app.runs.desk import Desk
from app.tools.json_schema import Checker


def client_specs(options: AgentOptions) -> tuple[ToolSpec, ...]:
    """Give the client's tools as they are offered. Who runs them may refuse: they need no approval."""
    if not options.client_tools:
        return ()
    rules = Permissions.of(options).rules
    return tuple(
        ToolSpec(
            tool.full_name,
            tool.description,
            {"type": "object", **tool.input_schema},
            read_only=tool.readOnlyHint,
            is_internal=True,
            is_kept=True,
            deferred=True,
            source=ToolSource(CLIENT, tool.name),
        )
        for tool in options.client_tools
        if rules.bare("deny", [tool.full_name]) is None
    )


class ClientToolbox:
    """Other tools, and those of the client."""

    def __init__(
        self,
        tools: Toolbox,
        options: AgentOptions,
        desk: Desk,
        shortened: Callable[[ToolResult], Awaitable[ToolResult]],
    ) -> None:
        """`shortened` stores what is too long of a result."""
        self._tools = tools
        self._desk = desk
        self._shortened = shortened
        self._specs = {spec.name: spec for spec in client_specs(options)}
        self._own = {tool.full_name: tool for tool in options.client_tools}

    def specs(self) -> Sequence[ToolSpec]:
        others = (spec for spec in self._tools.specs() if spec.name not in self._specs)
        return (*others, *self._specs.values())

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name) or self._tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        return None if call.name in self._specs else self._tools.invalid(call)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        if call.name not in self._specs:
            return await self._tools.call(call, memory)
        tool = self._own[call.name]
        if (wrong := await _wrong(tool, call)) is not None:
            text = f"<tool_use_error>InputValidationError: {wrong}</tool_use_error>"
            return ToolResult(text, is_error=True)
        shown = {"name": tool.name, "input": dict(call.input)}
        request = Request(
            "client_tool",
            call.id,
            call.name,
            input_sha256(call.input),
            shown,
            tool.timeout_seconds,
            tool.on_timeout,
            call.parent_tool_use_id,
            call.agent_id,
        )
        answer = await self._desk.answer(request, may_have_run=False, can_repeat=True)
        if answer is None:
            raise TypeError("a call that can repeat always finds its answer")
        return await self._shortened(_result(answer, tool))


async def _wrong(tool: ClientTool, call: ToolCall) -> str | None:
    if UNPARSED in call.input:
        return f"{call.name} was called with input that is no complete JSON object."
    # Away from the event loop: a hostile schema may use all the time that it is given.
    problems = await asyncio.to_thread(Checker(tool.input_schema).problems, call.input)
    if not problems:
        return None
    return printable(f"{call.name} failed due to the following issue(s):\n" + "\n".join(problems))


def _result(answer: Answer, tool: ClientTool) -> ToolResult:
    if answer.is_expired:
        text = f"The client gave no result within {tool.timeout_seconds} seconds."
        return ToolResult(text, is_error=True)
    content = printable_value(answer.body["content"])
    is_error = True if answer.body["is_error"] else None
    empty = f"({tool.full_name} completed with no output)"
    return ToolResult(content or empty, is_error=is_error, structured=content)
