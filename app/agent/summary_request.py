"""Asking the model for the summary of a conversation, until it is written or cannot be."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import TypeAlias

from app.agent.effects import Effects
from app.agent.events import model_retry
from app.agent.failure_step import billed, retry_entry
from app.agent.model_step import build_request, ledger_row
from app.agent.retries import may_retry, retry_delay_s
from app.agent.state import Advance, LoopState
from app.compaction.summary import LEFT_OUT, notes_of, task
from app.domain.blocks import TextBlock, encode_block
from app.domain.journal import Batch
from app.domain.model import ContextMessage, ModelRequest
from app.domain.usage import LedgerRow
from app.errors import ContextTooLong, ModelError, ModelRejected

Head: TypeAlias = tuple[ContextMessage, ...]
"""The messages that go: the last is the user's."""


@dataclass(frozen=True, slots=True)
class Written:
    """What came of it: the notes, or why there are none."""

    notes: str
    ledger: tuple[LedgerRow, ...]
    """What it cost and is not stored yet."""
    error: ModelError | None = None


async def summarise(
    head: Head, instructions: str, state: LoopState, effects: Effects
) -> AsyncGenerator[Advance | Written]:
    """Yield what retries make durable, then the outcome, last.

    An answer that cannot be used is asked for once more, in stricter words. Where the messages
    do not fit, the older half of them is left out, again and again. Nothing is shown to readers
    of partial messages: it is no part of the conversation.
    """
    ledger: tuple[LedgerRow, ...] = ()
    whole, is_strict = head, False
    while True:
        request = _request(head, task(instructions, is_strict=is_strict), state, effects)
        started = effects.clock.monotonic()
        try:
            response = await effects.model.respond(request)
        except ModelError as error:
            ledger += _of_compaction(billed(error, request, effects, started))
            shorter = _without_older_half(head) if isinstance(error, ContextTooLong) else None
            if shorter is not None:
                head = shorter
                continue
            failures, rules = (*state.failures, error.category), state.run.retries
            is_spent = state.apply(Batch(ledger=ledger)).is_over_budget
            if is_spent or not may_retry(error, failures, rules):
                yield Written("", ledger, error)
                return
            delay_s = retry_delay_s(len(failures), error, effects.clock.jitter(), rules)
            told = retry_entry(error, len(failures), delay_s, state, effects)
            events = model_retry(error, len(failures), delay_s, effects)
            retried = state.after(Batch((told,), ledger, events=events))
            yield retried
            state, ledger = retried.state, ()
            # A host that takes over here knows no more than the journal: so it is for all.
            head, is_strict = whole, False
            await effects.clock.sleep(delay_s)
        else:
            ledger += _of_compaction((ledger_row(response, effects),))
            texts = [block.text for block in response.blocks if isinstance(block, TextBlock)]
            if notes := notes_of("\n".join(texts), response.stop_reason):
                yield Written(notes, ledger)
                return
            if is_strict or state.apply(Batch(ledger=ledger)).is_over_budget:
                yield Written("", ledger, _useless())
                return
            is_strict = True


def _request(head: Head, asked: str, state: LoopState, effects: Effects) -> ModelRequest:
    """Ask at the end of what goes: so all before it is as it was in earlier requests, and cached."""
    newest = head[-1].plus((encode_block(TextBlock(text=asked)),), ())
    return build_request(state, effects, (*head[:-1], newest))


def _without_older_half(head: Head) -> Head | None:
    """Give the newer half behind a note; None if nothing is gained. Pairs stay together."""
    note = ContextMessage("user", (encode_block(TextBlock(text=LEFT_OUT)),))
    newer = range(len(head) // 2, len(head))
    at = next((n for n in newer if head[n].role == "assistant"), None)
    return None if at is None or head[:at] == (note,) else (note, *head[at:])


def _of_compaction(rows: tuple[LedgerRow, ...]) -> tuple[LedgerRow, ...]:
    return tuple(replace(row, purpose="compaction") for row in rows)


def _useless() -> ModelError:
    return ModelRejected(
        "The model's answer held no summary of the conversation.", category="unknown"
    )
