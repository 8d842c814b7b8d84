"""What a lost host's model request cost: an estimate, since nobody heard its end (decisions B17)."""

from app.agent.effects import Effects
from app.agent.finish_step import lost_summary
from app.agent.model_step import build_request
from app.agent.state import LoopState
from app.agent.steps import AskModel, next_step
from app.domain.journal import Batch
from app.domain.usage import LedgerRow, Usage

BYTES_PER_TOKEN = 4


def lost_request(state: LoopState, effects: Effects) -> Batch | None:
    """Give the ledger row of the request that was in flight when the last host was lost.

    None when the journal shows that none can have been. The host may have died just before it
    asked; an estimate that is too high is better than money that nobody counted.
    """
    if state.result is not None or not (state.has_started or state.is_compacting):
        return None
    if rows := lost_summary(state, effects):
        return Batch(ledger=rows)
    if not isinstance(next_step(state), AskModel):
        return None
    request = build_request(state, effects)
    size = sum(len(block) for message in request.messages for block in message.blocks)
    size += sum(len(text) for text in request.system) + sum(len(tool) for tool in request.tools)
    usage = Usage(input_tokens=size // BYTES_PER_TOKEN)
    row = LedgerRow(
        model=request.model,
        usage=usage,
        cost_usd=effects.models.cost_usd(request.model, usage, effects.clock.now()),
        http_status=None,
        estimated=True,
    )
    return Batch(ledger=(row,))
