"""The loop's seams: one protocol for each way it touches the world.

Tests pass fakes by parameter; telemetry wraps an effect where parts are wired together.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from app.domain.agents import AgentDefinition
from app.domain.briefing import Briefing, News
from app.domain.hooks import HookEvent, HookOutcome, Surroundings
from app.domain.journal import ServiceEvent
from app.domain.mcp import Readiness, ServerPin
from app.domain.messages import Prompt
from app.domain.model import (
    ModelRequest,
    ModelResponse,
    PartialResponse,
    SideRequest,
    StreamPart,
)
from app.domain.options import AgentOptions
from app.domain.permissions import Scene
from app.domain.skills import CommandText
from app.domain.tasks import TaskEnd
from app.domain.thinking import Abilities
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.domain.usage import LedgerRow, ModelLimits, Usage
from app.permissions.decision import Verdict

if TYPE_CHECKING:
    from app.agent.subagents import Tree


class Model(Protocol):
    """A model API."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart | ModelResponse]:
        """Send the request; yield each event as it comes, then the complete response, last.

        Exactly one `ModelResponse` is yielded, and only for a response that ended properly;
        every other outcome raises a `ModelError`, which carries what was billed. Time-outs
        (connect, first byte, silence) are the implementation's and raise `ModelUnreachable`.
        Closing the generator, or cancelling the task, closes the connection at once.
        """
        ...


class SideModel(Protocol):
    """Model requests beside the conversation, with their rows in the ledger.

    For whatever of a run needs a model's word without a turn: a tool asks about a page or has
    the web searched, a gate has a call classified. Who has to ask is handed this where its parts are
    wired (`HostParts.open`; a tool finds it as `context.side`) and calls `ask`. It need not think
    of money: the loop settles what was asked with the results that it journals, at the next step, or when
    the run is stopped, so that no row is lost to a failing call or a cancel.
    """

    async def ask(self, request: SideRequest) -> ModelResponse:
        """Send the request to the small model that the operator chose, with retries.

        Raises `ModelError`; `BudgetSpent` when the run's budget leaves nothing for it. Cancelling
        the task closes the connection; what came until then is estimated and settled.
        """
        ...

    def lost(self) -> LedgerRow:
        """Give the row of a request that a lost host may have had under way: an estimate."""
        ...

    def allow(self, left_usd: Decimal | None) -> None:
        """Say what the run may still spend, unsettled rows not counted. None: no limit."""
        ...

    def settle(self) -> tuple[LedgerRow, ...]:
        """Take the rows of what was asked since the last time. Each is given once."""
        ...


class Toolbox(Protocol):
    """The tools of one session, bound to its workspace."""

    def specs(self) -> Sequence[ToolSpec]:
        """Tools on offer, in a stable order (the cached prefix of requests depends on it)."""
        ...

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        """Validate and run one call that was allowed. Never raises but for cancellation.

        An unknown tool, an invalid input and a failing tool are results. Cancelling the task
        kills whatever the call started before the cancellation is passed on.
        """
        ...

    def spec(self, name: str) -> ToolSpec | None:
        """Give the tool that a call of this name reaches, or None."""
        ...

    def invalid(self, call: ToolCall) -> ToolResult | None:
        """Give the error result of a call that cannot run (unknown tool, bad input), or None.

        Pure: asked before permissions are, since such a call needs none.
        """
        ...


class Gate(Protocol):
    """Permission for a call. May wait long for a person."""

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene) -> Verdict:
        """Decide whether the call may run."""
        ...


class Desk(Protocol):
    """Where calls wait for a client's answer, and where what it changes of the run arrives."""

    def expects(self, calls: int) -> None:
        """Say how many calls of the step have no stored result: a run waits when all of them do."""
        ...

    async def options(self) -> AgentOptions | None:
        """Give the run's options when a client has changed them; cheap while nothing came."""
        ...

    def adopt(self, options: AgentOptions) -> None:
        """Let calls be decided by these options from now on."""
        ...


class NoDesk:
    """For a run that asks nobody, and that nobody changes."""

    def expects(self, calls: int) -> None:
        pass

    async def options(self) -> AgentOptions | None:
        return None

    def adopt(self, options: AgentOptions) -> None:
        pass


class Errands(Protocol):
    """Calls that a prompt asks for, not the model."""

    async def read(self, call: ToolCall, memory: ToolMemory) -> ToolResult | None:
        """Make a call that only reads and that no rule is against; give None for any other.

        Nobody is asked, and nothing changes: whoever comes after a lost host makes it again.
        """
        ...


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


class Previews(Protocol):
    """Where partial messages go. Best effort: nothing here is stored."""

    def publish(self, part: StreamPart) -> None:
        """Hand on one raw event. Never blocks, never raises."""
        ...

    def requesting(self) -> None:
        """Say that a model request is about to be made. Never blocks, never raises."""
        ...

    def abort(self, message_id: str, reason: str) -> None:
        """Say that the open message will not be completed (retry, cancel)."""
        ...

    def complete(self) -> None:
        """Say that the open message is complete: it is about to be journalled."""
        ...

    def partial(self) -> PartialResponse | None:
        """Give what came of the open message; None when none is on its way."""
        ...


class Models(Protocol):
    """What is known of models: prices and sizes."""

    def cost_usd(self, model: str, usage: Usage, at: datetime) -> Decimal | None:
        """Price one request; None when the model has no known price."""
        ...

    def limits(self, model: str) -> ModelLimits:
        """Give the model's sizes; a safe guess for an unknown one."""
        ...

    def abilities(self, model: str) -> Abilities:
        """Give what the model takes of thinking and effort."""
        ...

    def canonical(self, model: str) -> str:
        """Give the model's name without its date."""
        ...


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
    tree: "Tree | None" = None
    """Of a subagent: what it shares with the others that its step has begun."""
