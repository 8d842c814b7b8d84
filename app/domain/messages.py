"""The wire messages: the Claude Agent SDK's stream-json messages, field for field.

Source: the contract's D2 and the observed wire behaviour ("loop" in `tests/requirements.py`).
A field whose default is `ABSENT` is left out when it has no value; a plain None is sent as null,
since parsers look for it.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter
from pydantic_core import from_json

from app.domain.blocks import Block
from app.domain.compaction import CompactBoundaryMessage
from app.domain.notices import (
    HookResponseMessage,
    HookStartedMessage,
    InformationalMessage,
    NotificationMessage,
    PromptSuggestionMessage,
    RateLimitEvent,
    StatusMessage,
    ThinkingTokensMessage,
    ToolProgressMessage,
)
from app.domain.results import ErrorResult, SuccessResult
from app.domain.results import ResultMessage as ResultMessage
from app.domain.results import ResultSubtype as ResultSubtype
from app.domain.task_messages import BackgroundTasksChangedMessage as BackgroundTasksChangedMessage
from app.domain.task_messages import TaskNotificationMessage as TaskNotificationMessage
from app.domain.task_messages import TaskProgressMessage as TaskProgressMessage
from app.domain.task_messages import TaskStartedMessage as TaskStartedMessage
from app.domain.task_messages import TaskUpdatedMessage as TaskUpdatedMessage
from app.domain.wire import ABSENT, WireMessage
from app.domain.wire import wire_time as wire_time
from app.domain.wire_usage import WireModelUsage as WireModelUsage
from app.domain.wire_usage import WireUsage as WireUsage

_KNOWN_SUBTYPES = frozenset(
    {
        "init",
        "api_retry",
        "model_fallback",
        "permission_denied",
        "worker_shutting_down",
        "status",
        "compact_boundary",
        "thinking_tokens",
        "informational",
        "notification",
        "hook_started",
        "hook_response",
        "task_started",
        "task_progress",
        "task_updated",
        "task_notification",
        "background_tasks_changed",
    }
)
"""Of the system messages that have a class of their own."""


# -- system -----------------------------------------------------------------------------------


class InitMessage(WireMessage):
    """First message of a run: what the session is."""

    type: Literal["system"] = "system"
    subtype: Literal["init"] = "init"
    cwd: str
    """The agent's directory, in its own view."""
    tools: list[str]
    mcp_servers: list[dict[str, Any]] = Field(default_factory=list)
    model: str
    """The id as configured for the run."""
    permissionMode: str  # noqa: N815 - the wire's name
    slash_commands: list[str] = Field(default_factory=list)
    apiKeySource: str  # noqa: N815 - the wire's name
    claude_code_version: str
    """Our version string, in the field that existing parsers look at."""
    output_style: str = "default"
    agents: list[str] = Field(default_factory=list)
    skills: list[str] = Field(default_factory=list)
    plugins: list[dict[str, Any]] = Field(default_factory=list)
    betas: list[str] | None = ABSENT
    """Beta features of the provider that the run asked for."""
    sandbox: str = "bubblewrap"
    """Where commands run: `bubblewrap`, or `none` (an operator's explicit choice)."""
    user_message_uuids: list[str] | None = ABSENT
    """Prompts that came with an id of their own."""


class ApiRetryMessage(WireMessage):
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


class ModelFallbackMessage(WireMessage):
    """Another model answers for the rest of the run. The next run begins with its own model."""

    type: Literal["system"] = "system"
    subtype: Literal["model_fallback"] = "model_fallback"
    trigger: Literal["overloaded", "server_error", "model_not_found", "last_resort"]
    """How the run's own model failed; `last_resort`: nothing else was left to try."""
    original_model: str
    fallback_model: str
    content: str
    """The same in a sentence."""


class PermissionDeniedMessage(WireMessage):
    """A call was refused by a rule, by the mode, or for want of somebody to ask."""

    type: Literal["system"] = "system"
    subtype: Literal["permission_denied"] = "permission_denied"
    tool_name: str
    tool_use_id: str
    message: str
    decision_reason_type: str | None = ABSENT
    decision_reason: str | None = ABSENT
    agent_id: str | None = ABSENT
    """The subagent whose call it was."""


class WorkerShuttingDownMessage(WireMessage):
    """The host is going; another one goes on with the run."""

    type: Literal["system"] = "system"
    subtype: Literal["worker_shutting_down"] = "worker_shutting_down"


class OtherSystemMessage(WireMessage):
    """A system message of a kind that this version only passes on."""

    type: Literal["system"] = "system"
    subtype: Annotated[str, Field(json_schema_extra={"not": {"enum": sorted(_KNOWN_SUBTYPES)}})]


class ConversationReset(WireMessage):
    """A `/clear`: what was said before is not sent to the model any more. The session goes on."""

    type: Literal["conversation_reset"] = "conversation_reset"
    new_conversation_id: str
    trigger: Literal["clear"] = "clear"
    user_message_uuid: str
    """The prompt that asked for it."""
    timestamp: str


# -- conversation -----------------------------------------------------------------------------


SYNTHETIC = "<synthetic>"
"""The model of assistant messages that the loop made: no model is ever sent them."""


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


class ToolUseMeta(BaseModel):
    """Whose tool a call is for, as a person would be told."""

    model_config = ConfigDict(frozen=True)

    id: str
    """The call's."""
    display_name: str
    server_display_name: str
    tool_name: str
    """By which its server knows it."""


class AssistantMessage(WireMessage):
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
    api_error: str | None = ABSENT
    """`connection_failed` when no answer came."""
    aborted: bool | None = ABSENT
    """True on a text that a cancel cut off."""
    tool_use_meta: list[ToolUseMeta] | None = ABSENT
    """Where the block calls a tool of an MCP server or of the client."""
    user_message_uuid: str | None = ABSENT
    user_message_uuids: list[str] | None = ABSENT
    agent_id: str | None = ABSENT
    """The subagent whose message it is; so is `subagent_type`, and `task_description` its task."""
    subagent_type: str | None = ABSENT
    task_description: str | None = ABSENT


class UserContent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    role: Literal["user"] = "user"
    content: str | list[Block]


class UserMessage(WireMessage):
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
    agent_id: str | None = ABSENT
    """The subagent whose message it is; so is `subagent_type`, and `task_description` its task."""
    subagent_type: str | None = ABSENT
    task_description: str | None = ABSENT


def _message_kind(value: Any) -> str:  # noqa: ANN401 - pydantic hands over whatever came in
    def pick(name: str) -> Any:  # noqa: ANN401 - the same
        return value.get(name) if isinstance(value, dict) else getattr(value, name, None)

    kind = pick("type")
    subtype = pick("subtype")
    if kind == "result":
        return "success" if subtype == "success" else "error"
    if kind != "system":
        return str(kind)
    return subtype if subtype in _KNOWN_SUBTYPES else "system"


Message = Annotated[
    Annotated[InitMessage, Tag("init")]
    | Annotated[ApiRetryMessage, Tag("api_retry")]
    | Annotated[ModelFallbackMessage, Tag("model_fallback")]
    | Annotated[PermissionDeniedMessage, Tag("permission_denied")]
    | Annotated[WorkerShuttingDownMessage, Tag("worker_shutting_down")]
    | Annotated[StatusMessage, Tag("status")]
    | Annotated[ThinkingTokensMessage, Tag("thinking_tokens")]
    | Annotated[InformationalMessage, Tag("informational")]
    | Annotated[NotificationMessage, Tag("notification")]
    | Annotated[HookStartedMessage, Tag("hook_started")]
    | Annotated[HookResponseMessage, Tag("hook_response")]
    | Annotated[CompactBoundaryMessage, Tag("compact_boundary")]
    | Annotated[TaskStartedMessage, Tag("task_started")]
    | Annotated[TaskProgressMessage, Tag("task_progress")]
    | Annotated[TaskUpdatedMessage, Tag("task_updated")]
    | Annotated[TaskNotificationMessage, Tag("task_notification")]
    | Annotated[BackgroundTasksChangedMessage, Tag("background_tasks_changed")]
    | Annotated[OtherSystemMessage, Tag("system")]
    | Annotated[RateLimitEvent, Tag("rate_limit_event")]
    | Annotated[ToolProgressMessage, Tag("tool_progress")]
    | Annotated[PromptSuggestionMessage, Tag("prompt_suggestion")]
    | Annotated[ConversationReset, Tag("conversation_reset")]
    | Annotated[AssistantMessage, Tag("assistant")]
    | Annotated[UserMessage, Tag("user")]
    | Annotated[SuccessResult, Tag("success")]
    | Annotated[ErrorResult, Tag("error")],
    Discriminator(_message_kind),
]
"""Any message that we write, discriminated by `type` and `subtype`."""

_ANY_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


def parse_message(body: bytes | str) -> Message:
    """Read a journal row's body. Raises `ValidationError`, and `ValueError` for what is no JSON."""
    # Decoded first: the validator would do so again for each function that tells kinds apart.
    value = from_json(body, cache_strings="keys")
    kind = _OFTEN.get(value.get("type")) if isinstance(value, dict) else None
    return (kind or _ANY_MESSAGE).validate_python(value)


_OFTEN: dict[object, TypeAdapter[AssistantMessage] | TypeAdapter[UserMessage]] = {
    "assistant": TypeAdapter(AssistantMessage),
    "user": TypeAdapter(UserMessage),
}
"""Kinds that most of a journal is made of, told by their type alone."""


def encode_message(message: Message) -> bytes:
    """Encode a message, once, when it is born: these bytes are stored and sent to readers."""
    return message.__pydantic_serializer__.to_json(message, by_alias=True)


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
