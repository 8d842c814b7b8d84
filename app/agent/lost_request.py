"""What a lost host's model request cost: an estimate, since nobody heard its end (decisions B17)."""

from app.agent.effects import Effects
from app.agent.finish_step import lost_summary
from app.agent.model_step import build_request
from app.agent.state import LoopState
from app.agent.steps import AskModel, RunTools, Suggest, next_step
from app.agent.suggest_step import estimated, lost_suggestion
from app.domain.blocks import ToolUseBlock
from app.domain.journal import Batch


def lost_request(state: LoopState, effects: Effects) -> Batch | None:
    """Give the ledger row of the request that was in flight when the last host was lost.

    None when the journal shows that none can have been. The host may have died just before it
    asked; an estimate that is too high is better than money that nobody counted.
    """
    if state.is_over or not (state.has_started or state.is_compacting):
        return None
    if rows := lost_summary(state, effects):
        return Batch(ledger=rows)
    match next_step(state):
        case Suggest():
            return Batch(ledger=(lost_suggestion(state, effects),))
        case AskModel():
            return Batch(ledger=(estimated(build_request(state, effects), effects),))
        case RunTools(calls):
            rows = tuple(effects.side.lost() for call in calls if _may_have_asked(call, effects))
            return Batch(ledger=rows) if rows else None
        case _:
            return None


def _may_have_asked(call: ToolUseBlock, effects: Effects) -> bool:
    spec = effects.tools.spec(call.name)
    return spec is not None and spec.asks_model
