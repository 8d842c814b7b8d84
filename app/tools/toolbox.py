"""The tools of one session: offering them, checking calls, running them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from app.domain.text import printable
from app.domain.tools import JsonValue, ToolCall, ToolMemory, ToolResult, ToolSpec
from app.errors import ToolFailed
from app.sandbox.driver import Sandbox
from app.tools.decoder import Decoder
from app.tools.inputs import parse_input
from app.tools.open_file import compute
from app.tools.presentable import check_result, is_fit, presentable
from app.tools.shells import Shells
from app.tools.skills import Shelf
from app.tools.stored_output import shortened, text_chars
from app.tools.tool import Beyond, Tool, ToolContext, ToolInput
from app.tools.workspace import Workspace

logger = logging.getLogger(__name__)

_MAX_NAME = 100


class Toolbox:
    """Tools by name, bound to a session's workspace and sandbox.

    The caller owns both, and the session's background commands, and closes them afterwards.
    """

    def __init__(
        self,
        tools: Sequence[Tool[Any]],  # each has an input type of its own
        workspace: Workspace,
        sandbox: Sandbox,
        *,
        shells: Shells | None = None,
        disabled: frozenset[str] = frozenset(),
        decoder: Decoder | None = None,
        shelf: Shelf | None = None,
        beyond: Beyond | None = None,
        beside: Sequence[ToolSpec] = (),
        hidden: Callable[[], Callable[[str], bool] | None] = lambda: None,
    ) -> None:
        """`beside` are tools that somebody else offers and runs: ToolSearch finds them too. `hidden` gives the test of paths that searches keep to themselves. `disabled` names tools that exist but are not on offer; they are left out of `tools`."""
        offered = [tool for tool in tools if tool.spec.name not in disabled]
        older = {alias: tool for tool in offered for alias in tool.aliases}
        self._tools = {**older, **{tool.spec.name: tool for tool in offered}}
        self._specs = tuple(tool.spec for tool in offered)
        self._catalogue = (*self._specs, *beside)
        self._shells = shells or Shells()
        self._workspace = workspace
        self._sandbox = sandbox
        self._disabled = disabled
        self._decoder = decoder or Decoder()
        self._shelf = shelf or Shelf(workspace)
        self._beyond = beyond or Beyond()
        self._hidden = hidden
        self._read: tuple[Tool[Any], Mapping[str, JsonValue], ToolInput] | None = None
        """What was read last, and from what: a call is looked at before it is decided, and then made."""

    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.spec

    def invalid(self, call: ToolCall) -> ToolResult | None:
        try:
            self._prepared(call)
        except ToolFailed as error:
            return _failure(error)
        return None

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        try:
            tool, given = self._prepared(call)
        except ToolFailed as error:
            return _failure(error)
        context = ToolContext(
            self._workspace,
            self._sandbox,
            memory,
            self._shelf,
            self._decoder,
            self._shells,
            self._beyond,
            self._catalogue,
            self._hidden,
        )
        result = await self._run(tool, given, context, call)
        return await shortened(result, tool.most_chars, self._workspace)

    async def _run(
        self, tool: Tool[Any], given: ToolInput, context: ToolContext, call: ToolCall
    ) -> ToolResult:
        try:
            result = await tool.run(given, context)
            if is_fit(result):
                return result
            check_result(result)
        except ToolFailed as error:
            return _failure(error)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            # A bug in a tool must not end the run, or the service: this is the tools' edge.
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            logger.exception(
                "A tool failed unexpectedly",
                extra={"action": "tool_crashed", "tool": call.name, "tool_use_id": call.id},
            )
            return ToolResult(f"{call.name} failed because of an internal error.", is_error=True)
        fit = partial(presentable, result, tool.spec.name)
        return await compute(fit, size_bytes=text_chars(result))

    def _prepared(self, call: ToolCall) -> tuple[Tool[Any], ToolInput]:
        tool = self._tools.get(call.name)
        if tool is None:
            raise self._unknown(call.name)
        if self._read is None or self._read[0] is not tool or self._read[1] is not call.input:
            self._read = tool, call.input, parse_input(tool, call.input)
        return tool, self._read[2]

    def _unknown(self, name: str) -> ToolFailed:
        shown = printable(name)[:_MAX_NAME]
        why = f". {shown} is disabled in this session." if name in self._disabled else ""
        return ToolFailed(f"Error: No such tool available: {shown}{why}", wrapped=True)


def _is_cancelled() -> bool:
    """Whether the call is to end, or its tool has only let out what ended something of its own."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _failure(error: ToolFailed) -> ToolResult:
    text = printable(error.message)
    if error.wrapped:
        text = f"<tool_use_error>{text}</tool_use_error>"
    return ToolResult(text, is_error=True)
