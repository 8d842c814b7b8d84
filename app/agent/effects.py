"""The loop's seams: one protocol for each way it touches the world, and all of them together.

Those to models and to tools have modules of their own (`model_effects.py`, `tool_effects.py`).
Tests pass fakes by parameter; telemetry wraps an effect where parts are wired together.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from app.agent.model_effects import Model, Models, Previews, SideModel
from app.agent.tool_effects import Desk, Errands, Gate, NoDesk, Toolbox
from app.domain.agents import AgentDefinition
from app.domain.briefing import Briefing, News
from app.domain.hook_outcome import HookOutcome
from app.domain.hooks import HookEvent, Surroundings
from app.domain.journal import ServiceEvent
from app.domain.mcp import Readiness, ServerPin
from app.domain.messages import Prompt
from app.domain.model import PartialResponse
from app.domain.skills import CommandText
from app.domain.tasks import TaskEnd

if TYPE_CHECKING:
    from app.agent.state import LoopState
    from app.agent.subagents import Tree


class Hooks(Protocol):
    """Programs and servers that are asked at fixed points of the loop."""

    async def fire(self, event: HookEvent, around: Surroundings) -> HookOutcome:
        """Ask all hooks of the event that match; give what they said, merged.

        Never raises but for cancellation and `LeaseLost`, and never takes longer than the longest
        time-out. The same event of the same run has the same id on every host, so that a hook can
        tell that it is asked again.
        """
        ...


class Inbox(Protocol):
    """Prompts that wait for the loop."""

    async def take(self, *, steers: bool) -> Sequence[Prompt]:
        """Give the prompts of this run that are not in the journal yet, oldest first.

        Either those that begin the run, or (`steers`) those that were sent into it. A prompt is taken when the batch that names it is journalled, not before. Asked before
        each model request, so it is cheap while nothing came.
        """
        ...


class Place(Protocol):
    """The place that a run works in, as it describes itself.

    Never raises: what cannot be read is left out.
    """

    async def look(self, known: Briefing, cwd: str) -> Briefing:
        """Read all of it anew. Instructions that only calls come by are read if `known` has them.

        `cwd` is where the shell stands.
        """
        ...

    async def near(self, paths: Iterable[str], known: Briefing) -> News:
        """Read instructions that stand in the folders of files which a call touched."""
        ...

    async def command(self, name: str) -> CommandText | None:
        """Give the text of a command, or of a skill that users may start; None if there is none."""
        ...


class Tasks(Protocol):
    """The session's background tasks, as far as this host runs them."""

    def end_of(self, task_id: str) -> TaskEnd | None:
        """Say how a task ended; None while it runs. One that is not known here is lost."""
        ...

    async def someone_ended(self, among: Collection[str]) -> None:
        """Wait until one of these tasks has ended, also if that was before."""
        ...


class Purse(Protocol):
    """What subagents in the background spend beside a run."""

    def others_usd(self) -> Decimal:
        """Give what counts against the run's budget now, of what it has not spent itself."""
        ...


class NoPurse:
    """Of a run beside which nothing goes on."""

    def others_usd(self) -> Decimal:
        return Decimal(0)


class Servers(Protocol):
    """The MCP servers of the run."""

    async def settle(self, pins: Mapping[str, ServerPin]) -> None:
        """Connect, and wait for the servers within the operator's limits. Once.

        `pins` is what the session remembers of them. Never raises: what failed is a status.
        """
        ...

    def readiness(self) -> Readiness:
        """Say how the run stands with them as it begins."""
        ...

    def news(self) -> Sequence[ServiceEvent]:
        """Give events of what has changed since it was last asked for."""
        ...

    async def reconnect(self, name: str) -> bool:
        """Begin to connect one anew; say whether there is one of this name."""
        ...

    async def prompt(self, name: str, arguments: str) -> str | None:
        """Give what a prompt of a server says, by the name of its command; None if there is none."""
        ...


class NoServers:
    """Of a run that has none."""

    async def settle(self, pins: Mapping[str, ServerPin]) -> None:
        """Have nothing to wait for."""

    def readiness(self) -> Readiness:
        return Readiness()

    def news(self) -> Sequence[ServiceEvent]:
        return ()

    async def reconnect(self, name: str) -> bool:
        del name
        return False

    async def prompt(self, name: str, arguments: str) -> str | None:
        del name, arguments
        return None


class Clock(Protocol):
    """Time, waiting, and ids."""

    def now(self) -> datetime:
        """Give the wall clock's time in UTC."""
        ...

    def monotonic(self) -> float:
        """Give seconds that never go back, for durations."""
        ...

    def uuid(self) -> str:
        """Give a fresh random UUID."""
        ...

    def jitter(self) -> float:
        """Give a random number in [0, 1)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """How far subagents go."""

    depth: int = 3
    """Below the main conversation."""
    at_once: int = 8
    """On each depth, so that those that wait for others cannot hold all places."""
    a_run: int = 100
    """All in all."""
    max_turns: int = 200
    """Rounds of tool use of one whose definition sets none; the most that a definition can set."""


@dataclass(frozen=True, slots=True)
class Aside:
    """The part of the world that a subagent has for itself."""

    place: Place
    previews: Previews


class Agents(Protocol):
    """The subagents that a run may begin."""

    @property
    def limits(self) -> AgentLimits: ...

    @property
    def definitions(self) -> Mapping[str, AgentDefinition]:
        """Kinds of subagents by name, in a stable order."""
        ...

    @property
    def tools(self) -> Toolbox:
        """The tools of all subagents: nothing of them is left in the background."""
        ...

    def model(self, name: str) -> str | None:
        """Give the id of a model by its name or alias; None when nobody serves it."""
        ...

    def aside(self, call_id: str) -> Aside:
        """Give what the subagent of a call has for itself. The same as long as the run is driven."""
        ...

    def partials(self) -> Mapping[str, PartialResponse]:
        """Give what came of open messages of subagents, by call."""
        ...


class Stamps(Protocol):
    """What it takes to write messages: time, ids and prices, but no reach into the world."""

    @property
    def clock(self) -> Clock: ...

    @property
    def models(self) -> Models: ...


def nothing_new(state: "LoopState") -> "LoopState":
    """Give the state as it is."""
    return state


@dataclass(frozen=True, slots=True)
class Effects:
    """All that a run can touch."""

    model: Model
    tools: Toolbox
    gate: Gate
    errands: Errands
    hooks: Hooks
    inbox: Inbox
    place: Place
    tasks: Tasks
    previews: Previews
    models: Models
    clock: Clock
    side: SideModel
    agents: Agents
    desk: Desk = NoDesk()
    servers: Servers = field(default_factory=NoServers)
    purse: Purse = NoPurse()
    learn: "Callable[[LoopState], LoopState]" = nothing_new
    """Gives what the state of a run learns from elsewhere as it comes to its end."""
    tree: "Tree | None" = None
    """Of a subagent: what it shares with the others that its step has begun."""
