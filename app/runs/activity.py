"""The loop's effects, watched: only an owner starts anything, and what runs is known.

What is under way at a stop is the receipt that a cancel gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.agent.audit import audit_note
from app.agent.effects import AgentLimits, Agents, Aside, Effects, Hooks
from app.agent.model_effects import Model
from app.agent.tool_effects import Fire, Gate, Toolbox
from app.domain.agents import AgentDefinition
from app.domain.hook_outcome import HookOutcome
from app.domain.hooks import HookEvent, Surroundings
from app.domain.model import Hear, ModelRequest, ModelResponse, PartialResponse, unheard
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.permissions.decision import Allow, Verdict
from app.runs.ownership import Ownership
from app.runs.passing import PassingToolbox


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was under way when a run was stopped."""

    tools: tuple[str, ...]
    """Tool use ids of calls that ran."""
    processes: int
    """Commands among those calls."""
    model_request: bool
    tasks: tuple[str, ...] = ()
    """Ids of background tasks."""
    allowed: tuple[Mapping[str, Any], ...] = ()
    """Why those calls ran, for the audit: their own results, which would say so, never came."""

    def to_json(self) -> dict[str, Any]:
        return {
            "tools": list(self.tools),
            "tasks": list(self.tasks),
            "processes": self.processes + len(self.tasks),
            "model_request": self.model_request,
        }


@dataclass(slots=True)
class Activity:
    """What a run has under way."""

    calls: dict[str, ToolSpec | None] = field(default_factory=dict)
    requests: int = 0
    allowed: dict[str, tuple[ToolCall, Allow]] = field(default_factory=dict)
    """Decisions on calls that have no result yet."""

    def now(self) -> Stopped:
        """Give what is under way at this moment."""
        commands = sum(spec is not None and spec.starts_process for spec in self.calls.values())
        allowed = (self.allowed[call] for call in self.calls if call in self.allowed)
        notes = tuple(audit_note(_as_allowed(call, verdict), verdict) for call, verdict in allowed)
        return Stopped(tuple(self.calls), commands, self.requests > 0, allowed=notes)


def _as_allowed(call: ToolCall, verdict: Allow) -> ToolCall:
    given = verdict.updated_input
    return call if given is None else replace(call, input=given)


def watched(effects: Effects, ownership: Ownership, activity: Activity) -> Effects:
    """Give the effects with model, tools and hooks behind the fence, and their activity noted."""
    return replace(
        effects,
        model=_WatchedModel(effects.model, ownership, activity),
        tools=_WatchedToolbox(effects.tools, ownership, activity),
        gate=_WatchedGate(effects.gate, activity),
        hooks=_WatchedHooks(effects.hooks, ownership),
        agents=_WatchedAgents(
            effects.agents, _WatchedToolbox(effects.agents.tools, ownership, activity)
        ),
    )


@dataclass(frozen=True, slots=True)
class _WatchedModel:
    model: Model
    ownership: Ownership
    activity: Activity

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        await self.ownership.check()
        self.activity.requests += 1
        try:
            return await self.model.respond(request, hear)
        finally:
            self.activity.requests -= 1


@dataclass(frozen=True, slots=True)
class _WatchedHooks:
    hooks: Hooks
    ownership: Ownership

    async def fire(self, event: HookEvent, around: Surroundings) -> HookOutcome:
        await self.ownership.check()
        return await self.hooks.fire(event, around)


@dataclass(frozen=True, slots=True)
class _WatchedToolbox(PassingToolbox):
    ownership: Ownership
    activity: Activity

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        await self.ownership.check()
        self.activity.calls[call.id] = self.tools.spec(call.name)
        try:
            return await self.tools.call(call, memory)
        finally:
            self.activity.calls.pop(call.id, None)
            self.activity.allowed.pop(call.id, None)


@dataclass(frozen=True, slots=True)
class _WatchedGate:
    gate: Gate
    activity: Activity

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
        verdict = await self.gate.check(call, spec, scene, fire)
        if isinstance(verdict, Allow):
            self.activity.allowed[call.id] = call, verdict
        return verdict


@dataclass(frozen=True, slots=True)
class _WatchedAgents:
    agents: Agents
    tools: Toolbox

    @property
    def limits(self) -> AgentLimits:
        return self.agents.limits

    @property
    def definitions(self) -> Mapping[str, AgentDefinition]:
        return self.agents.definitions

    def model(self, name: str) -> str | None:
        return self.agents.model(name)

    def aside(self, call_id: str) -> Aside:
        return self.agents.aside(call_id)

    def partials(self) -> Mapping[str, PartialResponse]:
        return self.agents.partials()
