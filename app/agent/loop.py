"""The loop: decide, perform, hand over what becomes durable, repeat."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import assert_never

from app.agent.begin_step import begin
from app.agent.changes import untold, with_current_options
from app.agent.compact_step import compact
from app.agent.effects import Effects, nothing_new
from app.agent.finish_step import finish
from app.agent.hook_points import tell_of_failure
from app.agent.model_step import ask_for_output, ask_model, nudge
from app.agent.state import Advance, LoopState
from app.agent.steps import (
    AskForOutput,
    AskHooks,
    AskModel,
    AwaitSubagents,
    Compact,
    Finish,
    Nudge,
    RefuseTools,
    RunTools,
    Start,
    Step,
    Suggest,
    next_step,
)
from app.agent.stop_step import ask_hooks
from app.agent.suggest_step import suggest
from app.agent.task_notes import end_awaited, with_ends_told
from app.agent.tool_step import refuse_tools, run_tools
from app.domain.journal import Batch

_NOTHING = Batch()


async def run_agent(
    state: LoopState, effects: Effects, learn: Callable[[LoopState], LoopState] = nothing_new
) -> AsyncGenerator[Advance]:
    """Drive a run from `state` to its result, and to the suggestion after it if one is wanted.

    The caller stores each batch before asking for the next: no tool runs before the message
    that asked for it is durable. To resume, fold the journal and call again. Closing the
    generator stops tools and the model request that are under way. `learn` gives what the state
    learns from elsewhere before each step.
    """
    await effects.servers.settle(state.memory.servers)
    while not state.is_over:
        state = learn(state)
        is_told = state.has_started and state.result is None
        if is_told and (events := effects.servers.news()):
            yield state.after(Batch(events=tuple(events)))
        if rows := effects.side.settle():
            settled = state.after(Batch(ledger=rows))
            yield settled
            state = settled.state
        state = await with_current_options(state, effects)
        if told := untold(state, effects):
            changed = state.after(Batch(told))
            yield changed
            state = changed.state
        async with aclosing(perform(next_step(state), state, effects)) as advances:
            async for advance in advances:
                if advance.batch.outcome is not None:
                    await tell_of_failure(advance, state, effects)
                if advance.batch != _NOTHING:
                    yield advance
                state = advance.state


def perform(step: Step, state: LoopState, effects: Effects) -> AsyncGenerator[Advance]:
    """Give what a step makes durable, batch by batch."""
    match step:
        case Start() | AskModel():
            take = begin if isinstance(step, Start) else ask_model
            return with_ends_told(take, state, effects) if state.tasks else take(state, effects)
        case Compact():
            return compact(state, effects)
        case RunTools(calls):
            return run_tools(calls, state, effects, run_agent)
        case RefuseTools(calls, why):
            return refuse_tools(calls, why, state, effects)
        case Nudge() | AskForOutput():
            return (nudge if isinstance(step, Nudge) else ask_for_output)(state, effects)
        case AskHooks(event):
            return ask_hooks(event, state, effects)
        case AwaitSubagents(task_ids):
            return end_awaited(task_ids, state, effects)
        case Finish(cause):
            return finish(cause, state, effects)
        case Suggest():
            return suggest(state, effects)
        case _:
            assert_never(step)
