"""Effects in memory, for the pure rooms: a world that a test scripts and then looks at."""

import asyncio
from collections import defaultdict
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from app.agent.effects import AgentLimits, Aside, Effects, Hooks, Place
from app.agent.fold import fold
from app.agent.loop import run_agent
from app.agent.model_effects import SideModel
from app.agent.retries import RetryRules
from app.agent.run_info import Thread
from app.agent.state import Advance, LoopState, RunInfo
from app.agent.tool_effects import Fire, Gate, Toolbox
from app.compaction.window import Window
from app.domain.agents import AgentDefinition
from app.domain.blocks import Block, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from app.domain.briefing import Briefing, News
from app.domain.hook_outcome import NOTHING, HookOutcome
from app.domain.hooks import HookEvent, Surroundings
from app.domain.journal import Batch
from app.domain.messages import (
    ApiRetryMessage,
    AssistantMessage,
    ConversationReset,
    Message,
    Prompt,
    ResultMessage,
    UserContent,
    UserMessage,
    parse_message,
)
from app.domain.model import (
    Hear,
    ModelRequest,
    ModelResponse,
    PartialResponse,
    SideRequest,
    StreamPart,
    unheard,
)
from app.domain.notices import PromptSuggestionMessage, RateLimitEvent, ToolProgressMessage
from app.domain.options import AgentOptions
from app.domain.permissions import Scene
from app.domain.skills import CommandText
from app.domain.tasks import TaskEnd
from app.domain.thinking import Abilities
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.domain.usage import LedgerRow, ModelLimits, Spend, Usage
from app.errors import ModelError
from app.permissions.decision import Allow, Deny, Verdict
from app.permissions.permissions import Permissions
from app.runs.gate import RuleGate

SESSION = "5e551000-0000-4000-8000-000000000000"
MODEL = "priced-model"
LARGE = Window(200_000)


# -- words of a conversation ------------------------------------------------------------------


def text(words: str) -> TextBlock:
    return TextBlock(text=words)


def thinking(words: str) -> ThinkingBlock:
    return ThinkingBlock(thinking=words, signature="c2ln")


def call(call_id: str, name: str = "Look", **given: Any) -> ToolUseBlock:
    return ToolUseBlock(id=call_id, name=name, input=given)


def response(
    *blocks: Block,
    stop_reason: str | None = None,
    usage: Usage | None = None,
    message_id: str = "",
) -> ModelResponse:
    """A response; ids that are not given are numbered by the model that sends it."""
    asks = any(isinstance(block, ToolUseBlock) for block in blocks)
    return ModelResponse(
        id=message_id,
        model=MODEL,
        blocks=blocks,
        stop_reason=stop_reason or ("tool_use" if asks else "end_turn"),
        stop_sequence=None,
        usage=usage or Usage(input_tokens=100, output_tokens=10),
        request_id="req_1",
        ttft_ms=7,
        duration_ms=20,
    )


def prompt(words: str | list[dict[str, Any]] = "hello", *, uuid: str | None = None) -> Prompt:
    return Prompt("inbox-1", uuid or "0000p", words, has_client_uuid=uuid is not None)


# -- time -------------------------------------------------------------------------------------


@dataclass(slots=True)
class FakeClock:
    """Time that passes only when somebody waits; ids that count."""

    random: float = 0.0
    prefix: str = "id"
    waits_s: list[float] = field(default_factory=list)
    _passed_s: float = 0.0
    _ids: int = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(seconds=self._passed_s)

    def monotonic(self) -> float:
        return self._passed_s

    def uuid(self) -> str:
        self._ids += 1
        return f"{self.prefix}-{self._ids}"

    def jitter(self) -> float:
        return self.random

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self._passed_s += seconds


# -- model ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Stalled:
    """A response that starts and then says nothing until the request is given up."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    was_closed: bool = False


@dataclass(frozen=True, slots=True)
class Broken:
    """A response that fails after these events."""

    events: Sequence[dict[str, Any]]
    error: ModelError


Answer: TypeAlias = ModelResponse | ModelError | Stalled | Broken


@dataclass(slots=True)
class ScriptedModel:
    """Plays a list of answers, one a request."""

    script: Sequence[Answer]
    cursor: int = 0
    """The next answer; what a test sets to go on where an earlier attempt stood."""
    requests: list[ModelRequest] = field(default_factory=list)

    async def respond(self, request: ModelRequest, hear: Hear = unheard) -> ModelResponse:
        self.requests.append(request)
        answer = self.script[self.cursor]
        self.cursor += 1
        message_id = f"msg_{self.cursor}"
        if not isinstance(answer, ModelError):
            hear(StreamPart({"type": "message_start"}, message_id, ttft_ms=7))
        match answer:
            case ModelResponse():
                return replace(answer, id=answer.id or message_id)
            case ModelError():
                raise answer
            case Broken(events, error):
                for event in events:
                    hear(StreamPart(event, message_id))
                raise error
            case Stalled():
                try:
                    answer.began.set()
                    await asyncio.Event().wait()
                finally:
                    answer.was_closed = True
        raise AssertionError("what is stalled never ends")


# -- tools ------------------------------------------------------------------------------------

LOOK = ToolSpec("Look", "Looks at a thing.", {"type": "object"}, read_only=True)
CHANGE = ToolSpec("Change", "Changes a thing.", {"type": "object"})
EDIT = ToolSpec("Edit", "Edits a file.", {"type": "object"}, edits_files=True)

Run: TypeAlias = Callable[[ToolCall, ToolMemory], Awaitable[ToolResult]]


async def _done(call: ToolCall, _memory: ToolMemory) -> ToolResult:
    return ToolResult(f"{call.name} {call.id} done")


@dataclass(slots=True)
class ScriptedToolbox:
    """`Look` is read-only, `Change` is not, `Edit` edits files. Calls can be held back."""

    offered: Sequence[ToolSpec] = (LOOK, CHANGE, EDIT)
    run: Run = _done
    held: set[str] = field(default_factory=set)
    """Ids of calls that wait until `let` names them."""
    log: list[tuple[str, str]] = field(default_factory=list)
    """`("start" | "end" | "cancelled", call id)`, in order."""
    most_running: int = 0
    _running: int = 0
    _let: defaultdict[str, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    _seen: defaultdict[tuple[str, str], asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )

    def specs(self) -> Sequence[ToolSpec]:
        return self.offered

    def spec(self, name: str) -> ToolSpec | None:
        return next((spec for spec in self.offered if spec.name == name), None)

    def invalid(self, call: ToolCall) -> ToolResult | None:
        if "wrong" not in call.input:
            return None
        wrong = "<tool_use_error>InputValidationError: wrong</tool_use_error>"
        return ToolResult(wrong, is_error=True)

    async def call(self, call: ToolCall, memory: ToolMemory) -> ToolResult:
        self._running += 1
        self.most_running = max(self.most_running, self._running)
        self._note("start", call.id)
        try:
            if call.id in self.held:
                await self._let[call.id].wait()
            result = await self.run(call, memory)
        except asyncio.CancelledError:
            self._note("cancelled", call.id)
            raise
        else:
            self._note("end", call.id)
            return result
        finally:
            self._running -= 1

    def let(self, call_id: str) -> None:
        """Let a held call finish."""
        self._let[call_id].set()

    async def until(self, what: str, call_id: str) -> None:
        """Wait until a call has started, ended or been cancelled."""
        async with asyncio.timeout(30):
            await self._seen[what, call_id].wait()

    def started(self) -> list[str]:
        return [call_id for what, call_id in self.log if what == "start"]

    def _note(self, what: str, call_id: str) -> None:
        self.log.append((what, call_id))
        self._seen[what, call_id].set()


# -- the rest of the world --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllowAll:
    async def check(self, call: ToolCall, spec: ToolSpec, _scene: Scene, _fire: Fire) -> Verdict:
        assert call.name == spec.name
        return Allow("mode")


@dataclass(frozen=True, slots=True)
class ReadingErrands:
    """Makes any call that its tools know as one that reads."""

    tools: "ScriptedToolbox"

    async def read(self, call: ToolCall, memory: ToolMemory) -> ToolResult | None:
        spec = self.tools.spec(call.name)
        return await self.tools.call(call, memory) if spec and spec.read_only else None


@dataclass(frozen=True, slots=True)
class DenyThese:
    """Denies the tools it names, allows all others."""

    names: tuple[str, ...]

    async def check(self, call: ToolCall, spec: ToolSpec, _scene: Scene, _fire: Fire) -> Verdict:
        assert call.name == spec.name
        return Deny("rule", f"no {call.name}") if call.name in self.names else Allow("mode")


def options_gate(options: AgentOptions) -> RuleGate:
    """The service's own gate: the pure rules."""
    return RuleGate(Permissions.of(options))


@dataclass(slots=True)
class ListInbox:
    """What waits; the journal is taken to store what was given."""

    prompts: Sequence[Prompt] = ()

    async def take(self, *, steers: bool) -> Sequence[Prompt]:
        taken = [prompt for prompt in self.prompts if prompt.is_steer == steers]
        self.prompts = [prompt for prompt in self.prompts if prompt.is_steer != steers]
        return taken


@dataclass(slots=True)
class ToldPlace:
    """A place that is what a test says it is, now."""

    briefing: Briefing = field(default_factory=Briefing)
    beside: Mapping[str, News] = field(default_factory=dict)
    """What is found beside a file, by its path."""
    commands: Mapping[str, str] = field(default_factory=dict)
    granted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What any command brings of rules."""

    async def look(self, known: Briefing, cwd: str) -> Briefing:  # noqa: ARG002 - the seam's signature
        return self.briefing

    async def near(self, paths: Iterable[str], known: Briefing) -> News:  # noqa: ARG002 - as above
        return next((self.beside[path] for path in paths if path in self.beside), News())

    async def command(self, name: str) -> CommandText | None:
        text = self.commands.get(name)
        return None if text is None else CommandText(text, granted=self.granted)


@dataclass(slots=True)
class RecordingPreviews:
    published: list[StreamPart] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    completed: int = 0
    requests: int = 0
    retries: list[tuple[Thread, ApiRetryMessage]] = field(default_factory=list)

    def retrying(self, thread: Thread, retry: ApiRetryMessage) -> None:
        self.retries.append((thread, retry))

    def requesting(self) -> None:
        self.requests += 1

    def publish(self, part: StreamPart) -> None:
        self.published.append(part)

    def abort(self, message_id: str, reason: str) -> None:
        assert reason in {"broken", "cancelled"}
        self.aborted.append(message_id)

    def complete(self) -> None:
        self.completed += 1

    def partial(self) -> PartialResponse | None:
        return None


@dataclass(frozen=True, slots=True)
class SmallModels:
    """Two models with a price: a cent a thousand tokens, in or out."""

    priced: frozenset[str] = frozenset({MODEL, "other-model"})
    tool_search: bool = False

    def cost_usd(self, model: str, usage: Usage, at: datetime) -> Decimal | None:
        assert at.tzinfo is UTC
        tokens = usage.input_tokens + usage.output_tokens
        return Decimal(tokens) / 100_000 if model in self.priced else None

    def limits(self, model: str) -> ModelLimits:
        assert model
        return ModelLimits(context_window=200_000, max_output=8_000)

    def abilities(self, model: str) -> Abilities:
        assert model
        return Abilities(tool_search=self.tool_search)

    def canonical(self, model: str) -> str:
        return model.split("@", maxsplit=1)[0]


class FakeTasks:
    """Background tasks of which a test says how they ended."""

    def __init__(self, **ends: TaskEnd | None) -> None:
        self.ends = ends

    def end_of(self, task_id: str) -> TaskEnd | None:
        return self.ends[task_id]

    async def someone_ended(self, among: Collection[str]) -> None:
        if not any(self.ends[task_id] for task_id in among):
            await asyncio.Event().wait()


class NoSideModel:
    """A world in which nobody asks a model beside the conversation."""

    async def ask(self, request: SideRequest) -> ModelResponse:
        raise AssertionError(f"nobody was to ask: {request.prompt}")

    def lost(self) -> LedgerRow:
        raise AssertionError("nobody was to ask")

    def allow(self, left_usd: Decimal | None) -> None:
        """Nothing is spent."""

    def settle(self) -> tuple[LedgerRow, ...]:
        return ()


@dataclass(slots=True)
class ScriptedHooks:
    """Answers events by what a test says, one after the other; then they have nothing to say."""

    outcomes: Mapping[str, Sequence[HookOutcome]] = field(default_factory=dict)
    """By event."""
    asked: list[HookEvent] = field(default_factory=list)
    around: list[Surroundings] = field(default_factory=list)

    async def fire(self, event: HookEvent, around: Surroundings) -> HookOutcome:
        before = sum(each.name == event.name for each in self.asked)
        self.asked.append(event)
        self.around.append(around)
        script = self.outcomes.get(event.name, ())
        return script[before] if before < len(script) else NOTHING


@dataclass(slots=True)
class FakeAgents:
    """Kinds of subagents, the tools that they choose from, and what came of cut messages."""

    tools: Toolbox
    definitions: Mapping[str, AgentDefinition] = field(default_factory=dict)
    limits: AgentLimits = field(default_factory=AgentLimits)
    models: Mapping[str, str] = field(default_factory=dict)
    cut: Mapping[str, PartialResponse] = field(default_factory=dict)

    def model(self, name: str) -> str | None:
        return self.models.get(name)

    def aside(self, call_id: str) -> Aside:
        assert call_id
        return Aside(ToldPlace(), RecordingPreviews())

    def partials(self) -> Mapping[str, PartialResponse]:
        return self.cut


def effects(
    model: ScriptedModel | Sequence[Answer] = (),
    *,
    tools: ScriptedToolbox | None = None,
    gate: Gate | None = None,
    hooks: Hooks | None = None,
    prompts: Sequence[Prompt] | None = None,
    place: Place | None = None,
    tasks: FakeTasks | None = None,
    previews: RecordingPreviews | None = None,
    clock: FakeClock | None = None,
    side: SideModel | None = None,
) -> Effects:
    """A whole world, of which a test names the parts that matter to it."""
    tools = tools or ScriptedToolbox()
    return Effects(
        model=model if isinstance(model, ScriptedModel) else ScriptedModel(model),
        tools=tools,
        gate=gate or AllowAll(),
        errands=ReadingErrands(tools),
        hooks=hooks or ScriptedHooks(),
        inbox=ListInbox([prompt()] if prompts is None else prompts),
        place=place or ToldPlace(),
        tasks=tasks or FakeTasks(),
        previews=previews or RecordingPreviews(),
        models=SmallModels(),
        clock=clock or FakeClock(),
        side=side or NoSideModel(),
        agents=FakeAgents(tools),
    )


# -- runs and their journal -------------------------------------------------------------------


def run_info(
    run_id: str = "run_1",
    *,
    max_retries: int = 10,
    overloads_before_fallback: int = 3,
    window: Window = LARGE,
    hooks: Iterable[str] = (),
    **options: Any,
) -> RunInfo:
    given = AgentOptions.model_validate({"model": MODEL, **options})
    rules = RetryRules(max_retries=max_retries, overloads_before_fallback=overloads_before_fallback)
    return RunInfo(SESSION, run_id, given, retries=rules, window=window, hooks=frozenset(hooks))


@dataclass(slots=True)
class Journal:
    """What was stored, and what a host can rebuild from it: bytes and facts, no live object."""

    rows: list[tuple[str, bytes, Mapping[str, Any] | None]] = field(default_factory=list)
    ledger: list[tuple[str, LedgerRow]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)

    def store(self, run: RunInfo, advance: Advance | Batch) -> None:
        batch = advance.batch if isinstance(advance, Advance) else advance
        self.batches.append(batch)
        self.rows += [(run.run_id, entry.body, entry.facts) for entry in batch.entries]
        self.ledger += [(run.run_id, row) for row in batch.ledger]

    def state(self, run: RunInfo) -> LoopState:
        """Fold everything, as a host does that takes the run over."""
        rows = [(run_id, parse_message(body), facts) for run_id, body, facts in self.rows]
        before, mine = Spend(), Spend()
        for run_id, row in self.ledger:
            if run_id == run.run_id:
                mine = mine.plus(row)
            else:
                before = before.plus(row)
        return fold(rows, run, spent_before=before, spend=mine)

    def messages(self) -> list[Message]:
        return [parse_message(body) for _, body, _ in self.rows]

    def results(self) -> dict[str, ToolResultBlock]:
        """Every tool result by its call, in the order of the journal. Fails on a second one."""
        found: dict[str, ToolResultBlock] = {}
        for message in self.messages():
            if isinstance(message, UserMessage) and isinstance(message.message.content, list):
                for block in message.message.content:
                    if isinstance(block, ToolResultBlock):
                        assert block.tool_use_id not in found
                        found[block.tool_use_id] = block
        return found

    def result(self) -> Any:  # tests look at fields of both kinds
        """The last message, which must be a result."""
        last = self.messages()[-1]
        assert isinstance(last, ResultMessage)
        return last


async def play(
    world: Effects, run: RunInfo | None = None, journal: Journal | None = None
) -> Journal:
    """Run until the result is stored."""
    run = run or run_info()
    journal = journal if journal is not None else Journal()
    async with asyncio.timeout(20), aclosing(run_agent(journal.state(run), world)) as batches:
        async for batch in batches:
            journal.store(run, batch)
    return journal


def kinds(messages: Iterable[Message]) -> list[str]:
    """Name each message in a word: its type, and the subtype or the kind of its block."""
    return [_kind(message) for message in messages]


def _kind(message: Message) -> str:
    match message:
        case AssistantMessage():
            return message.message.content[0].type
        case UserMessage(isReplay=True):
            return "prompt"
        case UserMessage(message=UserContent(content=[ToolResultBlock()])):
            return "tool_result"
        case UserMessage():
            return "note"
        case (
            PromptSuggestionMessage()
            | RateLimitEvent()
            | ToolProgressMessage()
            | ConversationReset()
        ):
            return message.type
        case _:
            return message.subtype
