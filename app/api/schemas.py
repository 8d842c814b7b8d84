"""Bodies that come in, objects that go out. Times are RFC 3339 UTC, money is a decimal string."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from app.domain.messages import wire_time
from app.domain.options import AgentOptions
from app.errors import TreadleError
from app.runs.listing import RunRow, SessionRow
from app.runs.receipts import Settled
from app.runs.wishes import OnBusy, PromptWish, RunChange, RunChoice, RunWish, SessionWish
from app.runs.workspaces import WorkspaceSource

LONGEST_WAIT_S = 60
_UUID = r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"

Uuid = Annotated[
    str,
    StringConstraints(to_lower=True, pattern=_UUID),
    Field(examples=["0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f"]),
]
Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=100)],
        Annotated[str, StringConstraints(max_length=2000)],
    ],
    Field(max_length=50),
]
"""Bounded, since every list shows it."""
RunStatus = Literal["queued", "running", "requires_action", "finished"]
Priority = Annotated[int, Field(ge=-100, le=100)]
RunIds = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=100)]],
    Field(min_length=1, max_length=100),
]


class _In(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


class _Out(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


def _example(**body: Any) -> ConfigDict:  # noqa: ANN401 - JSON
    return ConfigDict(json_schema_extra={"examples": [body]})


# -- in ---------------------------------------------------------------------------------------


class TextPart(_In):
    type: Literal["text"]
    text: Annotated[str, StringConstraints(pattern=r"\S")]
    """Not blank: the Messages API refuses blank text."""


class MediaPart(BaseModel):
    """An image or a document, passed on to the model as it is."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Literal["image", "document"]
    source: dict[str, Any]


class UserTurn(_In):
    role: Literal["user"] = "user"
    content: str | list[Annotated[TextPart | MediaPart, Field(discriminator="type")]]

    @field_validator("content")
    @classmethod
    def _says_something(cls, content: Any) -> Any:  # noqa: ANN401 - either form
        if not content or (isinstance(content, str) and not content.strip()):
            raise ValueError("must say something")
        return content


class InputMessage(_In):
    """A user message as the SDK's streaming input has it."""

    type: Literal["user"] = "user"
    message: UserTurn
    uuid: Uuid | None = None
    """Of the message; a second one with the same uuid in the session is refused."""
    parent_tool_use_id: None = None
    session_id: str | None = None
    """Ignored: the address names the session."""

    def wish(self) -> PromptWish:
        """Give the command's form."""
        content = self.message.content
        if isinstance(content, str):
            return PromptWish(content, self.uuid)
        return PromptWish([part.model_dump() for part in content], self.uuid)


class Workspace(_In):
    """Where the agent works."""

    source: Literal["empty", "directory"] = "empty"
    path: Annotated[str, Field(max_length=4096)] | None = None
    """Host folder of a `directory` workspace: absolute, beneath a root that the operator listed."""

    @model_validator(mode="after")
    def _path_fits(self) -> "Workspace":
        if (self.source == "directory") != (self.path is not None):
            raise ValueError("`path` goes with the source `directory`, and only with it")
        return self

    def wish(self) -> WorkspaceSource:
        """Give the command's form."""
        return WorkspaceSource(self.source, self.path)


def _said(prompt: str | None) -> str | None:
    if prompt is not None and not prompt.strip():
        raise ValueError("must say something")
    return prompt


def _different(messages: list[InputMessage] | None) -> list[InputMessage] | None:
    uuids = [message.uuid for message in messages or () if message.uuid]
    if len(set(uuids)) < len(uuids):
        raise ValueError("two messages have the same uuid")
    return messages


PromptText = Annotated[str | None, AfterValidator(_said)]
Messages = Annotated[
    Annotated[list[InputMessage], Field(min_length=1, max_length=100)] | None,
    AfterValidator(_different),
]


def _wishes(prompt: str | None, messages: list[InputMessage] | None) -> list[PromptWish]:
    if prompt is not None:
        return [PromptWish(prompt)]
    return [message.wish() for message in messages or ()]


class RecoveryBody(_In):
    """What happens when a host is lost with the run."""

    policy: Literal["resume", "fail"] = "resume"
    """Another host goes on, or the run ends."""
    max_attempts: Annotated[int, Field(ge=1, le=10)] | None = None
    """Attempts in a row that end without progress. Default: the operator's."""


class RunBody(_In):
    """A prompt for a session."""

    model_config = _example(
        prompt="List the files here and say what they are.",
        options={"allowed_tools": ["Read", "Glob"], "max_turns": 10},
    )

    prompt: PromptText = None
    """The user's text. Exactly one of `prompt` and `messages`."""
    messages: Messages = None
    """User messages in the SDK's streaming-input form, each with another uuid. The first begins the
    run, the others are sent into it."""
    options: AgentOptions = AgentOptions()
    """Laid over the session's options, for this run."""
    on_busy: OnBusy = "queue"
    """What happens when the session has an unfinished run. `queue`: this one waits its turn.
    `reject`: 409, nothing is stored. `interrupt`: the one that goes on is cancelled, this one is
    next. `steer`: the prompt goes into the one that goes on, whose options and limits stay."""
    priority: Priority = 0
    """Among the session's waiting runs, the highest comes first."""
    deadline_seconds: Annotated[int, Field(ge=1, le=604_800)] | None = None
    """From now, waiting included, until the run is ended as `deadline`."""
    recovery: RecoveryBody = RecoveryBody()
    on_disconnect: Literal["continue", "cancel"] = "continue"
    """With `cancel` the run is cancelled when you hang up on the stream that answers this."""
    stream: bool = False
    """Answer with the run's event stream instead of a 202."""
    wait: Annotated[int, Field(ge=0, le=LONGEST_WAIT_S)] = 0
    """Answer with 200 when the run ends within so many seconds, else with 202."""
    include_partial_messages: bool | None = None
    """Same as the option of this name."""
    metadata: Metadata = {}

    @model_validator(mode="after")
    def _one_input(self) -> "RunBody":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("exactly one of `prompt` and `messages` is needed")
        return self

    def wish(self) -> RunWish:
        """Give the command's form."""
        options = self.options
        if self.include_partial_messages is not None:
            options = AgentOptions(include_partial_messages=self.include_partial_messages).over(
                options
            )
        return RunWish(
            _wishes(self.prompt, self.messages),
            options,
            self.metadata,
            self.on_busy,
            self.priority,
            self.deadline_seconds,
            self.recovery.policy,
            self.recovery.max_attempts,
            self.on_disconnect,
        )


class RunChangeBody(_In):
    """What is to change about a run that waits. What is left out stays."""

    model_config = _example(prompt="List the files here, newest first.", priority=10)

    prompt: PromptText = None
    messages: Messages = None
    """At most one of `prompt` and `messages`."""
    options: AgentOptions = AgentOptions()
    """Laid over the run's options."""
    priority: Priority | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, StringConstraints(max_length=100)],
                Annotated[str, StringConstraints(max_length=2000)] | None,
            ],
            Field(max_length=50),
        ]
        | None
    ) = None
    """Merged; a null takes a name away."""

    @model_validator(mode="after")
    def _one_input(self) -> "RunChangeBody":
        if self.prompt is not None and self.messages is not None:
            raise ValueError("at most one of `prompt` and `messages` is allowed")
        return self

    def change(self) -> RunChange:
        """Give the command's form."""
        prompts = _wishes(self.prompt, self.messages)
        return RunChange(prompts or None, self.options, self.metadata, self.priority)


class SessionBody(_In):
    """A new session."""

    id: Uuid | None = None
    """Chosen by the client; unique within the tenant. Default: a random one."""
    title: Annotated[str, Field(max_length=500)] | None = None
    options: AgentOptions = AgentOptions()
    """Defaults of its runs."""
    workspace: Workspace = Workspace()
    metadata: Metadata = {}

    def wish(self) -> SessionWish:
        """Give the command's form."""
        return SessionWish(self.id, self.title, self.options, self.workspace.wish(), self.metadata)


class SessionBodyWithRun(SessionBody):
    """A new session, with its first run if wanted."""

    model_config = _example(
        title="Tidy the notes",
        options={"permission_mode": "acceptEdits", "max_budget_usd": "2.00"},
        metadata={"ticket": "A-1"},
    )

    run: RunBody | None = None


class SessionNames(_In):
    """The session that a run creates."""

    id: Uuid | None = None
    title: Annotated[str, Field(max_length=500)] | None = None
    metadata: Metadata = {}


class StartBody(RunBody):
    """A session and its first run in one call."""

    session: SessionNames = SessionNames()
    workspace: Workspace = Workspace()

    def session_wish(self) -> SessionWish:
        """Give the session's part: the options are the session's too, so that it goes on alike."""
        names = self.session
        return SessionWish(
            names.id, names.title, self.options, self.workspace.wish(), names.metadata
        )


class ForkBody(_In):
    model_config = _example(title="Another way")

    at_message: Uuid | None = None
    """The last message that the new session has. Default: the newest."""
    title: Annotated[str, Field(max_length=500)] | None = None
    id: Uuid | None = None
    """Of the new session."""


class CancelBody(_In):
    model_config = _example(reason="not needed any more")

    scope: Literal["all", "turn"] = "all"
    """What is stopped. There is nothing yet that outlives a turn, so both mean the same."""
    reason: Annotated[str, Field(max_length=1000)] | None = None


class CancelManyBody(CancelBody):
    """Which runs to cancel: `ids`, or all unfinished ones of a session, or of a status."""

    model_config = _example(session_id="0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f", reason="start over")

    ids: RunIds | None = None
    session_id: Uuid | None = None
    status: (
        Literal["queued", "running", "requires_action"]
        | Annotated[
            list[Literal["queued", "running", "requires_action"]],
            Field(min_length=1, max_length=3),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _one_choice(self) -> "CancelManyBody":
        is_filtered = self.session_id is not None or self.status is not None
        if (self.ids is not None) == is_filtered:
            raise ValueError("either `ids` or a filter (`session_id`, `status`) is needed")
        return self

    def choice(self) -> RunChoice:
        """Give the command's form."""
        ids = None if self.ids is None else list(dict.fromkeys(self.ids))
        statuses = [self.status] if isinstance(self.status, str) else self.status or []
        return RunChoice(ids, self.session_id, statuses)


# -- out --------------------------------------------------------------------------------------


class Tokens(_Out):
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class RunCost(_Out):
    run_usd: str | None
    """The whole run, its children included. Null when no price is known for what it used."""
    tree: bool = True
    estimated: bool
    """Whether some part is an estimate or has no known price."""


class RunResult(_Out):
    text: str | None


class Recovery(_Out):
    policy: str
    max_attempts: int | None
    """Null: the operator's bound."""


class RunObject(_Out):
    """A run."""

    object: Literal["run"] = "run"
    id: Annotated[str, Field(examples=["run_01JDZX5E5V8M2Q4T6Y8A0C2E4G"])]
    session_id: str
    status: RunStatus
    prompt: str | None
    """The first 500 characters of its first prompt's text."""
    priority: int
    result_subtype: str | None
    """The SDK's word for how the loop ended; set when finished."""
    end_reason: str | None
    """Our word for why. More words may come."""
    is_error: bool | None
    stop_reason: str | None
    terminal_reason: str | None
    attempt: int
    """How many hosts have begun it."""
    worker: str | None
    lease_expires_at: str | None
    queue_position: int | None
    """Runs of the session before it, while it is queued."""
    first_seq: int
    last_seq: int | None
    num_turns: int | None
    resumed_from: str | None
    """The session's last message before this run."""
    options: dict[str, Any]
    """Effective: defaults, aliases and ceilings applied."""
    cost: RunCost
    usage: Tokens
    result: RunResult
    errors: list[str]
    permission_denials: list[dict[str, Any]]
    origin: str
    parent_run_id: str | None
    metadata: dict[str, str]
    cancel_requested_at: str | None
    recovery: Recovery
    created_at: str
    started_at: str | None
    finished_at: str | None
    deadline_at: str | None

    @staticmethod
    def of(row: RunRow) -> "RunObject":
        """Show a run."""
        is_unpriced = row.is_estimated and row.cost_usd == 0 and row.input_tokens > 0
        return RunObject(
            id=row.id,
            session_id=row.session_id,
            status=_status(row.status),
            prompt=row.prompt,
            priority=row.priority,
            result_subtype=row.result_subtype,
            end_reason=row.end_reason,
            is_error=row.is_error,
            stop_reason=row.stop_reason,
            terminal_reason=row.terminal_reason,
            attempt=row.attempt,
            worker=row.worker,
            lease_expires_at=_time(row.lease_expires_at),
            queue_position=row.queue_position,
            first_seq=row.first_seq,
            last_seq=row.last_seq,
            num_turns=row.num_turns,
            resumed_from=row.resumed_from,
            options=dict(row.options),
            cost=RunCost(
                run_usd=None if is_unpriced else usd(row.cost_usd), estimated=row.is_estimated
            ),
            usage=Tokens(
                input_tokens=row.input_tokens,
                output_tokens=row.output_tokens,
                cache_read_tokens=row.cache_read_tokens,
                cache_write_tokens=row.cache_write_tokens,
            ),
            result=RunResult(text=row.result_text),
            errors=list(row.errors or ()),
            permission_denials=[dict(denial) for denial in row.permission_denials or ()],
            origin=row.origin,
            parent_run_id=row.parent_run_id,
            metadata=dict(row.metadata),
            cancel_requested_at=_time(row.cancel_requested_at),
            recovery=Recovery(policy=row.recovery_policy, max_attempts=row.max_attempts),
            created_at=wire_time(row.created_at),
            started_at=_time(row.started_at),
            finished_at=_time(row.finished_at),
            deadline_at=_time(row.deadline_at),
        )


class SessionCost(_Out):
    session_usd: str
    """This session's own ledger."""
    inherited_usd: str
    """What the parent of a fork had spent; the wire's `total_cost_usd` starts there."""


class SessionObject(_Out):
    """A session."""

    object: Literal["session"] = "session"
    id: str
    status: Literal["idle", "running"]
    """Derived from the lease: running while a host holds the session."""
    title: str | None
    active_run_id: str | None
    queued_runs: int
    last_seq: int
    last_message_uuid: str | None
    num_runs: int
    cost: SessionCost
    options: dict[str, Any]
    workspace: dict[str, Any]
    parent_id: str | None
    forked_at: str | None
    metadata: dict[str, str]
    created_at: str
    updated_at: str

    @staticmethod
    def of(row: SessionRow) -> "SessionObject":
        """Show a session. The host's own folder names stay private."""
        return SessionObject(
            id=row.id,
            status="running" if row.is_running else "idle",
            title=row.title,
            active_run_id=row.active_run_id,
            queued_runs=row.queued_runs,
            last_seq=row.last_seq,
            last_message_uuid=row.last_message_uuid,
            num_runs=row.num_runs,
            cost=SessionCost(
                session_usd=usd(row.cost_usd), inherited_usd=usd(_inherited(row.inherited))
            ),
            options=dict(row.options),
            workspace={k: v for k, v in row.workspace.items() if k != "token"},
            parent_id=row.parent_id,
            forked_at=_time(row.forked_at),
            metadata=dict(row.metadata),
            created_at=wire_time(row.created_at),
            updated_at=wire_time(row.updated_at),
        )


class Links(_Out):
    run: str
    stream: str
    events: str
    session: str


class Started(_Out):
    """What a prompt answers with."""

    run: RunObject
    session: SessionObject
    links: Links
    steered_into: str | None = None
    """The run that takes the prompt in, when it makes no run of its own: `run` is that one."""

    @staticmethod
    def of(run: RunRow, session: SessionRow, steered_into: str | None) -> "Started":
        """Show what became of a prompt."""
        return Started(
            run=RunObject.of(run),
            session=SessionObject.of(session),
            links=Links(
                run=f"/v1/runs/{run.id}",
                stream=f"/v1/runs/{run.id}/stream",
                events=f"/v1/sessions/{session.id}/events?run_id={run.id}",
                session=f"/v1/sessions/{session.id}",
            ),
            steered_into=steered_into,
        )


class CreatedSession(SessionObject):
    """A new session, with its first run when one was asked for."""

    run: RunObject | None = None


class Stopped(_Out):
    """What was under way when a run was stopped."""

    tools: list[str] = []
    """Ids of the tool uses that were cut short."""
    tasks: list[str] = []
    processes: int = 0
    model_request: bool = False


class CancelReceipt(_Out):
    """What a cancel did to a run."""

    run_id: str
    status: Literal["cancelling", "finished"]
    stopped: Stopped
    """Known when the run has ended."""
    already_finished: bool
    """Whether the run had ended before it was cancelled."""

    @staticmethod
    def of(settled: Settled) -> "CancelReceipt":
        """Show what a cancel did."""
        return CancelReceipt(
            run_id=settled.run.id,
            status="finished" if settled.run.status == "finished" else "cancelling",
            stopped=Stopped.model_validate(dict(settled.stopped)),
            already_finished=settled.is_already_finished,
        )


class CancelReceipts(_Out):
    data: list[CancelReceipt]
    missing: list[str]
    """Ids that do not exist."""
    has_more: bool
    """Whether more runs fit the filter: cancel again."""


class RunPage(_Out):
    data: list[RunObject]
    has_more: bool
    next_cursor: str | None


class SessionPage(_Out):
    data: list[SessionObject]
    has_more: bool
    next_cursor: str | None


class LogEntry(_Out):
    """A durable entry of a session's log."""

    seq: int
    at: str
    run_id: str | None
    kind: Literal["message", "service"]
    data: dict[str, Any]
    """An SDK message, verbatim, or a service event."""


class EventPage(_Out):
    data: list[LogEntry]
    has_more: bool
    next_after: int | None
    """Pass it as `after` (or `before`, newest first) to go on."""


class MessagePage(_Out):
    data: list[dict[str, Any]]
    """SDK messages, verbatim."""
    has_more: bool
    next_after: int | None


class WireVersions(_Out):
    claude_code_version: str
    claude_agent_sdk: str
    """The SDK version whose message parser reads our messages (tested)."""


class Meta(_Out):
    version: str
    api: Literal["v1"] = "v1"
    wire: WireVersions
    features: list[str]
    sandbox: str
    models: dict[str, Any]
    limits: dict[str, Any]
    retention: dict[str, Any]


def usd(amount: Decimal) -> str:
    """Write money: at least six decimals, at most nine."""
    text = f"{amount:.9f}"
    return text[: len(text) - 3] + text[-3:].rstrip("0")


def _time(at: datetime | None) -> str | None:
    return None if at is None else wire_time(at)


def _status(status: str) -> RunStatus:
    match status:
        case "queued" | "running" | "requires_action" | "finished":
            return status
        case _:
            raise TreadleError(f"a run has the unknown status {status!r}")


def _inherited(value: Mapping[str, Any] | None) -> Decimal:
    return sum((Decimal(part["cost_usd"]) for part in (value or {}).values()), Decimal(0))
