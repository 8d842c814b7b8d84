"""Hooks around one call: before it is decided, after it succeeded or failed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from app.agent.effects import Effects
from app.agent.hook_memory import hook_facts
from app.agent.hook_points import contexts, fire, informational, told
from app.agent.replaced_output import replaced
from app.agent.state import LoopState
from app.domain.hook_outcome import NOTHING, HookOutcome
from app.domain.hooks import HookEvent, PostToolUse, PostToolUseFailure, PreToolUse
from app.domain.journal import Batch, Entry
from app.domain.tools import ToolCall, ToolResult, ToolSpec


@dataclass(slots=True)
class CallHooks:
    """What hooks said around one call, for its result to carry."""

    state: LoopState
    effects: Effects
    hand_over: Callable[[Batch], Awaitable[None]]
    """Stores what readers are told while the call goes on."""
    entries: list[Entry] = field(default_factory=list)
    """Told before the result."""
    _contexts: list[str] = field(default_factory=list)
    _stops: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """What the loop remembers with the result."""
        if not self._contexts and not self._stops:
            return {}
        return hook_facts(contexts=self._contexts, ends="hook_stopped" if self._stops else None)

    async def before(self, call: ToolCall) -> HookOutcome:
        """Ask `PreToolUse`."""
        if PreToolUse.name not in self.state.run.hooks:
            return NOTHING
        return await self._fire(PreToolUse(call.id, call.name, call.input, call.id))

    async def beside(self, event: HookEvent) -> HookOutcome:
        """Ask the hooks of an event while the call waits to be decided."""
        outcome = await fire(event, self.state, self.effects)
        if entries := told(outcome, event, self.state, self.effects):
            await self.hand_over(Batch(entries))
        return outcome

    async def after(
        self, call: ToolCall, spec: ToolSpec, result: ToolResult, began_s: float
    ) -> ToolResult:
        """Ask `PostToolUse` or `PostToolUseFailure`; give the result, which a hook may replace."""
        kind = PostToolUseFailure if result.is_error else PostToolUse
        if kind.name not in self.state.run.hooks:
            return result
        duration_ms = round((self.effects.clock.monotonic() - began_s) * 1000)
        if result.is_error:
            error = text_of(result)
            await self._fire(
                PostToolUseFailure(
                    key=call.id,
                    tool_name=call.name,
                    tool_input=call.input,
                    tool_use_id=call.id,
                    error=error,
                    is_interrupt=False,
                    duration_ms=duration_ms,
                )
            )
            return result
        response = text_of(result) if result.structured is None else result.structured
        event = PostToolUse(call.id, call.name, call.input, call.id, response, duration_ms)
        outcome = await self._fire(event)
        if outcome.updated_output is None:
            return result
        if (other := replaced(result, spec, outcome.updated_output)) is not None:
            return other
        why = (
            f"The output that a {event.hook_name} hook put in place of the tool's own has another "
            "shape than the tool's, so it was left as it is."
        )
        self.entries.append(
            informational(
                why, self.state, self.effects, level="warning", tag="hook_callback_failed"
            )
        )
        return result

    async def _fire(self, event: HookEvent) -> HookOutcome:
        outcome = await fire(event, self.state, self.effects)
        if outcome is NOTHING:
            return outcome
        self.entries += told(outcome, event, self.state, self.effects)
        self._contexts += contexts(outcome, event)
        self._stops = self._stops or outcome.stop is not None
        return outcome


def text_of(result: ToolResult) -> str:
    """Give what a result says in words."""
    if isinstance(result.content, str):
        return result.content
    return "\n".join(block["text"] for block in result.content if block.get("type") == "text")
