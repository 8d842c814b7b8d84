"""The end of a run that was broken off: stopped by its client, or unable to go on."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from app.agent.effects import Stamps
from app.agent.finish_step import budget_spent
from app.agent.launch import BUDGET_TEXT
from app.agent.result_batch import denial_of, result_batch
from app.agent.results import LOST_TEXT, note_entry, result_entry
from app.agent.state import LoopState
from app.agent.thread_rows import row_of_thread, threads_killed
from app.domain.blocks import TextBlock, ToolUseBlock
from app.domain.journal import Batch, Entry
from app.domain.messages import (
    ApiMessage,
    AssistantMessage,
    WireUsage,
    wire_time,
)
from app.domain.model import PartialResponse
from app.domain.runs import EndReason
from app.domain.tools import ToolResult
from app.domain.usage import LedgerRow, Usage

INTERRUPTED_TEXT = "The user stopped the run before this call finished; its effect is unknown."


UNSTARTED_TEXT = "The user stopped the run before this call began, so it did nothing."


CUT_TEXT = "The run ended while this tool was running; its effect is unknown."


UNMADE_TEXT = "The run ended before this call was carried out; it changed nothing."


NOTHING_OPEN: Mapping[str, PartialResponse] = {}


BY_CLIENTS = frozenset({"cancelled", "superseded"})
"""Ends that a client brought about."""
INTERRUPT_MARKER = "[Request interrupted by user]"


INTERRUPT_MARKER_TOOLS = "[Request interrupted by user for tool use]"


def interrupted(
    state: LoopState,
    effects: Stamps,
    *,
    end_reason: EndReason = "cancelled",
    partial: PartialResponse | None = None,
    asides: Mapping[str, PartialResponse] = NOTHING_OPEN,
    begun: Collection[str] = (),
    refused: Collection[str] = (),
) -> Batch:
    """End a run that its client cancelled (loop 5).

    `begun` names the calls that were running; calls of a lost attempt may have run too. `asides`:
    responses to subagents, by call, which were cut as well. `refused` names calls that a person was
    asked about: they count as denials.

    Text of a cut response is kept as an aborted block, and what it cost is estimated; open calls
    are closed with a rejection; then comes the marker.
    """
    open_calls = state.open_calls
    denials = (denial_of(call) for call in open_calls if call.id in refused)
    state = replace(state, denials=(*state.denials, *denials))
    marker = INTERRUPT_MARKER_TOOLS if open_calls else INTERRUPT_MARKER
    ledger = (row_of_cut(partial, effects),) if partial else lost_summary(state, effects)
    ledger += tuple(
        row_of_thread(row_of_cut(cut, effects), call_id) for call_id, cut in asides.items()
    )
    return result_batch(
        state.apply(Batch(ledger=ledger)),
        effects,
        subtype="error_during_execution",
        terminal_reason="aborted_tools" if open_calls else "aborted_streaming",
        end_reason=end_reason,
        errors=("The run was cancelled.",),
        ledger=ledger,
        before=(
            *_aborted(partial, state, effects),
            *(_rejection(call, state, effects, begun) for call in open_calls),
            *threads_killed(
                open_calls, state, effects, "user" if end_reason in BY_CLIENTS else "system"
            ),
            note_entry(marker, state, effects),
        ),
    )


def stopped_at_budget(
    state: LoopState,
    effects: Stamps,
    *,
    partial: PartialResponse | None,
    asides: Mapping[str, PartialResponse],
) -> Batch:
    """End a subagent in the background that others have left no budget, whatever it was at.

    What it had under way is estimated, as in a run that was cancelled.
    """
    ledger = (row_of_cut(partial, effects),) if partial else lost_summary(state, effects)
    ledger += tuple(
        row_of_thread(row_of_cut(cut, effects), call_id) for call_id, cut in asides.items()
    )
    calls = state.open_calls
    refused = ToolResult(BUDGET_TEXT, is_error=True)
    closed = tuple(result_entry(call.id, refused, state, effects) for call in calls)
    ended = budget_spent(state.apply(Batch(ledger=ledger)), effects, ledger)
    killed = threads_killed(calls, state, effects)
    return replace(ended, entries=(*killed, *closed, *ended.entries))


def abandoned(
    state: LoopState,
    effects: Stamps,
    *,
    end_reason: EndReason,
    why: str,
    unbegun: Collection[str] = (),
) -> Batch:
    """End a run that cannot go on: cost from the ledger, open calls told as lost.

    `unbegun` names open calls that have certainly not begun. A run that lost its hosts has no stop
    reason (decisions B17); every other keeps that of its last finished response.
    """
    lost = LOST_TEXT if end_reason == "worker_lost" else CUT_TEXT
    texts = {call.id: UNMADE_TEXT if call.id in unbegun else lost for call in state.open_calls}
    return result_batch(
        state,
        effects,
        subtype="error_during_execution",
        terminal_reason=None,
        end_reason=end_reason,
        errors=(why,),
        has_stop_reason=end_reason != "worker_lost",
        before=(
            *threads_killed(state.open_calls, state, effects),
            *(
                result_entry(call_id, ToolResult(text, is_error=True), state, effects)
                for call_id, text in texts.items()
            ),
        ),
    )


def _rejection(
    call: ToolUseBlock, state: LoopState, effects: Stamps, begun: Collection[str]
) -> Entry:
    may_have_run = call.id in begun or call.id in state.unsure or call.id in state.threads
    result = ToolResult(INTERRUPTED_TEXT if may_have_run else UNSTARTED_TEXT, is_error=True)
    return result_entry(call.id, result, state, effects, rejected_by="user")


def _aborted(
    partial: PartialResponse | None, state: LoopState, effects: Stamps
) -> tuple[Entry, ...]:
    if partial is None:
        return ()
    messages = (
        AssistantMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            message=ApiMessage(
                id=partial.message_id,
                model=partial.model,
                content=[TextBlock(text=text)],
                stop_reason=None,
                usage=WireUsage.of(partial.usage),
            ),
            timestamp=wire_time(effects.clock.now()),
            aborted=True,
        )
        for text in partial.texts
    )
    return tuple(Entry.of(message) for message in messages)


def lost_summary(state: LoopState, effects: Stamps) -> tuple[LedgerRow, ...]:
    """Give the ledger row of a summary that was under way, if one was: an estimate."""
    if not state.is_compacting:
        return ()
    usage = Usage(input_tokens=state.used_tokens)
    cost_usd = effects.models.cost_usd(state.model, usage, effects.clock.now())
    return (
        LedgerRow(state.model, usage, cost_usd, "compaction", http_status=None, estimated=True),
    )


def row_of_cut(partial: PartialResponse, effects: Stamps) -> LedgerRow:
    """Give the ledger row of a response that was cut off: an estimate."""
    usage = partial.usage
    return LedgerRow(
        model=partial.model,
        usage=usage,
        cost_usd=effects.models.cost_usd(partial.model, usage, effects.clock.now()),
        http_status=None,
        estimated=True,
    )
