"""What comes after a result when the client asked for it: the next prompt, as the model guesses it.

Theory of operation. The result is durable, and shown, before the model is asked: nobody waits for a
suggestion to know how a run ended. So the run is not over with its result: the suggestion, what it
cost and the run's outcome are one batch. Whatever happens in between, the run ends as its result
says: a host that takes over asks again; a cancel, a deadline or a drain ends it without one.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from app.agent.conversation import followed, said_so_far
from app.agent.effects import Effects
from app.agent.failure_step import billed
from app.agent.model_step import build_request, ledger_row
from app.agent.state import Advance, LoopState
from app.domain.blocks import TextBlock, encode_block
from app.domain.journal import Batch, Entry
from app.domain.model import ModelRequest, ModelResponse
from app.domain.notices import PromptSuggestionMessage
from app.domain.results import ResultMessage, SuccessResult
from app.domain.runs import Outcome
from app.domain.usage import LedgerRow, Usage
from app.errors import ModelError

SUGGEST_S = 10.0
MAX_TOKENS = 200
MAX_CHARS = 300
NOTHING = "-"
TASK = (
    "Do not go on with the task. Guess what the user will send next, and write that message alone, "
    "in the user's own words and language: one line of at most fifteen words, without quotes. Call "
    f"no tool. If nothing suggests itself, write only {NOTHING}"
)
BYTES_PER_TOKEN = 4


async def suggest(
    state: LoopState, effects: Effects, *, within_s: float = SUGGEST_S
) -> AsyncGenerator[Advance]:
    """Ask once for the next prompt, then end the run, with or without it."""
    request = suggestion_request(state, effects)
    text, ledger = await _ask(request, effects, within_s)
    entries = (_entry(text, state, effects),) if text else ()
    yield state.after(replace(closed_by_result(state), entries=entries, ledger=ledger))


def closed_by_result(state: LoopState) -> Batch:
    """Give the batch that ends a run which has its result already."""
    if state.result is None:
        raise ValueError("the run has no result")
    return Batch(outcome=_outcome_of(state.result))


def _outcome_of(result: ResultMessage) -> Outcome:
    if not isinstance(result, SuccessResult):
        raise TypeError("only a success is followed by a suggestion")
    return Outcome(
        subtype=result.subtype,
        end_reason="completed",
        is_error=False,
        stop_reason=result.stop_reason,
        terminal_reason=result.terminal_reason,
        num_turns=result.num_turns,
        result_text=result.result,
        permission_denials=tuple(result.permission_denials),
    )


def suggestion_request(state: LoopState, effects: Effects) -> ModelRequest:
    """Ask at the end of the conversation, so that all before it is cached. A small answer will do."""
    asked = encode_block(TextBlock(text=TASK))
    request = build_request(state, effects, followed(said_so_far(state), (asked,)))
    return replace(
        request, max_tokens=MAX_TOKENS, effort=None, thinking=None, task_budget_tokens=None
    )


def estimated(request: ModelRequest, effects: Effects) -> LedgerRow:
    """Give the ledger row of a request whose end nobody heard: an estimate."""
    size = sum(len(block) for message in request.messages for block in message.blocks)
    size += sum(len(text) for text in request.system) + sum(len(tool) for tool in request.tools)
    usage = Usage(input_tokens=size // BYTES_PER_TOKEN)
    return LedgerRow(
        model=request.model,
        usage=usage,
        cost_usd=effects.models.cost_usd(request.model, usage, effects.clock.now()),
        http_status=None,
        estimated=True,
    )


def lost_suggestion(state: LoopState, effects: Effects) -> LedgerRow:
    """Give the ledger row of a suggestion that nobody waits for any more."""
    return replace(estimated(suggestion_request(state, effects), effects), purpose="suggestion")


async def _ask(
    request: ModelRequest, effects: Effects, within_s: float
) -> tuple[str, tuple[LedgerRow, ...]]:
    started = effects.clock.monotonic()
    rows: tuple[LedgerRow, ...]
    text = ""
    try:
        async with asyncio.timeout(within_s):
            response = await effects.model.respond(request)
    except TimeoutError:
        rows = (estimated(request, effects),)
    except ModelError as error:
        rows = billed(error, request, effects, started)
    else:
        rows = (ledger_row(response, effects),)
        text = suggestion_in(response)
    return text, tuple(replace(row, purpose="suggestion") for row in rows)


def suggestion_in(response: ModelResponse) -> str:
    """Give the one line that a response suggests; nothing where it holds none."""
    if response.stop_reason == "refusal":
        return ""
    texts = [block.text for block in response.blocks if isinstance(block, TextBlock)]
    lines = [line.strip() for line in "\n".join(texts).splitlines()]
    line = next((line for line in lines if line), "").strip("\"'`“”").strip()
    return "" if line == NOTHING else line[:MAX_CHARS]


def _entry(text: str, state: LoopState, effects: Effects) -> Entry:
    return Entry.of(
        PromptSuggestionMessage(
            session_id=state.run.session_id, uuid=effects.clock.uuid(), suggestion=text
        )
    )
