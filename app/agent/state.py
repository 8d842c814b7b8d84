"""The state of a run: a fold of the session's journal, and nothing else.

Theory of operation. The conversation is kept as the model will see it: `context` holds closed
messages, oldest first; what came after the newest response stands apart as `results` (tool
results by call) and `notes` (prompts, markers, nudges), because results arrive in completion
order but are sent in the order of their calls (decisions B2), and because user messages in a row
are one message to the model. `request_messages` puts the two together, behind the briefing.
Counters are those of the current run: entering a run resets them, so folding the whole journal
leaves the newest run's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from app.agent.active import COMPACTED, JournalRow, active_rows, briefing_of, call_ids_of
from app.agent.briefing import news_block, opening_blocks
from app.agent.carried import Carrier
from app.agent.command import COMMAND, COMMAND_NOTICE, COMMAND_SAID
from app.agent.retries import RetryRules
from app.agent.sound import sendable
from app.agent.structured import NO_CALL, OUTPUT_FACT, OUTPUT_TOOL, Output, raw_input
from app.agent.task_fold import TASK_NOTICE, tasks_after
from app.compaction.sizes import blocks_tokens, message_tokens
from app.compaction.window import Window
from app.domain.blocks import (
    Block,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    encode_block,
    is_thinking,
)
from app.domain.briefing import Briefing, News
from app.domain.journal import Batch
from app.domain.messages import (
    SYNTHETIC,
    ApiRetryMessage,
    AssistantMessage,
    InitMessage,
    Message,
    ModelFallbackMessage,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    UserMessage,
)
from app.domain.model import ContextMessage
from app.domain.notices import RateLimitEvent, RateLimitInfo, StatusMessage
from app.domain.options import AgentOptions
from app.domain.tasks import BackgroundTask
from app.domain.tools import ToolFacts, ToolMemory
from app.domain.usage import Spend

STEER_NOTICE = (
    "While you were working, the user sent the message below. Take it into account from here on, "
    "and go on with the task unless it says otherwise:\n\n"
)
BRIEFING = "briefing"
"""Fact on the message with which something of the place became known: `News`."""
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
    retries: RetryRules = field(default_factory=RetryRules)
    max_output_attempts: int = 5
    """Failed attempts at structured output after which the run ends."""
    window: Window = Window(200_000)
    """Of the run's model."""
    elapsed_ms: int = 0
    """Of earlier attempts of the run, since its first claim."""
    began_s: float = 0.0
    """Monotonic time at which this attempt began."""
    follows: str | None = None
    """The run whose background task ended, where that began this one; else None."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """Where a run stands. Pure data; `next_step` decides from it what happens next."""

    run: RunInfo
    context: tuple[ContextMessage, ...] = ()
    briefing: Briefing = field(default_factory=Briefing)
    """What the model knows of the place it works in."""
    head: tuple[bytes, ...] = ()
    """The encoded blocks that open each request: the briefing as the conversation began with it."""
    calls: tuple[ToolUseBlock, ...] = ()
    """Tool uses of the newest response, in order."""
    call_ids: frozenset[str] = frozenset()
    """Ids of all calls in the conversation: a request must not hold one twice."""
    results: Mapping[str, bytes] = field(default_factory=dict)
    """Encoded results of those calls, by tool use id."""
    notes: tuple[bytes, ...] = ()
    """Encoded user blocks that came after the newest response and its results."""
    newer: tuple[str, ...] = ()
    """Uuids of the journalled messages that hold those results and notes."""
    used_tokens: int = 0
    """What the newest response and its request held, as the provider counted."""
    has_summary: bool = False
    """Whether the first message of the context is a summary."""
    is_compacting: bool = False
    """Whether a compaction was begun and has not ended."""
    compactions: int = 0
    """Since the newest response."""
    dropped_tokens: int = 0
    """By all compactions of the session."""
    memory: ToolMemory = field(default_factory=ToolMemory)
    tasks: Mapping[str, BackgroundTask] = field(default_factory=dict)
    """Background tasks whose end is not journalled, by id; oldest first."""
    spent_before: Spend = field(default_factory=Spend)
    """The session's spend before this run, inherited spend of a fork included."""
    spend: Spend = field(default_factory=Spend)
    """This run's spend, earlier attempts included."""
    has_started: bool = False
    """Whether the run's `init` and prompts are in the journal."""
    responses: int = 0
    """Completed main-thread responses of the run: the wire's `num_turns`."""
    rounds: int = 0
    """Responses of the run after which it went round again: counted against `max_turns`."""
    pauses: int = 0
    """`pause_turn` responses in a row."""
    failures: tuple[str, ...] = ()
    """Categories of the failed tries of the request that is to be made next."""
    fallback: str | None = None
    """The model that has taken over for the rest of the run."""
    was_nudged: bool = False
    """Whether an empty response was already answered by a nudge in this run."""
    message_id: str | None = None
    """Of the newest response."""
    stop_reason: str | None = None
    """Of the run's newest finished response."""
    last_text: str = ""
    """The last text block of the newest response."""
    output: Output = Output()
    """Attempts at structured output."""
    denials: tuple[dict[str, Any], ...] = ()
    unsure: frozenset[str] = frozenset()
    """Calls that an earlier attempt may have started: their outcome is unknown."""
    ttft_ms: int | None = None
    """From the first request of the run to the first event of its answer."""
    client_uuids: tuple[str, ...] = ()
    """Uuids that the client chose for the prompts of this run."""
    rate_limit: RateLimitInfo | None = None
    """What the run was told last of the provider's rate limit."""
    has_command: bool = False
    """Whether the run's prompt is a command of the service, which no model sees."""
    result: ResultMessage | None = None
    """Set once; the run is over."""

    # -- folding --------------------------------------------------------------------------

    def apply(self, batch: Batch) -> "LoopState":
        """Give the state after a batch became durable. Total and pure."""
        draft = _Draft(self)
        for entry in batch.entries:
            draft.record(entry.message, entry.facts)
        for row in batch.ledger:
            draft.spend = draft.spend.plus(row)
        return draft.freeze()

    def after(self, batch: Batch) -> "Advance":
        """Give the batch with the state that it leads to."""
        return Advance(batch, self.apply(batch))

    def resume(self) -> "LoopState":
        """Give the state in which a new attempt begins: open calls may have been started."""
        return replace(self, unsure=frozenset(call.id for call in self.open_calls))

    def finished_empty(self, stop_reason: str | None) -> "LoopState":
        """Give the state after a response without content that ends the run."""
        return replace(
            self,
            calls=(),
            responses=self.responses + 1,
            stop_reason=stop_reason,
            last_text="",
        )

    # -- what follows from it -------------------------------------------------------------

    @property
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """Calls of the newest response that have no result yet, in order."""
        return tuple(call for call in self.calls if call.id not in self.results)

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.fallback or self.run.options.model or ""

    @property
    def awaits_model(self) -> bool:
        """Whether the user side spoke last."""
        return bool(self.results or self.notes)

    def is_output(self, call: ToolUseBlock) -> bool:
        """Say whether a call gives the run's structured output."""
        return call.name == OUTPUT_TOOL and self.run.options.output_format is not None

    @property
    def structured_output(self) -> dict[str, Any] | None:
        """The object that the newest response gave: the last one, if it gave several."""
        given = (call.input for call in reversed(self.calls) if call.id in self.output.valid)
        return next(given, None)

    @property
    def failed_output(self) -> Output:
        """The attempts of a run that ends without its output; an answer in words is one."""
        is_counted = self.calls and self.stop_reason != "refusal"
        return self.output if is_counted else self.output.rejected(self.last_text, NO_CALL)

    @property
    def tokens(self) -> int:
        """Size of the conversation: as counted, plus an estimate of what is newer."""
        newer = blocks_tokens(self.results.values()) + blocks_tokens(self.notes)
        return self.used_tokens + newer

    @property
    def is_over_budget(self) -> bool:
        budget = self.run.options.max_budget_usd
        return budget is not None and self.spend.cost_usd >= budget

    def request_messages(self) -> tuple[ContextMessage, ...]:
        """Give the conversation as a request holds it: roles alternate, results in call order."""
        return self.opened(_said(self))

    def opened(self, said: tuple[ContextMessage, ...]) -> tuple[ContextMessage, ...]:
        """Give a conversation as a request holds it: behind the briefing."""
        if not self.head:
            return said
        if said and said[0].role == "user":
            return (ContextMessage("user", (*self.head, *said[0].blocks)), *said[1:])
        return (ContextMessage("user", self.head), *said)


@dataclass(frozen=True, slots=True)
class Advance:
    """A step's batch, and where the run stands once it is durable."""

    batch: Batch
    state: LoopState


def fold(
    rows: Iterable[JournalRow],
    run: RunInfo,
    *,
    spent_before: Spend,
    spend: Spend,
) -> LoopState:
    """Give the state of `run` from a session's journal rows `(run_id, message, facts)`.

    Rows come oldest first; one without a run belongs to the run before it. Rows before the tail
    that the last compaction kept say nothing and may be left out. Sums of money come from the
    ledger, not from messages.
    """
    draft = _Draft(LoopState(run))
    kept, left = active_rows(list(rows))
    draft.briefing = briefing_of(left)
    current: str | None = None
    for run_id, message, facts in kept:
        if run_id is not None and run_id != current:
            draft.enter()
            current = run_id
        draft.record(message, facts)
    if current != run.run_id:
        draft.enter()
    return replace(draft.freeze().resume(), spent_before=spent_before, spend=spend)


class _Draft:
    """A state that is being changed: one object a batch instead of one a field."""

    __slots__ = tuple(entry.name for entry in fields(LoopState))

    def __init__(self, state: LoopState) -> None:
        self.run = state.run
        self.context = list(state.context)
        self.briefing = state.briefing
        self.head = state.head
        self.calls = state.calls
        self.call_ids = state.call_ids
        self.results = dict(state.results)
        self.notes = state.notes
        self.newer = state.newer
        self.used_tokens = state.used_tokens
        self.has_summary = state.has_summary
        self.is_compacting = state.is_compacting
        self.compactions = state.compactions
        self.dropped_tokens = state.dropped_tokens
        self.memory = state.memory
        self.tasks = state.tasks
        self.spent_before = state.spent_before
        self.spend = state.spend
        self.has_started = state.has_started
        self.responses = state.responses
        self.rounds = state.rounds
        self.pauses = state.pauses
        self.failures = state.failures
        self.fallback = state.fallback
        self.was_nudged = state.was_nudged
        self.message_id = state.message_id
        self.stop_reason = state.stop_reason
        self.last_text = state.last_text
        self.output = state.output
        self.denials = state.denials
        self.unsure = state.unsure
        self.ttft_ms = state.ttft_ms
        self.client_uuids = state.client_uuids
        self.rate_limit = state.rate_limit
        self.has_command = state.has_command
        self.result = state.result

    def freeze(self) -> LoopState:
        """Give the state; the draft is not used afterwards."""
        return LoopState(
            run=self.run,
            context=tuple(self.context),
            briefing=self.briefing,
            head=self.head,
            calls=self.calls,
            call_ids=self.call_ids,
            results=self.results,
            notes=self.notes,
            newer=self.newer,
            used_tokens=self.used_tokens,
            has_summary=self.has_summary,
            is_compacting=self.is_compacting,
            compactions=self.compactions,
            dropped_tokens=self.dropped_tokens,
            memory=self.memory,
            tasks=self.tasks,
            spent_before=self.spent_before,
            spend=self.spend,
            has_started=self.has_started,
            responses=self.responses,
            rounds=self.rounds,
            pauses=self.pauses,
            failures=self.failures,
            fallback=self.fallback,
            was_nudged=self.was_nudged,
            message_id=self.message_id,
            stop_reason=self.stop_reason,
            last_text=self.last_text,
            output=self.output,
            denials=self.denials,
            unsure=self.unsure,
            ttft_ms=self.ttft_ms,
            client_uuids=self.client_uuids,
            rate_limit=self.rate_limit,
            has_command=self.has_command,
            result=self.result,
        )

    def enter(self) -> None:
        """Begin another run: the conversation stays, counters restart."""
        fresh = _Draft(
            LoopState(
                run=self.run,
                briefing=self.briefing,
                head=self.head,
                calls=self.calls,
                call_ids=self.call_ids,
                results=self.results,
                notes=self.notes,
                newer=self.newer,
                used_tokens=self.used_tokens,
                has_summary=self.has_summary,
                dropped_tokens=self.dropped_tokens,
                memory=self.memory,
                tasks=self.tasks,
            )
        )
        fresh.context = self.context
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))

    def record(self, message: Message, facts: Mapping[str, Any] | None) -> None:
        """Take one journalled message in."""
        if facts:
            self._remember(facts)
        match message:
            case AssistantMessage():
                if message.message.model != SYNTHETIC:
                    self._answered(message)
            case UserMessage():
                self._heard(message, facts or {})
            case ResultMessage():
                self.result = message
            case InitMessage():
                self.has_started = True
            case _:
                self._noted(message, facts)

    def _noted(self, message: Message, facts: Mapping[str, Any] | None) -> None:
        """Take in what tells how the run is getting on."""
        match message:
            case ApiRetryMessage():
                self.failures = (*self.failures, message.error)
            case ModelFallbackMessage():
                self.fallback, self.failures = message.fallback_model, ()
            case TaskStartedMessage() | TaskNotificationMessage():
                self.tasks = tasks_after(self.tasks, message, facts)
            case RateLimitEvent():
                self.rate_limit = message.rate_limit_info
            case StatusMessage():
                self.is_compacting = message.status == "compacting"
            case _:
                pass

    def _remember(self, facts: Mapping[str, Any]) -> None:
        if tool := facts.get("tool"):
            self.memory = self.memory.plus(ToolFacts.from_json(tool))
        if briefing := facts.get(BRIEFING):
            self._brief(News.from_json(briefing))
        if notice := facts.get(TASK_NOTICE):
            self.notes = (*self.notes, encode_block(TextBlock(text=notice)))
        if denial := facts.get("denial"):
            self.denials = (*self.denials, denial)
        if uuid := facts.get("client_uuid"):
            self.client_uuids = (*self.client_uuids, uuid)
        if (ttft_ms := facts.get("ttft_ms")) is not None:
            self.ttft_ms = ttft_ms
        if stop := facts.get(EMPTY_RESPONSE):
            self.responses += stop["responses"]
            self.failures = ()
            self.stop_reason = stop["stop_reason"]
            self.was_nudged = True

    def _brief(self, told: News) -> None:
        news = self.briefing.unknown(told)  # calls that ran together may tell the same
        self.briefing = self.briefing.plus(told)
        if not self.context and not self.notes:
            self.head = opening_blocks(self.briefing)
        elif news:
            self.notes = (*self.notes, news_block(news))

    def _answered(self, message: AssistantMessage) -> None:
        if self.results or self.notes or message.message.id != self.message_id:
            self._open(message)
        block = message.message.content[0]
        sent = encode_block(sendable(block))
        self.context[-1] = self.context[-1].plus((sent,), (message.uuid,))
        if isinstance(block, ToolUseBlock):
            self.rounds += not self.calls
            self.calls = (*self.calls, block)
            self.call_ids |= {block.id}
            self.pauses = 0
        elif isinstance(block, TextBlock):
            self.last_text = block.text

    def _open(self, message: AssistantMessage) -> None:
        stop_reason, usage = message.message.stop_reason, message.message.usage
        said = _said(self)
        # What stands before the newest response cannot change any more.
        self.context = [*said[:-2], *(message.closed() for message in said[-2:])]
        # No count from the provider: as much as there is to see.
        asked = usage.prompt_tokens or sum(message_tokens(message) for message in said)
        if not (self.context and self.context[-1].role == "assistant"):  # else a paused one goes on
            self.context.append(
                ContextMessage("assistant", (), tokens_before=asked, known=self.briefing)
            )
        self.used_tokens = asked + usage.output_tokens
        self.compactions = 0
        self.calls, self.results, self.notes, self.newer = (), {}, (), ()
        self.message_id = message.message.id
        self.failures = ()
        if stop_reason is not None:
            self.responses += 1
            self.stop_reason = stop_reason
        self.pauses = self.pauses + 1 if stop_reason == "pause_turn" else 0
        self.last_text = ""
        self.output = replace(self.output, valid=frozenset()) if self.output.valid else self.output

    def _heard(self, message: UserMessage, facts: Mapping[str, Any]) -> None:
        if COMPACTED in facts:
            self._compacted(message, facts[COMPACTED])
            return
        if COMMAND in facts:
            self.has_command = True
            return
        self.newer = (*self.newer, message.uuid)
        if said := facts.get(COMMAND_SAID):
            words = (COMMAND_NOTICE, said)
            self.notes = (*self.notes, *(encode_block(TextBlock(text=text)) for text in words))
        attempt = facts.get(OUTPUT_FACT)
        if attempt == "missing":
            self.rounds += 1
            given = "" if EMPTY_RESPONSE in facts else self.last_text
            self.output = self.output.rejected(given, NO_CALL)
        for block in _blocks(message):
            if isinstance(block, ToolResultBlock):
                self.results[block.tool_use_id] = encode_block(block)
                if attempt is not None:
                    self._attempted(attempt, block)
            elif facts.get("steered") and isinstance(block, TextBlock):
                said = TextBlock(text=STEER_NOTICE + block.text)
                self.notes = (*self.notes, encode_block(said))
            else:
                self.notes = (*self.notes, encode_block(block))

    def _attempted(self, attempt: str, answer: ToolResultBlock) -> None:
        """Take in how a call that gives structured output went."""
        if attempt == "valid":
            self.output = self.output.accepted(answer.tool_use_id)
            return
        given = next(call.input for call in self.calls if call.id == answer.tool_use_id)
        self.output = self.output.rejected(raw_input(given), str(answer.content))

    def _compacted(self, message: UserMessage, left: Mapping[str, Any]) -> None:
        """Put the summary in place of all but the messages that stay."""
        blocks = tuple(encode_block(block) for block in _blocks(message))
        shift = left["used_tokens"] - left["used_tokens_before"]
        kept = (
            replace(stays, tokens_before=max(0, stays.tokens_before + shift))
            for stays in self.context[len(self.context) - left["kept"] :]
        )
        self.context = [ContextMessage("user", blocks, uuids=(message.uuid,)).closed(), *kept]
        self.call_ids = frozenset(call_ids_of(self.context))
        self.used_tokens = left["used_tokens"]
        self.dropped_tokens = left["dropped_tokens"]
        self.has_summary = True
        self.compactions += 1
        for name, value in CARRIED.load(left["carried"]).items():
            setattr(self, name, value)
        self.failures = ()
        self.head = opening_blocks(self.briefing)


def _blocks(message: UserMessage) -> Sequence[Block]:
    content = message.message.content
    return [TextBlock(text=content)] if isinstance(content, str) else content


def _said(state: "LoopState | _Draft") -> tuple[ContextMessage, ...]:
    results, context = state.results, tuple(state.context)
    ordered = (results[call.id] for call in state.calls if call.id in results)
    tail = (*ordered, *state.notes)
    if not tail:
        return context
    context = _answered_fully(context)
    if context and context[-1].role == "user":
        return (*context[:-1], context[-1].plus(tail, state.newer))
    return (*context, ContextMessage("user", tail, uuids=state.newer))


def _answered_fully(context: tuple[ContextMessage, ...]) -> tuple[ContextMessage, ...]:
    """Give the conversation without thoughts that led to nothing: the API refuses them at the end."""
    if not context or context[-1].role != "assistant":
        return context
    blocks = context[-1].blocks
    while blocks and is_thinking(blocks[-1]):
        blocks = blocks[:-1]
    if len(blocks) == len(context[-1].blocks):
        return context
    kept = (replace(context[-1], blocks=blocks, whole=None),) if blocks else ()
    return (*context[:-1], *kept)


CARRIED = Carrier(
    LoopState,
    known=(
        *("run", "spent_before", "spend", "result", "unsure"),  # given, or set after the fold
        *("context", "calls", "call_ids", "results", "notes", "newer"),  # the kept messages'
        "head",  # made of the briefing
        *("used_tokens", "has_summary", "is_compacting", "compactions", "dropped_tokens"),
    ),
)
"""Goes with a summary."""
