"""The loop's seams to tools: what there is to call, whether a call may run, and who is asked."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from app.domain.hook_outcome import HookOutcome
from app.domain.hooks import HookEvent
from app.domain.options import AgentOptions
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.permissions.decision import Verdict


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


Fire: TypeAlias = Callable[[HookEvent], Awaitable[HookOutcome]]
"""Asks the hooks of an event; what readers are told of them is stored while the call waits."""


class Gate(Protocol):
    """Permission for a call. May wait long for a person."""

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
        """Decide whether the call may run. `fire` is for hooks that may answer, or are told."""
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

    async def begins(self, call_id: str) -> None:
        """Note that a call is about to begin which must not be made twice.

        For calls of the main conversation alone, of which one at a time is under way. Costs
        nothing in a run that asks nobody. Raises `LeaseLost`.
        """
        ...

    async def may_have_begun(self, call_id: str) -> bool:
        """Say whether a host that was lost may have begun such a call of this run's own."""
        ...


class NoDesk:
    """For a run that asks nobody, and that nobody changes."""

    def expects(self, calls: int) -> None:
        pass

    async def options(self) -> AgentOptions | None:
        return None

    def adopt(self, options: AgentOptions) -> None:
        pass

    async def begins(self, call_id: str) -> None:
        pass

    async def may_have_begun(self, call_id: str) -> bool:
        del call_id
        return True


class Errands(Protocol):
    """Calls that a prompt asks for, not the model."""

    async def read(self, call: ToolCall, memory: ToolMemory) -> ToolResult | None:
        """Make a call that only reads and that no rule is against; give None for any other.

        Nobody is asked, and nothing changes: whoever comes after a lost host makes it again.
        """
        ...
