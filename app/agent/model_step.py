"""The model step: one response, with retries; what failed is discarded whole (decisions B26)."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from app.agent.changes import tools_changed
from app.agent.command import local_command
from app.agent.draft import EMPTY_RESPONSE
from app.agent.effects import Effects, Stamps
from app.agent.events import budget_warnings, usage_snapshot
from app.agent.failure_step import after_failure, billed
from app.agent.finish_step import ending
from app.agent.notices import asked_in, estimate, limit_changed
from app.agent.offer import BETA, offer_of
from app.agent.prompt import system_texts
from app.agent.prompt_hooks import steer
from app.agent.results import note_entry
from app.agent.retracted import OutputWatch
from app.agent.sound import sound_blocks
from app.agent.state import Advance, LoopState
from app.agent.steps import FINAL_WITHOUT_TEXT, Finish, next_step, output_step
from app.agent.structured import MISSING_TEXT, OUTPUT_FACT
from app.domain.blocks import Block, ToolUseBlock
from app.domain.journal import Batch, Entry
from app.domain.messages import (
    ApiMessage,
    ApiRetryMessage,
    AssistantMessage,
    ToolUseMeta,
    WireUsage,
    wire_time,
)
from app.domain.model import ContextMessage, ModelRequest, ModelResponse, StreamPart
from app.domain.tools import ToolCall, ToolSpec
from app.domain.usage import LedgerRow
from app.errors import ModelError

NUDGE_TEXT = "Your last response was empty. Go on with the task, or say what you found."


async def ask_model(state: LoopState, effects: Effects) -> AsyncGenerator[Advance]:
    """Make one try of a model request; after one that failed, wait as long as the next has to.

    The loop comes back for the next try, which is counted by the journal: a host that takes the
    run over goes on counting. Prompts that came meanwhile enter the conversation first (decisions
    B25); before the first response there is nothing yet that they could steer.
    """
    waiting = await effects.inbox.take(steers=True) if state.responses else ()
    # A command that was sent into the run is carried out after it, as a run of its own.
    prompts = [prompt for prompt in waiting if local_command((prompt,)) is None]
    if prompts:
        taken = await steer(prompts, state, effects)
        yield taken
        state = taken.state
        if state.hooks.ends is not None:
            return
    if news := tools_changed(state, effects):
        told = state.after(Batch(news))
        yield told
        state = told.state
    request = build_request(state, effects)
    started = effects.clock.monotonic()
    effects.previews.requesting()
    watch = OutputWatch() if state.run.options.output_format else None
    try:
        response = await _respond(request, effects, watch)
    except ModelError as error:
        cost = billed(error, request, effects, started)
        if limit := limit_changed(error.rate_limit, state, effects):
            told = state.after(Batch(limit))
            yield told
            state = told.state
        failed, wait_s = after_failure(
            error, cost, state, effects, retracts_output=watch is not None and watch.is_whole
        )
        yield failed
        _tell_of_retry(failed, effects)
        if wait_s:
            await effects.clock.sleep(wait_s)
    else:
        yield _final(state.after(answered(response, state, effects)), effects)


def _tell_of_retry(failed: Advance, effects: Effects) -> None:
    """Tell readers of the run of a subagent's retry: its rows are not shown to them."""
    if (thread := failed.state.run.thread) is None:
        return
    for entry in failed.batch.entries:
        if isinstance(entry.message, ApiRetryMessage):
            effects.previews.retrying(thread, entry.message)


def _final(advance: Advance, effects: Effects) -> Advance:
    """Put the result into the batch of the answer that ends the run: one commit for both."""
    state = effects.learn(advance.state)
    step = next_step(state) if state.result is None else None
    if not isinstance(step, Finish):
        return advance
    return advance.then(state.after(ending(step.cause, state, effects)))


async def nudge(state: LoopState, effects: Effects) -> AsyncGenerator[Advance]:
    """Journal the note that answers a response without text and without calls."""
    told = _nudge_entry(state, effects, lost_responses=0, stop_reason=state.stop_reason)
    yield state.after(Batch((told,)))


async def ask_for_output(state: LoopState, effects: Effects) -> AsyncGenerator[Advance]:
    """Journal the note that answers a response without the structured output."""
    told = note_entry(
        MISSING_TEXT, state, effects, is_synthetic=True, facts={OUTPUT_FACT: "missing"}
    )
    yield state.after(Batch((told,)))


def build_request(
    state: LoopState, effects: Effects, messages: tuple[ContextMessage, ...] | None = None
) -> ModelRequest:
    """Build the request for the next response from parts that are encoded already.

    `messages`: another conversation than the state's.
    """
    options = state.run.options
    asked = asked_in(state.model, state, effects)
    has_search = effects.models.abilities(state.model).tool_search
    offer = offer_of(effects.tools.specs(), state.memory, has_search=has_search)
    said = state.request_messages() if messages is None else state.opened(messages)
    return ModelRequest(
        model=state.model,
        max_tokens=effects.models.limits(state.model).max_output,
        system=system_texts(options.system_prompt),
        tools=offer.tools,
        deferred_tools=offer.deferred,
        messages=offer.readable(said, state.memory.loaded),
        effort=asked.effort,
        thinking=asked.thinking,
        task_budget_tokens=options.task_budget.total if options.task_budget else None,
        betas=(*options.betas, BETA) if offer.is_searching else tuple(options.betas),
        metadata_user_id=state.run.session_id,
    )


def answered(response: ModelResponse, state: LoopState, effects: Effects) -> Batch:
    """Give the batch of a complete response: one message a block, journalled together."""
    ledger = (ledger_row(response, effects),)
    limit = limit_changed(response.rate_limit, state, effects)
    blocks = tuple(sound_blocks(response, state.call_ids))
    if blocks:
        entries = [*limit]
        usage, came = WireUsage.of(response.usage), wire_time(effects.clock.now())
        for index, block in enumerate(blocks):
            entries += estimate(block, state, effects)
            told = _block_entry(block, response, usage, came, state, effects, is_first=index == 0)
            entries.append(told)
        events = (*budget_warnings(ledger, state), *usage_snapshot(ledger, state))
        return Batch(tuple(entries), ledger, events=events)
    if state.was_nudged or response.stop_reason in FINAL_WITHOUT_TEXT:
        ended = state.finished_empty(response.stop_reason).apply(Batch(ledger=ledger))
        last = _ended_empty(ended, effects)
        return replace(last, entries=(*limit, *last.entries), ledger=ledger)
    nudged = _nudge_entry(state, effects, lost_responses=1, stop_reason=response.stop_reason)
    return Batch((*limit, nudged), ledger)


def _ended_empty(state: LoopState, effects: Effects) -> Batch:
    """End a run with a response without content, unless its structured output is missing yet."""
    step = output_step(state) or Finish("completed")
    if isinstance(step, Finish):
        return ending(step.cause, state, effects)
    facts = {OUTPUT_FACT: "missing", **_lost(1, state.stop_reason)}
    return Batch((note_entry(MISSING_TEXT, state, effects, is_synthetic=True, facts=facts),))


async def _respond(
    request: ModelRequest, effects: Effects, watch: OutputWatch | None
) -> ModelResponse:
    message_id = None
    publish = effects.previews.publish

    def hear(part: StreamPart) -> None:
        nonlocal message_id
        message_id = part.message_id
        if watch is not None:
            watch.feed(part.event)
        publish(part)

    try:
        response = await effects.model.respond(request, hear)
    except BaseException as error:
        if message_id is not None:
            why = "broken" if isinstance(error, ModelError) else "cancelled"
            effects.previews.abort(message_id, why)
        raise
    effects.previews.complete()
    return response


def _told(block: ToolUseBlock, spec: ToolSpec, effects: Effects) -> ToolUseBlock:
    """Put in what a valid call leaves out and its tool wants to be told."""
    if not spec.told_defaults:
        return block
    if effects.tools.invalid(ToolCall(block.id, block.name, block.input)) is not None:
        return block
    return block.model_copy(update={"input": {**spec.told_defaults, **block.input}})


def _block_entry(
    block: Block,
    response: ModelResponse,
    usage: WireUsage,
    came: str,
    state: LoopState,
    effects: Effects,
    *,
    is_first: bool,
) -> Entry:
    meta = None
    if isinstance(block, ToolUseBlock) and (spec := effects.tools.spec(block.name)) is not None:
        block, meta = _told(block, spec, effects), _meta(block, spec)
    is_first_answer = is_first and state.ttft_ms is None
    uuids = list(state.client_uuids) if is_first_answer else []
    return Entry.of(
        AssistantMessage(
            session_id=state.run.session_id,
            uuid=effects.clock.uuid(),
            message=ApiMessage(
                id=response.id,
                model=response.model,
                content=[block],
                stop_reason=response.stop_reason,
                stop_sequence=response.stop_sequence,
                usage=usage,
            ),
            timestamp=came,
            tool_use_meta=meta,
            user_message_uuid=uuids[0] if uuids else None,
            user_message_uuids=uuids or None,
        ),
        {"ttft_ms": response.ttft_ms} if is_first_answer else None,
    )


def _meta(block: ToolUseBlock, spec: ToolSpec) -> list[ToolUseMeta] | None:
    """Say whose tool a call is for; nothing for the service's own."""
    source = spec.source
    if source is None:
        return None
    title = source.title or source.name
    told = ToolUseMeta(
        id=block.id,
        display_name=title,
        server_display_name=source.server,
        tool_name=source.name,
    )
    return [told]


def _nudge_entry(
    state: LoopState, effects: Effects, *, lost_responses: int, stop_reason: str | None
) -> Entry:
    facts = _lost(lost_responses, stop_reason)
    return note_entry(NUDGE_TEXT, state, effects, is_synthetic=True, facts=facts)


def _lost(responses: int, stop_reason: str | None) -> dict[str, Any]:
    return {EMPTY_RESPONSE: {"responses": responses, "stop_reason": stop_reason}}


def ledger_row(response: ModelResponse, effects: Stamps) -> LedgerRow:
    """Give the ledger row of a response that came to its end."""
    return LedgerRow(
        model=response.model,
        usage=response.usage,
        cost_usd=effects.models.cost_usd(response.model, response.usage, effects.clock.now()),
        request_id=response.request_id,
        duration_ms=response.duration_ms,
    )
