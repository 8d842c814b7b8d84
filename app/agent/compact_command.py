"""`/compact`: a run that makes no answer but a summary of the conversation so far.

All of it is one batch, after `status: compacting`: the run's opening, the summary and the end. So
there is no moment at which the command is taken in and not carried out.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from app.agent.command import COMMAND_SAID, COMPACT, said_by
from app.agent.compact_hooks import CompactHooks
from app.agent.compacted import Compaction
from app.agent.effects import Effects
from app.agent.failure_step import failure
from app.agent.finish_step import budget_spent
from app.agent.result_batch import result_batch
from app.agent.results import status_entry
from app.agent.start_step import opening
from app.agent.state import Advance, LoopState
from app.agent.steps import cut_of
from app.agent.summary_request import Written, summarise
from app.domain.briefing import Briefing
from app.domain.journal import Batch, Entry
from app.domain.messages import Prompt, UserContent, UserMessage, wire_time

STDOUT = "<local-command-stdout>Compacted</local-command-stdout>"


@dataclass(frozen=True, slots=True)
class Asked:
    """What begins the run."""

    prompts: Sequence[Prompt]
    """The command alone."""
    instructions: str
    briefing: Briefing


async def compact_by_command(
    asked: Asked, state: LoopState, effects: Effects
) -> AsyncGenerator[Advance]:
    """Carry the command out, whose run has not begun. The conversation can be cut."""
    started_s, cut = effects.clock.monotonic(), cut_of(state, is_asked=True)
    if not state.is_compacting:
        begun = state.after(Batch((status_entry("compacting", state, effects),)))
        yield begun
        state = begun.state
    hooks = CompactHooks("manual", state, effects)
    if notes := await hooks.before(asked.instructions or None):
        noted = state.after(Batch(notes))
        yield noted
        state = noted.state
    async with aclosing(
        summarise(state.context[:cut], asked.instructions, state, effects)
    ) as parts:
        async for part in parts:
            if isinstance(part, Advance):
                yield part
                state = part.state
            else:
                made = Compaction("manual", part.notes, state.context[cut:], started_s)
                status = await _status(part, hooks, state, effects)
                yield state.after(_whole_run(part, made, status, asked, state, effects))


async def _status(
    written: Written, hooks: CompactHooks, state: LoopState, effects: Effects
) -> tuple[Entry, ...]:
    """Say how it ended; hooks are asked about a summary."""
    if written.error is not None:
        why = written.error.message
        return (status_entry(None, state, effects, result="failed", error=why),)
    return await hooks.after(written.notes, status_entry(None, state, effects, result="success"))


def _whole_run(
    written: Written,
    made: Compaction,
    status: tuple[Entry, ...],
    asked: Asked,
    state: LoopState,
    effects: Effects,
) -> Batch:
    error = written.error
    opened = opening(
        asked.prompts,
        state,
        effects.tools.specs(),
        effects,
        asked.briefing,
        servers=effects.servers.readiness(),
    )
    begun = replace(opened, entries=(*status, *opened.entries), ledger=written.ledger)
    state = state.apply(begun)
    if error is not None:
        is_spent = state.is_over_budget
        ended = budget_spent(state, effects) if is_spent else failure(error, state, effects)
    else:
        done = Batch((*made.entries(state, effects), _printed(asked.prompts[0], state, effects)))
        begun = replace(begun, entries=(*begun.entries, *done.entries))
        ended = result_batch(state.apply(done), effects, local_command=COMPACT)
    return replace(
        ended,
        entries=(*begun.entries, *ended.entries),
        ledger=begun.ledger,
        consumed=begun.consumed,
        steered=begun.steered,
    )


def _printed(prompt: Prompt, state: LoopState, effects: Effects) -> Entry:
    message = UserMessage(
        session_id=state.run.session_id,
        uuid=effects.clock.uuid(),
        message=UserContent(content=STDOUT),
        timestamp=wire_time(effects.clock.now()),
        isReplay=True,
    )
    return Entry.of(message, {COMMAND_SAID: said_by(prompt)})
