"""What to do next: a pure function of the state."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.agent.hook_memory import EndByHook
from app.agent.state import LoopState
from app.compaction.cut import cut_point
from app.domain.blocks import ToolUseBlock
from app.domain.hooks import PostToolBatch, Stop, SubagentStop
from app.domain.value import value

FINAL_WITHOUT_TEXT = frozenset({"refusal", "max_tokens", "model_context_window_exceeded"})
"""Stop reasons that explain an empty response: it is no mistake of the model (decisions B6, B7)."""
MAX_COMPACTIONS = 2
"""Without a response between them, before a request that is too long ends the run."""
MAX_PAUSES = 10
"""`pause_turn` responses in a row before the run ends with what there is."""


Cause: TypeAlias = (
    Literal[
        "completed",
        "max_turns",
        "budget",
        "structured_output",
        "blocking_limit",
        "nothing_to_compact",
        "mcp_required",
        "tool_deferred",
    ]
    | EndByHook
)


@dataclass(frozen=True, slots=True)
class Start:
    """Emit `init` and take the prompts in."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """Make a model request."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Put a summary in place of older messages: there is no room for the next request."""


@value
class RunTools:
    """Run the open calls."""

    calls: tuple[ToolUseBlock, ...]


@dataclass(frozen=True, slots=True)
class RefuseTools:
    """Close the open calls without running them.

    The budget is spent (decisions B8), or the response that asked for them was a refusal: then
    what it holds is what was there when it was cut short.
    """

    calls: tuple[ToolUseBlock, ...]
    why: Literal["budget", "refusal"]


@dataclass(frozen=True, slots=True)
class Nudge:
    """Tell the model that its response was empty, once a run (decisions B26)."""


@dataclass(frozen=True, slots=True)
class AskForOutput:
    """Tell the model that its structured output is missing (decisions B11)."""


@dataclass(frozen=True, slots=True)
class AskHooks:
    """Ask hooks between two requests.

    All calls of a response have results (`PostToolBatch`), or the run would end as completed.
    """

    event: Literal["PostToolBatch", "Stop"]


@dataclass(frozen=True, slots=True)
class AwaitSubagents:
    """Wait for a subagent in the background: the run wants to hear of them all before it ends."""

    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Write the result."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class Suggest:
    """The result is there: suggest the next prompt, then end the run."""


Step: TypeAlias = (
    Start
    | AskModel
    | Compact
    | RunTools
    | RefuseTools
    | Nudge
    | AskForOutput
    | AskHooks
    | AwaitSubagents
    | Finish
    | Suggest
)


def next_step(state: LoopState) -> Step:
    """Decide the next step of a run that is not over."""
    if state.result is not None:
        return Suggest()
    if not state.has_started:
        return Start()
    if ended := _ended_as_it_began(state):
        return ended
    if state.open_calls:
        return _next_of_calls(state)
    return _next_of_answer(state) or _before_request(state)


def _next_of_answer(state: LoopState) -> Step | None:
    """Decide what is to be done before another request; None: nothing."""
    if state.hooks.ends is not None:
        return Finish(state.hooks.ends)
    if _has_new_batch(state):
        return AskHooks("PostToolBatch")
    if not state.hooks.goes_on:
        if state.output.valid:
            return _completed(state)
        if state.stop_reason == "refusal":
            return output_step(state) or _completed(state)
        if not state.awaits_model:
            return _after_answer(state)
    if state.output.failed >= state.run.max_output_attempts:
        return Finish("structured_output")
    if state.is_over_budget:
        return Finish("budget")
    if _has_used_up_turns(state):
        return Finish("max_turns")
    return None


def _completed(state: LoopState) -> AskHooks | AwaitSubagents | Finish:
    """Decide how a run ends that the model has brought to its end."""
    if state.run.options.wait_for_subagents and state.stop_reason != "refusal":
        agents = tuple(task.id for task in state.tasks.values() if task.own_run_id)
        if agents:
            return AwaitSubagents(agents)
    event = SubagentStop.name if state.run.thread else Stop.name
    has_hooks = event in state.run.hooks and state.responses > 0
    if has_hooks and state.hooks.stop_of != state.message_id:
        return AskHooks("Stop")
    return Finish("completed")


def _has_new_batch(state: LoopState) -> bool:
    has_results = state.message_id is not None and bool(state.results)
    is_new = has_results and state.hooks.batch_of != state.message_id
    return is_new and PostToolBatch.name in state.run.hooks


def _ended_as_it_began(state: LoopState) -> Finish | None:
    if state.has_command:
        return Finish("nothing_to_compact")  # else the command's run is over already
    if state.missing_servers and not state.responses:
        return Finish("mcp_required")
    return None


def cut_of(state: LoopState, *, is_asked: bool = False) -> int | None:
    """Give where a compaction cuts the context; None if nothing would be gained.

    One that a user asks for keeps as little as possible, as does one that follows another which
    was of no use.
    """
    return cut_point(
        state.context,
        state.used_tokens,
        state.run.window.tail,
        has_summary=state.has_summary,
        keeps_least=is_asked or state.compactions > 0,
    )


def can_make_room(state: LoopState) -> bool:
    """Whether a request that is too long is answered by a compaction."""
    is_allowed = state.run.window.is_auto and state.compactions < MAX_COMPACTIONS
    return is_allowed and cut_of(state) is not None


def _before_request(state: LoopState) -> Step:
    window = state.run.window
    if state.is_compacting:
        return Compact()
    if not window.is_auto:
        return Finish("blocking_limit") if state.tokens >= window.blocked_at else AskModel()
    # Once is enough here: what is still too long after it, the provider says.
    is_full = state.tokens >= window.compact_at and not state.compactions
    return Compact() if is_full and cut_of(state) is not None else AskModel()


def _next_of_calls(state: LoopState) -> Step:
    if state.stop_reason == "refusal":
        return RefuseTools(state.open_calls, "refusal")
    calls = tuple(call for call in state.open_calls if call.id not in state.hooks.deferred)
    if not calls:
        return Finish("tool_deferred")
    # The output costs nothing more, and is the answer that was paid for (decisions B8).
    others = tuple(call for call in calls if not state.is_output(call))
    if state.is_over_budget and others:
        return RefuseTools(others, "budget")
    return RunTools(calls)


def _after_answer(state: LoopState) -> Step:
    if not state.responses and not state.was_nudged:
        return Finish("completed")  # what this run was to tell of was told by another one
    if state.stop_reason == "pause_turn" and state.pauses <= MAX_PAUSES:
        return Finish("budget") if state.is_over_budget else AskModel()
    is_empty = not state.last_text.strip() and state.stop_reason not in FINAL_WITHOUT_TEXT
    if is_empty and not state.was_nudged:
        return Finish("budget") if state.is_over_budget else Nudge()
    return output_step(state) or _completed(state)


def output_step(state: LoopState) -> AskForOutput | Finish | None:
    """Decide what follows a response that ends the run; None when nothing is missing.

    A refusal is not asked again (decisions B6), and is no success without the output (B11).
    """
    if state.run.options.output_format is None:
        return None
    is_last = state.output.failed + 1 >= state.run.max_output_attempts
    if is_last or state.stop_reason == "refusal":
        return Finish("structured_output")
    return Finish("budget") if state.is_over_budget else AskForOutput()


def _has_used_up_turns(state: LoopState) -> bool:
    limit = state.run.options.max_turns
    return limit is not None and state.rounds >= limit
