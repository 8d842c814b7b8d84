"""The state of a run: a fold of the session's journal, and nothing else.

Theory of operation. The conversation is kept as the model will see it: `context` holds closed
messages, oldest first; what came after the newest response stands apart as `results` (tool
results by call) and `notes` (prompts, markers, nudges), because results arrive in completion
order but are sent in the order of their calls (decisions B2), and because user messages in a row
are one message to the model. `request_messages` puts the two together. Counters are those of the
current run: entering a run resets them, so folding the whole journal leaves the newest run's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from app.domain.blocks import TextBlock, ToolResultBlock, ToolUseBlock, encode_block
from app.domain.journal import Batch
from app.domain.messages import (
    AssistantMessage,
    InitMessage,
    Message,
    ResultMessage,
    UserMessage,
)
from app.domain.model import ContextMessage
from app.domain.options import AgentOptions
from app.domain.tools import ToolFacts, ToolMemory
from app.domain.usage import Spend

STEER_NOTICE = (
    "While you were working, the user sent the message below. Take it into account from here on, "
    "and go on with the task unless it says otherwise:\n\n"
)
EMPTY_RESPONSE = "empty_response"
"""Fact on the nudge that follows a response without content: the response itself is no row."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a run is given: fixed for its whole life."""

    session_id: str
    run_id: str
    options: AgentOptions
    """Effective: model resolved, limits filled in."""
    cwd: str = "/workspace"
    api_key_source: str = "none"
    version: str = ""
    sandbox: str = "bubblewrap"
    max_retries: int = 10
    elapsed_ms: int = 0
    """Of earlier attempts of the run, since its first claim."""
    began_s: float = 0.0
    """Monotonic time at which this attempt began."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """Where a run stands. Pure data; `next_step` decides from it what happens next."""

    run: RunInfo
    context: tuple[ContextMessage, ...] = ()
    calls: tuple[ToolUseBlock, ...] = ()
    """Tool uses of the newest response, in order."""
    results: Mapping[str, bytes] = field(default_factory=dict)
    """Encoded results of those calls, by tool use id."""
    notes: tuple[bytes, ...] = ()
    """Encoded user blocks that came after the newest response and its results."""
    memory: ToolMemory = field(default_factory=ToolMemory)
    spent_before: Spend = field(default_factory=Spend)
    """The session's spend before this run, inherited spend of a fork included."""
    spend: Spend = field(default_factory=Spend)
    """This run's spend, earlier attempts included."""
    has_started: bool = False
    """Whether the run's `init` and prompts are in the journal."""
    responses: int = 0
    """Completed main-thread responses of the run: the wire's `num_turns`."""
    rounds: int = 0
    """Responses of the run that asked for tools: counted against `max_turns`."""
    pauses: int = 0
    """`pause_turn` responses in a row."""
    was_nudged: bool = False
    """Whether an empty response was already answered by a nudge in this run."""
    message_id: str | None = None
    """Of the newest response."""
    stop_reason: str | None = None
    """Of the run's newest finished response."""
    last_text: str = ""
    """The last text block of the newest response."""
    denials: tuple[dict[str, Any], ...] = ()
    unsure: frozenset[str] = frozenset()
    """Calls that an earlier attempt may have started: their outcome is unknown."""
    ttft_ms: int | None = None
    """From the first request of the run to the first event of its answer."""
    client_uuids: tuple[str, ...] = ()
    """Uuids that the client chose for the prompts of this run."""
    result: ResultMessage | None = None
    """Set once; the run is over."""

    # -- folding --------------------------------------------------------------------------

    def apply(self, batch: Batch) -> "LoopState":
        """Give the state after a batch became durable. Total and pure."""
        state = self
        for entry in batch.entries:
            state = state.record(entry.message, entry.facts)
        for row in batch.ledger:
            state = replace(state, spend=state.spend.plus(row))
        return state

    def record(self, message: Message, facts: Mapping[str, Any] | None) -> "LoopState":
        """Give the state after one journalled message."""
        state = _remember(self, facts) if facts else self
        match message:
            case AssistantMessage():
                return state if message.error else _answered(state, message)
            case UserMessage():
                return _heard(state, message, is_steered=bool(facts and facts.get("steered")))
            case ResultMessage():
                return replace(state, result=message)
            case InitMessage():
                return replace(state, has_started=True)
            case _:
                return state

    def enter(self, run: RunInfo) -> "LoopState":
        """Give the state in which `run` begins: the conversation stays, counters restart."""
        return LoopState(
            run=run,
            context=self.context,
            calls=self.calls,
            results=self.results,
            notes=self.notes,
            memory=self.memory,
        )

    def resume(self) -> "LoopState":
        """Give the state in which a new attempt begins: open calls may have been started."""
        return replace(self, unsure=frozenset(call.id for call in self.open_calls))

    def finished_empty(self, stop_reason: str | None) -> "LoopState":
        """Give the state after a response without content that ends the run."""
        return replace(self, responses=self.responses + 1, stop_reason=stop_reason, last_text="")

    # -- what follows from it -------------------------------------------------------------

    def call_ids(self) -> set[str]:
        """Give the ids of all calls in the conversation: a request must not hold one twice."""
        return {
            orjson.loads(block[: block.index(b',"name":')] + b"}")["id"]
            for message in self.context
            for block in message.blocks
            if block.startswith(b'{"type":"tool_use",')
        }

    @property
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """Calls of the newest response that have no result yet, in order."""
        return tuple(call for call in self.calls if call.id not in self.results)

    @property
    def awaits_model(self) -> bool:
        """Whether the user side spoke last."""
        return bool(self.results or self.notes)

    @property
    def is_over_budget(self) -> bool:
        budget = self.run.options.max_budget_usd
        return budget is not None and self.spend.cost_usd >= budget

    def request_messages(self) -> tuple[ContextMessage, ...]:
        """Give the conversation as a request holds it: roles alternate, results in call order."""
        ordered = tuple(self.results[call.id] for call in self.calls if call.id in self.results)
        tail = (*ordered, *self.notes)
        if not tail:
            return self.context
        if self.context and self.context[-1].role == "user":
            newest = self.context[-1]
            merged = ContextMessage("user", (*newest.blocks, *tail))
            return (*self.context[:-1], merged)
        return (*self.context, ContextMessage("user", tail))


def fold(
    rows: Iterable[tuple[str | None, Message, Mapping[str, Any] | None]],
    run: RunInfo,
    *,
    spent_before: Spend,
    spend: Spend,
) -> LoopState:
    """Give the state of `run` from a session's journal rows `(run_id, message, facts)`.

    Rows come oldest first; one without a run belongs to the run before it. Sums of money come
    from the ledger, not from messages.
    """
    state = LoopState(run)
    current: str | None = None
    for run_id, message, facts in rows:
        if run_id is not None and run_id != current:
            state, current = state.enter(run), run_id
        state = state.record(message, facts)
    if current != run.run_id:
        state = state.enter(run)
    return replace(state.resume(), spent_before=spent_before, spend=spend)


def _remember(state: LoopState, facts: Mapping[str, Any]) -> LoopState:
    if tool := facts.get("tool"):
        state = replace(state, memory=state.memory.plus(ToolFacts.from_json(tool)))
    if denial := facts.get("denial"):
        state = replace(state, denials=(*state.denials, denial))
    if uuid := facts.get("client_uuid"):
        state = replace(state, client_uuids=(*state.client_uuids, uuid))
    if (ttft_ms := facts.get("ttft_ms")) is not None:
        state = replace(state, ttft_ms=ttft_ms)
    if stop := facts.get(EMPTY_RESPONSE):
        state = replace(
            state,
            responses=state.responses + stop["responses"],
            stop_reason=stop["stop_reason"],
            was_nudged=True,
        )
    return state


def _answered(state: LoopState, message: AssistantMessage) -> LoopState:
    if state.awaits_model or message.message.id != state.message_id:
        state = _open(state, message)
    block = message.message.content[0]
    newest = state.context[-1]
    grown = replace(newest, blocks=(*newest.blocks, encode_block(block)))
    state = replace(state, context=(*state.context[:-1], grown))
    if isinstance(block, ToolUseBlock):
        is_first = not state.calls
        state = replace(
            state, calls=(*state.calls, block), rounds=state.rounds + is_first, pauses=0
        )
    elif isinstance(block, TextBlock):
        state = replace(state, last_text=block.text)
    return state


def _open(state: LoopState, message: AssistantMessage) -> LoopState:
    stop_reason = message.message.stop_reason
    context = state.request_messages()
    if not (context and context[-1].role == "assistant"):  # else it goes on with a paused one
        context = (*context, ContextMessage("assistant", ()))
    return replace(
        state,
        context=context,
        calls=(),
        results={},
        notes=(),
        message_id=message.message.id,
        responses=state.responses + (stop_reason is not None),
        stop_reason=stop_reason if stop_reason is not None else state.stop_reason,
        pauses=state.pauses + 1 if stop_reason == "pause_turn" else 0,
        last_text="",
    )


def _heard(state: LoopState, message: UserMessage, *, is_steered: bool) -> LoopState:
    content = message.message.content
    notes = [TextBlock(text=content)] if isinstance(content, str) else content
    for block in notes:
        if isinstance(block, ToolResultBlock):
            results = {**state.results, block.tool_use_id: encode_block(block)}
            state = replace(state, results=results)
            continue
        said = block
        if is_steered and isinstance(block, TextBlock):
            said = TextBlock(text=STEER_NOTICE + block.text)
        state = replace(state, notes=(*state.notes, encode_block(said)))
    return state
