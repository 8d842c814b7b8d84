"""What a new subagent is given: its kind, model, tools and limits, never more than its parent."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.agent.effects import Effects
from app.agent.run_info import loaded_skill
from app.agent.state import LoopState
from app.agent.thread_facts import LOADED, WISH
from app.domain.agents import (
    AGENT_ALIAS,
    AGENT_TOOL,
    GENERAL,
    INHERITED,
    AgentDefinition,
    AgentInput,
)
from app.domain.client_tools import CLIENT
from app.domain.permissions import stricter
from app.domain.skills import SKILL_TOOL
from app.domain.subagent_stats import Refusal, Wish
from app.domain.tools import Fork, ToolCall, ToolFacts, ToolMemory, ToolSpec
from app.domain.usage import Usage
from app.permissions.rules import covers_name

BUDGET_TEXT = "Budget limit reached"
_NOT_FOR_AGENTS = frozenset(
    (
        *("TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TaskStop"),
        *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode"),
    )
)
"""The session's list of tasks, its commands in the background, and its user are the main thread's."""
_ADDED = (
    "You are a subagent: another agent gave you one task, and sees nothing of your work but your "
    "last message. So let that message hold everything that was asked for, and what you could not "
    "do. Nobody can answer you meanwhile."
)
_WISHES: Mapping[bool | None, Wish] = {True: "background", False: "foreground", None: "unset"}


class CannotLaunch(Exception):
    """No subagent can be begun; the text is for the model."""

    def __init__(self, text: str, limit: Refusal | None = None) -> None:
        """`limit`: the one that is the reason, if one is."""
        super().__init__(text)
        self.limit = limit


def launch_facts(call: ToolCall, state: LoopState, effects: Effects) -> dict[str, Any]:
    """Give all that a subagent is launched with, as facts. Raises `CannotLaunch`."""
    asked, agents = AgentInput.model_validate(dict(call.input)), effects.agents
    name = asked.subagent_type or GENERAL
    definition = agents.definitions.get(name)
    if not agents.definitions:
        raise CannotLaunch("This run may begin no subagents.")
    if definition is None:
        known = ", ".join(agents.definitions)
        raise CannotLaunch(f"There is no agent of the type {name!r}. There are: {known}")
    for server in definition.mcp_servers or ():
        if server not in state.run.options.mcp_servers:
            raise CannotLaunch(
                f"The agent {name} has the MCP server {server}, which this run has not."
            )
    parent = state.run.thread
    depth = parent.depth + 1 if parent else 1
    if depth > agents.limits.depth:
        raise CannotLaunch(
            f"Subagents may be nested {agents.limits.depth} deep. Do it yourself.", "depth_limit"
        )
    model = _model(asked, definition, state, effects)
    return {
        "call_id": call.id,
        "agent_id": "a" + effects.clock.uuid().replace("-", "")[:16],
        "agent_type": name,
        "description": _line(asked.description),
        "depth": depth,
        "tools": _tools(definition, effects, may_launch=depth < agents.limits.depth),
        "parent_agent_id": parent.agent_id if parent else None,
        WISH: _WISHES[asked.run_in_background],
        "window": effects.models.limits(model).context_window,
        "options": _options(model, asked, definition, state, effects),
    }


async def skills_of(kind: str, state: LoopState, effects: Effects) -> list[dict[str, Any]]:
    """Load the skills that a kind of subagent begins with. Raises `CannotLaunch`.

    They are read as a model's call of Skill would read them, and under the same rules.
    """
    loaded = []
    for name in effects.agents.definitions[kind].skills:
        call = ToolCall(effects.clock.uuid(), SKILL_TOOL, {"skill": name})
        result = await effects.errands.read(call, ToolMemory(state.memory.cwd))
        if result is None or result.is_error:
            why = f": {result.content}" if result else ", since it has no such tool"
            raise CannotLaunch(
                f"The agent {kind} begins with the skill {name}, which this run cannot load{why}"
            )
        if result.fork is not None:
            granted = ToolFacts(granted=result.fork.granted)
            loaded.append(loaded_skill(result.fork.prompt, granted))
        else:
            loaded += [loaded_skill(text, result.facts) for text in result.notes]
    return loaded


def forked(call: ToolCall, fork: Fork) -> tuple[ToolCall, Mapping[str, Any]]:
    """Give a call that begins the subagent of a fork, and what its facts hold beside."""
    asked = AgentInput(
        description=f"Skill {fork.skill}",
        prompt=fork.prompt,
        subagent_type=fork.kind,
        run_in_background=False,
    )
    skill = loaded_skill("", ToolFacts(granted=fork.granted))
    facts = {"skill": fork.skill, LOADED: [skill]}
    return replace(call, input=asked.model_dump(exclude_none=True)), facts


def is_too_deep(call: ToolCall, state: LoopState, effects: Effects) -> bool:
    """Say whether a call would begin a subagent where they may be nested no deeper."""
    thread = state.run.thread
    is_agent = call.name in (AGENT_TOOL, AGENT_ALIAS)
    return is_agent and thread is not None and thread.depth >= effects.agents.limits.depth


def goes_on_alone(call: ToolCall, state: LoopState, effects: Effects) -> bool:
    """Whether a new subagent goes on in the background: as its call says, or else its kind.

    What a subagent begins is always waited for: nothing of it outlives its own last words.
    """
    asked = AgentInput.model_validate(dict(call.input))
    definition = effects.agents.definitions.get(asked.subagent_type or GENERAL)
    wanted = asked.run_in_background
    if wanted is None:
        wanted = definition is not None and definition.background
    return wanted and state.run.thread is None


def _options(
    model: str,
    asked: AgentInput,
    definition: AgentDefinition,
    state: LoopState,
    effects: Effects,
) -> Mapping[str, Any]:
    """Give what differs from the parent's options, in stored form."""
    options, limits = state.run.options, effects.agents.limits
    given: dict[str, Any] = {
        "model": model,
        "system_prompt": f"{definition.prompt.rstrip()}\n\n{_ADDED}",
        "permission_mode": stricter(options.permission_mode, definition.permission_mode),
        "max_turns": min(definition.max_turns or limits.max_turns, limits.max_turns),
        "output_format": None,
        "task_budget": None,
        "prompt_suggestions": False,
    }
    if effort := asked.effort or definition.effort:
        given["effort"] = effort
    if options.fallback_model == model:
        given["fallback_model"] = None
    return given


def _model(
    asked: AgentInput, definition: AgentDefinition, state: LoopState, effects: Effects
) -> str:
    name = asked.model or definition.model or INHERITED
    if name == INHERITED:
        return state.model
    model = effects.agents.model(name)
    if model is None:
        raise CannotLaunch(f"The model {name!r} is not available here. Leave it out.")
    now, one = effects.clock.now(), Usage(input_tokens=1)
    is_priced = effects.models.cost_usd(model, one, now) is not None
    has_budget = state.run.options.max_budget_usd is not None
    if has_budget and not is_priced and effects.models.cost_usd(state.model, one, now) is not None:
        raise CannotLaunch(f"No price is known for {name!r}, so the budget could not be kept.")
    return model


def _tools(definition: AgentDefinition, effects: Effects, *, may_launch: bool) -> Sequence[str]:
    """Give the names of its tools: of the parent's those that it may have."""
    offered = [spec for spec in effects.tools.specs() if effects.agents.tools.spec(spec.name)]
    wanted = None if definition.tools is None else _own_names(definition.tools)
    refused = {*_own_names(definition.disallowed_tools), *_NOT_FOR_AGENTS}
    if not may_launch:
        refused.add(AGENT_TOOL)
    return [
        spec.name
        for spec in offered
        if not _are_about(refused, spec) and _is_wanted(spec, wanted, definition.mcp_servers)
    ]


def _is_wanted(
    spec: ToolSpec, wanted: Collection[str] | None, servers: Sequence[str] | None
) -> bool:
    """Say whether a kind has a tool: its list names it, or it is of a server that it names."""
    if wanted is not None and _are_about(wanted, spec):
        return True
    if servers is not None and spec.source is not None and spec.source.server != CLIENT:
        return spec.source.server in servers
    return wanted is None


def _are_about(names: Collection[str], spec: ToolSpec) -> bool:
    """Say whether names mean a tool, by itself or with all of its server."""
    return any(covers_name(name, spec.name) for name in names)


def _own_names(names: Sequence[str]) -> set[str]:
    return {AGENT_TOOL if name == AGENT_ALIAS else name for name in names}


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:200] + "…"
