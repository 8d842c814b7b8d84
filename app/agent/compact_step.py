"""The compaction step: a summary takes the place of older messages.

Theory of operation. `status: compacting` is journalled first, then the model is asked, and what
came of it is one batch: the boundary, the summary, and what the request cost. So a host that is
lost on the way leaves a conversation that is as it was, and the next one asks again. The journal
keeps every message; the summary's facts say how many of them the model still sees, and which is
the first (`app/agent/active.py`).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.agent.compact_hooks import CompactHooks
from app.agent.compacted import Compaction
from app.agent.effects import Effects
from app.agent.failure_step import failure
from app.agent.finish_step import budget_spent
from app.agent.results import status_entry
from app.agent.state import Advance, LoopState
from app.agent.steps import cut_of
from app.agent.summary_request import Written, summarise
from app.domain.journal import Batch


async def compact(state: LoopState, effects: Effects) -> AsyncGenerator[Advance]:
    """Make room for the next request, or end the run: without room there is none."""
    started_s = effects.clock.monotonic()
    if not state.is_compacting:
        begun = state.after(Batch((status_entry("compacting", state, effects, chars=0),)))
        yield begun
        state = begun.state
    hooks = CompactHooks("auto", state, effects)
    if notes := await hooks.before(None):
        noted = state.after(Batch(notes))
        yield noted
        state = noted.state
    cut = cut_of(state)
    if cut is None:  # another host saw a window in which there was something to cut
        ended = status_entry(None, state, effects, result="failed", error="Nothing to compact.")
        yield state.after(Batch((ended,)))
        return
    async with aclosing(summarise(state.context[:cut], "", state, effects)) as parts:
        async for part in parts:
            if isinstance(part, Advance):
                yield part
                state = part.state
            elif part.error is not None:
                yield state.after(_failed(part, state, effects))
            else:
                made = Compaction("auto", part.notes, state.context[cut:], started_s)
                ended = status_entry(None, state, effects, result="success")
                ended_with_hooks = await hooks.after(part.notes, ended)
                entries = (*ended_with_hooks, *made.entries(state, effects))
                yield state.after(Batch(entries, part.ledger))


def _failed(written: Written, state: LoopState, effects: Effects) -> Batch:
    spent = state.apply(Batch(ledger=written.ledger))
    if written.error is None or spent.is_over_budget:
        return budget_spent(spent, effects, written.ledger)
    return failure(written.error, spent, effects, written.ledger, terminal_reason="blocking_limit")
