"""What a lost host's model request cost: an estimate, since nobody heard its end (decisions B17)."""

from app.agent.broken_off import lost_summary
from app.agent.effects import Effects
from app.agent.model_step import build_request
from app.agent.state import LoopState
from app.agent.steps import AskModel, RunTools, Suggest, next_step
from app.agent.subagents import child_effects
from app.agent.suggest_step import estimated, lost_suggestion
from app.agent.thread_rows import row_of_thread
from app.domain.blocks import ToolUseBlock
from app.domain.journal import Batch
from app.domain.usage import LedgerRow


def lost_request(state: LoopState, effects: Effects) -> Batch | None:
    """Give the ledger rows of the requests that were in flight when the last host was lost.

    None when the journal shows that none can have been. The host may have died just before it
    asked; an estimate that is too high is better than money that nobody counted. Each subagent
    whose call is open may have asked something too.
    """
    rows = _lost_rows(state, effects)
    return Batch(ledger=rows) if rows else None


def _lost_rows(state: LoopState, effects: Effects) -> tuple[LedgerRow, ...]:
    if state.is_over or not (state.has_started or state.is_compacting):
        return ()
    if rows := lost_summary(state, effects):
        return rows
    match next_step(state):
        case Suggest():
            return (lost_suggestion(state, effects),)
        case AskModel():
            return (estimated(build_request(state, effects), effects),)
        case RunTools(calls):
            beside = (effects.side.lost() for call in calls if _may_have_asked(call, effects))
            return (*beside, *_of_threads(state, effects))
        case _:
            return _of_threads(state, effects)


def _of_threads(state: LoopState, effects: Effects) -> tuple[LedgerRow, ...]:
    return tuple(
        row_of_thread(row, key)
        for key, child in state.threads.items()
        for row in _lost_rows(child, child_effects(child, effects))
    )


def _may_have_asked(call: ToolUseBlock, effects: Effects) -> bool:
    spec = effects.tools.spec(call.name)
    return spec is not None and spec.asks_model
