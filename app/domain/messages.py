"""The wire messages: the Claude Agent SDK's stream-json messages, field for field.

Source: the contract's D2 and the observed wire behaviour ("loop" in `tests/requirements.py`).
A field whose default is `ABSENT` is left out when it has no value; a plain None is sent as null,
since parsers look for it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter

from app.domain.blocks import Block
from app.domain.usage import ModelLimits, ModelSpend, Usage


def _is_none(value: object) -> bool:
    return value is None


ABSENT: Any = Field(default=None, exclude_if=_is_none)
"""Default of fields that are left out of the JSON when they have no value."""


NO_STATUS = 0
"""Stands for "no such field" where a null has a meaning of its own."""


def _is_no_status(value: object) -> bool:
    return value == NO_STATUS


def wire_time(at: datetime) -> str:
    """Give a time as the wire has it: RFC 3339, UTC, milliseconds."""
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    session_id: str
    """The session; the same on all its messages, also after a resume on another host."""
    uuid: str
    """Unique to the message."""


# -- usage on the wire ------------------------------------------------------------------------


class CacheCreation(BaseModel):
    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class WireUsage(BaseModel):
    """Token counts in the Messages API's names."""

    model_config = ConfigDict(frozen=True, extra="allow")

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int]
    server_tool_use: dict[str, int]
    service_tier: str = "standard"
    cache_creation: CacheCreation

    @staticmethod
    def of(usage: Usage) -> "WireUsage":
        """Put a usage into wire form."""
        return WireUsage(
            input_tokens=usage.input_tokens,
            cache_creation_input_tokens=usage.cache_write_tokens,
            cache_read_input_tokens=usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
            output_tokens_details={"thinking_tokens": usage.thinking_tokens},
            server_tool_use={
                "web_search_requests": usage.web_search_requests,
                "web_fetch_requests": 0,
            },
            cache_creation=CacheCreation(
                ephemeral_5m_input_tokens=usage.cache_write_5m_tokens,
                ephemeral_1h_input_tokens=usage.cache_write_1h_tokens,
            ),
        )


class WireModelUsage(BaseModel):
    """One entry of `modelUsage`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    inputTokens: int  # noqa: N815 - the wire's name, as are those below
    outputTokens: int  # noqa: N815
    cacheReadInputTokens: int  # noqa: N815
    cacheCreationInputTokens: int  # noqa: N815
    webSearchRequests: int  # noqa: N815
    costUSD: float  # noqa: N815
    contextWindow: int  # noqa: N815
    maxOutputTokens: int  # noqa: N815
    thinkingTokens: int  # noqa: N815
    cacheCreationEphemeral5mInputTokens: int  # noqa: N815
    cacheCreationEphemeral1hInputTokens: int  # noqa: N815
    canonicalModel: str  # noqa: N815
    costBasis: Literal["list", "unknown"]  # noqa: N815
    """`unknown` when some request of the model had no known price (decisions B24)."""

    @staticmethod
    def of(spend: ModelSpend, limits: ModelLimits, canonical: str) -> "WireModelUsage":
        """Put what a model consumed into wire form."""
        return WireModelUsage(
            inputTokens=spend.usage.input_tokens,
            outputTokens=spend.usage.output_tokens,
            cacheReadInputTokens=spend.usage.cache_read_tokens,
            cacheCreationInputTokens=spend.usage.cache_write_tokens,
            webSearchRequests=spend.usage.web_search_requests,
            costUSD=float(spend.cost_usd),
            contextWindow=limits.context_window,
            maxOutputTokens=limits.max_output,
            thinkingTokens=spend.usage.thinking_tokens,
            cacheCreationEphemeral5mInputTokens=spend.usage.cache_write_5m_tokens,
            cacheCreationEphemeral1hInputTokens=spend.usage.cache_write_1h_tokens,
            canonicalModel=canonical,
            costBasis="unknown" if spend.unpriced else "list",
        )


# -- system -----------------------------------------------------------------------------------


class InitMessage(_Wire):
    """First message of a run: what the session is."""

    type: Literal["system"] = "system"
    subtype: Literal["init"] = "init"
    cwd: str
    """The agent's directory, in its own view."""
    tools: list[str]
    mcp_servers: list[dict[str, Any]] = []
    model: str
    """The id as configured for the run."""
    permissionMode: str  # noqa: N815 - the wire's name
    slash_commands: list[str] = []
    apiKeySource: str  # noqa: N815 - the wire's name
    claude_code_version: str
    """Our version string, in the field that existing parsers look at."""
    output_style: str = "default"
    agents: list[str] = []
    skills: list[str] = []
    plugins: list[dict[str, Any]] = []
    sandbox: str = "bubblewrap"
    """Where commands run: `bubblewrap`, or `none` (an operator's explicit choice)."""
    user_message_uuids: list[str] | None = ABSENT
    """Prompts that came with an id of their own."""


class ApiRetryMessage(_Wire):
    """A model request failed and will be made again after a wait."""

    type: Literal["system"] = "system"
    subtype: Literal["api_retry"] = "api_retry"
    attempt: int
    """The failed try, from 1."""
    max_retries: int
    retry_delay_ms: int
    error_status: int | None
    """HTTP status; null when no answer came."""
    error: str


class PermissionDeniedMessage(_Wire):
    """A call was refused by a rule, by the mode, or for want of somebody to ask."""

    type: Literal["system"] = "system"
    subtype: Literal["permission_denied"] = "permission_denied"
    tool_name: str
    tool_use_id: str
    message: str
    decision_reason_type: str | None = ABSENT
    decision_reason: str | None = ABSENT


class WorkerShuttingDownMessage(_Wire):
    """The host is going; another one goes on with the run."""

    type: Literal["system"] = "system"
    subtype: Literal["worker_shutting_down"] = "worker_shutting_down"


class OtherSystemMessage(_Wire):
    """A system message of a kind that this version only passes on."""

    type: Literal["system"] = "system"
    subtype: str


# -- conversation -----------------------------------------------------------------------------


class ApiMessage(BaseModel):
    """The API's message inside an assistant message: one content block of a response."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    """Shared by all blocks of a response; a UUID on messages that the loop made."""
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    """The model that answered; `<synthetic>` on messages that the loop made."""
    content: list[Block]
    """Exactly one block."""
    stop_reason: str | None
    """The response's final one (decisions B1)."""
    stop_sequence: str | None = None
    usage: WireUsage
    """The response's final one, the same on all its blocks: count it once a `message.id`."""


class AssistantMessage(_Wire):
    """One content block of a model response."""

    type: Literal["assistant"] = "assistant"
    message: ApiMessage
    parent_tool_use_id: str | None = None
    timestamp: str
    error: str | None = ABSENT
    """Category of a failure; set on messages that the loop made, never sent to the model."""
    is_api_error_message: bool | None = ABSENT
    request_id: str | None = ABSENT
    api_error_status: int | None = ABSENT
    api_error_type: str | None = ABSENT
    aborted: bool | None = ABSENT
    """True on a text that a cancel cut off."""
    user_message_uuid: str | None = ABSENT
    user_message_uuids: list[str] | None = ABSENT


class UserContent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    role: Literal["user"] = "user"
    content: str | list[Block]


class UserMessage(_Wire):
    """A tool result, a prompt (as a replay), or a note of the loop."""

    type: Literal["user"] = "user"
    message: UserContent
    parent_tool_use_id: str | None = None
    timestamp: str
    tool_use_result: Any = ABSENT
    """Structured output of the tool; `Error: …` for a failure."""
    tool_result_meta: list[dict[str, Any]] | None = ABSENT
    isSynthetic: bool | None = ABSENT  # noqa: N815 - the wire's name
    """True on notes of the loop that the model reads."""
    isReplay: bool | None = ABSENT  # noqa: N815 - the wire's name
    """True on prompts (decisions B25)."""


ResultSubtype = Literal[
    "success",
    "error_max_turns",
    "error_max_budget_usd",
    "error_during_execution",
    "error_max_structured_output_retries",
]


class ResultMessage(_Wire):
    """The end of a run: why it stopped and what it cost. Exactly one a finished run."""

    type: Literal["result"] = "result"
    subtype: ResultSubtype
    is_error: bool
    duration_ms: int
    duration_api_ms: int
    num_turns: int
    """Completed main-thread responses of the run (decisions B4)."""
    stop_reason: str | None
    """Of the run's last finished response; null where none finished."""
    terminal_reason: str | None = ABSENT
    total_cost_usd: float
    """Cumulative over the session, inherited cost of a fork included (decisions B23)."""
    usage: WireUsage
    """This run, main thread only."""
    modelUsage: dict[str, WireModelUsage]  # noqa: N815 - the wire's name
    """Cumulative over the session, all threads, by model."""
    model_usage_since_last_result: dict[str, WireModelUsage]
    """This run, all threads, by model."""
    permission_denials: list[dict[str, Any]] = []
    result: str | None = ABSENT
    """The final text. On `success` only."""
    errors: list[str] | None = ABSENT
    """What went wrong. On errors only."""
    structured_output: Any = ABSENT
    api_error_status: int | None = Field(default=NO_STATUS, exclude_if=_is_no_status)
    """Of an API failure (null: no answer came). Null on `success`, left out on other errors."""
    ttft_ms: int | None = ABSENT
    user_message_uuid: str | None = ABSENT
    user_message_uuids: list[str] | None = ABSENT


def _message_kind(value: Any) -> str:  # noqa: ANN401 - pydantic hands over whatever came in
    def pick(name: str) -> Any:  # noqa: ANN401 - the same
        return value.get(name) if isinstance(value, dict) else getattr(value, name, None)

    kind = pick("type")
    if kind != "system":
        return str(kind)
    subtype = pick("subtype")
    known = {"init", "api_retry", "permission_denied", "worker_shutting_down"}
    return subtype if subtype in known else "system"


Message = Annotated[
    Annotated[InitMessage, Tag("init")]
    | Annotated[ApiRetryMessage, Tag("api_retry")]
    | Annotated[PermissionDeniedMessage, Tag("permission_denied")]
    | Annotated[WorkerShuttingDownMessage, Tag("worker_shutting_down")]
    | Annotated[OtherSystemMessage, Tag("system")]
    | Annotated[AssistantMessage, Tag("assistant")]
    | Annotated[UserMessage, Tag("user")]
    | Annotated[ResultMessage, Tag("result")],
    Discriminator(_message_kind),
]
"""Any durable message, discriminated by `type` and `subtype`."""

_ANY_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


def parse_message(body: bytes | str) -> Message:
    """Read a journal row's body. Raises `ValidationError`."""
    return _ANY_MESSAGE.validate_json(body)


def encode_message(message: Message) -> bytes:
    """Encode a message, once, when it is born: these bytes are stored and sent to readers."""
    return message.model_dump_json(by_alias=True).encode()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user's input that waits in the inbox until the loop takes it in."""

    id: str
    """The inbox row."""
    uuid: str
    """Of the `user` message that it becomes."""
    content: str | list[dict[str, Any]]
    """Text, or content blocks in Messages API form."""
    has_client_uuid: bool = False
    """Whether the client chose the uuid, so that it is named on `init` and `result`."""
    is_steer: bool = False
    """Whether it was sent into a run that was already going on."""
