"""How a journalled message changes the state: the work of the fold."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.agent.active import CLEARED, COMPACTED
from app.agent.briefing import news_block, opening_blocks, reminder
from app.agent.carried import Carrier
from app.agent.command import COMMAND, COMMAND_NOTICE, COMMAND_SAID, EXPANDED
from app.agent.conversation import followed, said_since
from app.agent.hook_memory import HOOK
from app.agent.run_info import memory_of, told_first
from app.agent.shortened import blocks_of, clear, put_summary
from app.agent.sound import sendable
from app.agent.structured import NO_CALL, OUTPUT_FACT, raw_input
from app.agent.subagent_fold import counted
from app.agent.task_fold import OWN_RUN, TASK_NOTICE, tasks_after
from app.agent.thread_facts import LAUNCHED, OF_THREAD, THREAD
from app.compaction.sizes import message_tokens
from app.domain.blocks import (
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    encode_block,
    parse_block,
)
from app.domain.briefing import News
from app.domain.messages import (
    SYNTHETIC,
    ApiRetryMessage,
    AssistantMessage,
    ConversationReset,
    InitMessage,
    Message,
    ModelFallbackMessage,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    UserMessage,
)
from app.domain.model import ContextMessage
from app.domain.notices import RateLimitEvent, StatusMessage
from app.domain.tools import ToolFacts

if TYPE_CHECKING:
    from app.agent.state import LoopState

STEER_NOTICE = (
    "While you were working, the user sent the message below. Take it into account from here on, "
    "and go on with the task unless it says otherwise:\n\n"
)
BRIEFING = "briefing"
"""Fact on the message with which something of the place became known: `News`."""
MODEL_SET = "model_set"
"""Fact on the message that tells of the model which a client chose for the rest of the run."""
EMPTY_RESPONSE = "empty_response"
"""Fact on the nudge that follows a response without content: the response itself is no row."""
MISSING_SERVERS = "missing_servers"
"""Fact on `init`: why the run cannot begin, a sentence for each required server it does not have."""
_NO_FIELDS = ("carrier", "_drafts", "_new_state")
_STAYS = frozenset(
    (
        *_NO_FIELDS,
        *("run", "context", "briefing", "head", "calls", "call_ids", "results"),
        *("notes", "newer", "used_tokens", "has_summary", "dropped_tokens", "memory", "tasks"),
        "subagents",
    )
)
"""What the next run of a session begins with."""


class Draft:
    """A state that is being changed: one object a batch instead of one a field.

    Its attributes are the state's fields, and the carrier of those that go with a summary.
    """

    def __init__(self, state: "LoopState", carrier: Carrier) -> None:
        self.carrier = carrier
        self._drafts: dict[str, Draft] = {}
        self._new_state = type(state)
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
        self.threads = dict(state.threads)
        self.uses = state.uses
        self.spawned = state.spawned
        self.subagents = state.subagents
        self.others_usd = state.others_usd
        self.unsure = state.unsure
        self.ttft_ms = state.ttft_ms
        self.client_uuids = state.client_uuids
        self.rate_limit = state.rate_limit
        self.has_command = state.has_command
        self.told_mode = state.told_mode
        self.told_model = state.told_model
        self.missing_servers = state.missing_servers
        self.hooks = state.hooks
        self.pending = state.pending
        self.result = state.result
        self.is_over = state.is_over

    def fields(self) -> dict[str, Any]:
        """Give the fields of the state; the draft is not used afterwards."""
        for key, draft in self._drafts.items():
            self.threads[key] = self._new_state(**draft.fields())
        values = vars(self)
        for name in _NO_FIELDS:
            del values[name]
        values["context"] = tuple(self.context)
        return values

    def enter(self, fresh: "LoopState") -> None:
        """Begin another run: the conversation stays, counters restart as `fresh` has them."""
        hooks = self.hooks.entered()
        self._drafts.clear()
        for name in vars(self).keys() - _STAYS:
            setattr(self, name, getattr(fresh, name))
        self.threads = {}
        self.subagents = self.subagents.cut_off(self.tasks)
        self.hooks = hooks

    def record(self, message: Message, facts: Mapping[str, Any] | None) -> None:
        """Take one journalled message in."""
        key = facts.get(THREAD) if facts else None
        if (
            key is None or key in self.threads
        ):  # else it is of one in the background: told with its end
            self.subagents = counted(self.subagents, message, facts)
        if facts and key:
            for heard in facts.get(HOOK, ()):  # it waited for a message, and came with this one
                self.hear_hook(heard)
            self._record_in(key, message, facts.get(OF_THREAD))
            return
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
                self.told_mode, self.told_model = message.permissionMode, message.model
                self.hooks = self.hooks.begun()
            case _:
                self._noted(message, facts)

    def _record_in(self, key: str, message: Message, facts: Mapping[str, Any] | None) -> None:
        """Take a message of a subagent in; one whose call is answered says nothing more."""
        if key not in self._drafts:
            if key not in self.threads:
                return
            self._drafts[key] = Draft(self.threads[key], self.carrier)
        draft = self._drafts[key]
        denials, spawned = len(draft.denials), draft.spawned
        draft.record(message, facts)
        self.denials = (*self.denials, *draft.denials[denials:])
        self.spawned += draft.spawned - spawned

    def _launch(self, launched: Mapping[str, Any]) -> None:
        """Begin a subagent's conversation: it knows the place, and nothing of this one."""
        self.spawned += 1
        self.threads[launched["call_id"]] = self._new_state(
            self.run.of_thread(launched),
            briefing=self.briefing,
            head=opening_blocks(self.briefing),
            memory=memory_of(launched, self.memory.cwd),
            notes=told_first(launched),
            has_started=True,
        )

    def _answer_thread(self, key: str) -> None:
        self._drafts.pop(key, None)
        self.threads.pop(key, None)

    def _noted(self, message: Message, facts: Mapping[str, Any] | None) -> None:
        """Take in what tells how the run is getting on."""
        match message:
            case ApiRetryMessage():
                self.failures = (*self.failures, message.error)
            case ModelFallbackMessage():
                self.fallback, self.failures = message.fallback_model, ()
                if facts and facts.get(OUTPUT_FACT) == "retracted":
                    self.output = replace(self.output, is_retracted=True)
            case TaskStartedMessage() if facts and LAUNCHED in facts:
                self._launch(facts[LAUNCHED])
            case TaskStartedMessage() | TaskNotificationMessage():
                self.tasks = tasks_after(self.tasks, message, facts)
                self.spawned += bool(facts and OWN_RUN in facts)
            case RateLimitEvent():
                self.rate_limit = message.rate_limit_info
            case StatusMessage(permissionMode=str(mode)):
                self.told_mode = mode
            case StatusMessage():
                self.is_compacting = message.status == "compacting"
            case ConversationReset():
                clear(self, (facts or {})[CLEARED])
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
        if missing := facts.get(MISSING_SERVERS):
            self.missing_servers = tuple(missing)
        for heard in facts.get(HOOK, ()):
            self.hear_hook(heard)
        if uuid := facts.get("client_uuid"):
            self.client_uuids = (*self.client_uuids, uuid)
        if (ttft_ms := facts.get("ttft_ms")) is not None:
            self.ttft_ms = ttft_ms
        if stop := facts.get(EMPTY_RESPONSE):
            self.responses += stop["responses"]
            self.failures = ()
            self.stop_reason = stop["stop_reason"]
            self.was_nudged = True

    def hear_hook(self, facts: Mapping[str, Any]) -> None:
        """Take in what a hook brought about (`hook_facts`)."""
        self.notes = (*self.notes, *(reminder(text) for text in facts.get("context", ())))
        self.hooks = self.hooks.plus(facts)
        self.rounds += facts.get("stop") in {"blocked", "context"}

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
            self.uses = {**self.uses, block.name: self.uses.get(block.name, 0) + 1}
            self.pauses = 0
        elif isinstance(block, TextBlock):
            self.last_text = block.text

    def _open(self, message: AssistantMessage) -> None:
        stop_reason, usage = message.message.stop_reason, message.message.usage
        # Only its end is touched: a fold does this for each response. What stands before the newest
        # one cannot change any more.
        if tail := said_since(self):
            self.context[-2:] = followed(tuple(self.context[-2:]), tail, self.newer)
        self.context[-2:] = [message.closed() for message in self.context[-2:]]
        # No count from the provider: as much as there is to see.
        asked = usage.prompt_tokens or sum(map(message_tokens, self.context))
        if not (self.context and self.context[-1].role == "assistant"):  # else a paused one goes on
            self.context.append(
                ContextMessage("assistant", (), tokens_before=asked, known=self.briefing)
            )
        self.used_tokens = asked + usage.output_tokens
        self.compactions = 0
        self.calls, self.results, self.notes, self.newer = (), {}, (), ()
        self.message_id = message.message.id
        self.hooks = self.hooks.answered()
        self.failures = ()
        if stop_reason is not None:
            self.responses += 1
            self.stop_reason = stop_reason
        self.pauses = self.pauses + 1 if stop_reason == "pause_turn" else 0
        self.last_text = ""
        self.output = replace(self.output, valid=frozenset()) if self.output.valid else self.output

    def _said_to_service(self, facts: Mapping[str, Any]) -> None:
        """Take in what no model sees."""
        self.has_command |= COMMAND in facts
        if MODEL_SET in facts:
            self.told_model, self.fallback, self.failures = facts[MODEL_SET], None, ()

    def _heard(self, message: UserMessage, facts: Mapping[str, Any]) -> None:
        if COMPACTED in facts:
            put_summary(self, message, facts[COMPACTED])
            return
        if COMMAND in facts or MODEL_SET in facts:
            self._said_to_service(facts)
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
        if expanded := facts.get(EXPANDED):
            notice = TextBlock(text=STEER_NOTICE.rstrip())
            blocks = [*([notice] if facts.get("steered") else []), *map(parse_block, expanded)]
            self.notes = (*self.notes, *map(encode_block, blocks))
            return
        for block in blocks_of(message):
            if isinstance(block, ToolResultBlock):
                self.results[block.tool_use_id] = encode_block(block)
                self._answer_thread(block.tool_use_id)
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
