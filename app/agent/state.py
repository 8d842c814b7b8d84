"""The state of a run: a fold of the session's journal, and nothing else.

Theory of operation. The conversation is kept as the model will see it: `context` holds closed
messages, oldest first; what came after the newest response stands apart as `results` (tool
results by call) and `notes` (prompts, markers, nudges), because results arrive in completion
order but are sent in the order of their calls (decisions B2), and because user messages in a row
are one message to the model. `request_messages` puts the two together, behind the briefing.
Counters are those of the current run: entering a run resets them, so folding the whole journal
leaves the newest run's.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from decimal import Decimal
from typing import Any

from app.agent.carried import Carrier
from app.agent.conversation import said_so_far
from app.agent.draft import Draft
from app.agent.hook_memory import HookMemory, Pending
from app.agent.run_info import RunInfo as RunInfo
from app.agent.structured import NO_CALL, OUTPUT_TOOL, Output
from app.compaction.sizes import blocks_tokens
from app.domain.blocks import ToolUseBlock
from app.domain.briefing import Briefing
from app.domain.journal import Batch
from app.domain.messages import ResultMessage
from app.domain.model import ContextMessage
from app.domain.notices import RateLimitInfo
from app.domain.subagent_stats import SubagentCounts
from app.domain.tasks import BackgroundTask
from app.domain.tools import ToolMemory
from app.domain.usage import Spend
from app.domain.value import value


@value
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
    threads: Mapping[str, "LoopState"] = field(default_factory=dict)
    """Where subagents stand whose calls are open, by call."""
    uses: Mapping[str, int] = field(default_factory=dict)
    """How often the run called each tool."""
    spawned: int = 0
    """Subagents that the run has begun, at any depth."""
    subagents: SubagentCounts = SubagentCounts()
    """Of the session, at any depth; of a subagent those below it."""
    others_usd: Decimal = Decimal(0)
    """Of a subagent: what all others of the run have spent, when last looked at."""
    unsure: frozenset[str] = frozenset()
    """Calls that an earlier attempt may have started: their outcome is unknown."""
    ttft_ms: int | None = None
    """From the first request of the run to the first event of its answer."""
    client_uuids: tuple[str, ...] = ()
    """Uuids that the client chose for the prompts of this run."""
    rate_limit: RateLimitInfo | None = None
    """What the run was told last of the provider's rate limit."""
    told_mode: str | None = None
    """The permission mode that readers of the run were told of last."""
    told_model: str | None = None
    """The model, likewise."""
    has_command: bool = False
    """Whether the run's prompt is a command of the service, which no model sees."""
    missing_servers: tuple[str, ...] = ()
    """Why the run cannot begin: required MCP servers that are not there."""
    hooks: HookMemory = field(default_factory=HookMemory)
    """What hooks brought about."""
    pending: "Pending[LoopState] | None" = None
    """Facts that no message carries yet."""
    result: ResultMessage | None = None
    """Set once. Nothing but a suggestion follows."""
    is_over: bool = field(default=False, compare=False)
    """Whether the run's outcome is stored too. Its row tells that, where a suggestion may follow."""

    # -- folding --------------------------------------------------------------------------

    def apply(self, batch: Batch) -> "LoopState":
        """Give the state after a batch became durable. Total and pure."""
        draft = Draft(self, CARRIED)
        for entry in batch.entries:
            draft.record(entry.message, entry.facts)
        for row in batch.ledger:
            draft.spend = draft.spend.plus(row)
        draft.is_over |= batch.outcome is not None
        return LoopState(**draft.fields())

    def after(self, batch: Batch) -> "Advance":
        """Give the batch with the state that it leads to. Facts that waited go with it."""
        if self.pending is None:
            return Advance(batch, self.apply(batch))
        before = self.pending.before
        if not batch.entries:
            waits = Pending(self.pending.facts, before.apply(batch))
            return Advance(batch, replace(self.apply(batch), pending=waits))
        carried = self.pending.on(batch)
        return Advance(carried, before.apply(carried))

    def remembering(self, facts: Mapping[str, Any]) -> "Advance":
        """Give the state after facts of hooks that come with no message; nothing is stored yet."""
        draft = Draft(self, CARRIED)
        draft.hear_hook(facts)
        waiting: Pending[LoopState] = self.pending or Pending((), self)
        draft.pending = Pending((*waiting.facts, facts), waiting.before)
        return Advance(Batch(), LoopState(**draft.fields()))

    def resume(self) -> "LoopState":
        """Give the state in which a new attempt begins: open calls may have been started.

        A result that the journal has is the end, unless a suggestion may have to follow it.
        """
        is_success = self.result is not None and self.result.subtype == "success"
        unsure = {call.id for call in self.open_calls} - self.hooks.deferred
        return replace(
            self,
            unsure=frozenset(unsure),
            threads={key: thread.resume() for key, thread in self.threads.items()},
            is_over=self.result is not None
            and not (is_success and self.run.options.prompt_suggestions),
        )

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
    def open_everywhere(self) -> frozenset[str]:
        """Ids of the open calls, those of subagents among them."""
        own = frozenset(call.id for call in self.open_calls)
        return own.union(*(thread.open_everywhere for thread in self.threads.values()))

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.fallback or self.run.options.model or ""

    @property
    def awaits_model(self) -> bool:
        """Whether the user side spoke last."""
        return bool(self.results or self.notes)

    @property
    def wants_suggestion(self) -> bool:
        """Whether the next prompt is suggested after a result that is a success.

        Not after a refusal, nor while tasks run on: the end of one begins the next run by itself.
        """
        is_wanted = self.run.options.prompt_suggestions and self.stop_reason != "refusal"
        return is_wanted and self.responses > 0 and not self.tasks and not self.is_over_budget

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
        return budget is not None and self.spent_usd >= budget

    @property
    def spent_usd(self) -> Decimal:
        """What counts against the budget: of a run all its threads, wherever one of them asks."""
        return self.spend.cost_usd + self.others_usd

    @property
    def budget_left_usd(self) -> Decimal | None:
        """What the run may still spend; None: there is no budget."""
        budget = self.run.options.max_budget_usd
        return None if budget is None else budget - self.spent_usd

    def request_messages(self) -> tuple[ContextMessage, ...]:
        """Give the conversation as a request holds it: roles alternate, results in call order."""
        return self.opened(said_so_far(self))

    def opened(self, said: tuple[ContextMessage, ...]) -> tuple[ContextMessage, ...]:
        """Give a conversation as a request holds it: behind the briefing."""
        if not self.head:
            return said
        if said and said[0].role == "user":
            return (ContextMessage("user", (*self.head, *said[0].blocks)), *said[1:])
        return (ContextMessage("user", self.head), *said)


@value
class Advance:
    """A step's batch, and where the run stands once it is durable."""

    batch: Batch
    state: LoopState

    def then(self, last: "Advance") -> "Advance":
        """Give one batch of this one and of the run's last one, which follows from it.

        Events of this one are left out: they are of no use any more.
        """
        batch = self.batch
        whole = replace(
            last.batch,
            entries=(*batch.entries, *last.batch.entries),
            ledger=(*batch.ledger, *last.batch.ledger),
            consumed=batch.consumed,
            steered=batch.steered,
        )
        return Advance(whole, last.state)


CARRIED = Carrier(
    LoopState,
    known=(
        *("run", "spent_before", "spend", "result", "is_over"),  # given, or set after the fold
        *("unsure", "pending"),  # the same
        *("threads", "others_usd"),  # no call is open then; looked up anew
        *("context", "calls", "call_ids", "results", "notes", "newer"),  # the kept messages'
        "head",  # made of the briefing
        *("used_tokens", "has_summary", "is_compacting", "compactions", "dropped_tokens"),
    ),
)
"""Goes with a summary."""
