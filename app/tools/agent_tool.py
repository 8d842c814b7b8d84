"""The tool Agent: offered beside other tools, and carried out by the loop (`agent/subagents.py`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.agent.tool_effects import Toolbox
from app.domain.agents import AGENT_ALIAS, AGENT_TOOL, AgentDefinition, AgentInput
from app.domain.options import AgentOptions
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.errors import ToolFailed
from app.tools.inputs import parse_input
from app.tools.shells import Shells
from app.tools.tool import Tool, ToolContext, ToolInput, input_schema

_NAMES = frozenset({AGENT_TOOL, AGENT_ALIAS})
_MOST_SHOWN = 400
"""Characters of a kind's description."""
_DESCRIPTION = """\
Has another agent do one task in a conversation of its own, in the same workspace. It sees nothing of \
this conversation, so the prompt must hold all it needs, and say what it is to report; only its last \
message comes back. Good for searches that read much and for parts that do not depend on each other: \
calls in one response run side by side. Do small things yourself.

Kinds of agents:
{kinds}"""
_BLANK = (
    "InputValidationError: Agent failed due to the following issue(s):\n"
    "The parameter `prompt` is blank: it must hold the whole task"
)
BUILT_IN: Mapping[str, AgentDefinition] = {
    "general-purpose": AgentDefinition(
        description="Any task of several steps: it has all tools.",
        prompt="You carry out one task in a workspace of files, with the tools you are given.",
    ),
    "Explore": AgentDefinition(
        description="Finds and reads files, and answers a question about them. It changes nothing.",
        prompt=(
            "You look for the answer to one question in a workspace of files. Search first, read "
            "what matters, and name the files and lines that your answer rests on."
        ),
        tools=["Read", "Glob", "Grep"],
    ),
    "Plan": AgentDefinition(
        description="Looks at the files and works out a plan for a change. It changes nothing.",
        prompt=(
            "You work out how a change should be made in a workspace of files: what is there, what "
            "has to change where, in which order, and what may go wrong. You change nothing."
        ),
        tools=["Read", "Glob", "Grep"],
    ),
}


def no_shells() -> Shells:
    """Give what subagents have in place of the session's background commands."""
    why = "A subagent leaves nothing in the background: wait for the command, or leave it out."
    return Shells(is_closed=True, why_closed=why)


class _Input(AgentInput, ToolInput):
    pass


def is_offered(options: AgentOptions) -> bool:
    """Whether a run may begin subagents."""
    is_wanted = options.tools is None or not _NAMES.isdisjoint(options.tools)
    return is_wanted and not is_forbidden(options)


def is_forbidden(options: AgentOptions) -> bool:
    """Whether a run may have none, whoever begins them."""
    return not _NAMES.isdisjoint(options.disallowed_tools)


def agent_spec(definitions: Mapping[str, AgentDefinition]) -> ToolSpec:
    """Give the tool as it is offered; its description names the kinds of subagents."""
    return _BUILT_IN_SPEC if definitions is BUILT_IN else _spec(definitions)


def _spec(definitions: Mapping[str, AgentDefinition]) -> ToolSpec:
    kinds = "\n".join(_line(name, kind) for name, kind in definitions.items())
    return ToolSpec(
        AGENT_TOOL,
        _DESCRIPTION.format(kinds=kinds),
        _SCHEMA,
        is_internal=True,
        agents=tuple(definitions),
    )


def _line(name: str, kind: AgentDefinition) -> str:
    said = " ".join(kind.description.split())
    said = said if len(said) <= _MOST_SHOWN else said[:_MOST_SHOWN] + "…"
    has = "all tools" if kind.tools is None else ", ".join(kind.tools) or "no tools"
    return f"- {name}: {said} (Tools: {has})"


class AgentToolbox:
    """Other tools, and the one that begins subagents."""

    def __init__(self, tools: Toolbox, definitions: Mapping[str, AgentDefinition]) -> None:
        self._tools = tools
        self._spec = agent_spec(definitions)
        self._tool = Tool(self._spec, _Input, _not_here)

    def specs(self) -> Sequence[ToolSpec]:
        return (*self._tools.specs(), self._spec)

    def spec(self, name: str) -> ToolSpec | None:
        return self._spec if name in _NAMES else self._tools.spec(name)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        if call.name not in _NAMES:
            return self._tools.invalid(call)
        try:
            given = parse_input(self._tool, call.input)
        except ToolFailed as error:
            return _refused(error.message)
        # The Messages API takes no blank text.
        return None if given.prompt.strip() else _refused(_BLANK)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        if call.name not in _NAMES:
            return await self._tools.call(call, memory)
        raise RuntimeError("a subagent is begun by the loop")


def _refused(why: str) -> ToolResult:
    return ToolResult(f"<tool_use_error>{why}</tool_use_error>", is_error=True)


async def _not_here(_given: ToolInput, _context: ToolContext) -> ToolResult:
    raise RuntimeError("a subagent is begun by the loop")


_SCHEMA: Mapping[str, Any] = input_schema(_Input)
_BUILT_IN_SPEC = _spec(BUILT_IN)
