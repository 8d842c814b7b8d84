"""Wire messages that tell how a run is getting on: no model reads them.

Those that are `Ephemeral` go to readers of partial messages alone and are never journalled.
"""

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from app.domain.wire import ABSENT, WireMessage


class StatusMessage(WireMessage):
    """What the loop is at. `requesting` (before each model request) is ephemeral."""

    type: Literal["system"] = "system"
    subtype: Literal["status"] = "status"
    status: Literal["requesting", "compacting"] | None
    """Null when what was told before is over."""
    permissionMode: str | None = ABSENT  # noqa: N815 - the wire's name
    """The new mode, after it was changed."""
    compact_result: Literal["success", "failed"] | None = ABSENT
    compact_error: str | None = ABSENT
    compact_output_chars: int | None = ABSENT


class ThinkingTokensMessage(WireMessage):
    """About how much a model thought. Comes just before the thinking block that it is about.

    Ephemeral ones come while the block is on its way.
    """

    type: Literal["system"] = "system"
    subtype: Literal["thinking_tokens"] = "thinking_tokens"
    estimated_tokens: int
    """Of the block, told by its characters; the bill is in `usage`."""
    estimated_tokens_delta: int
    """What is new since the last estimate of the block."""


class InformationalMessage(WireMessage):
    """Something that a person should know and that stops nothing."""

    type: Literal["system"] = "system"
    subtype: Literal["informational"] = "informational"
    content: str
    level: Literal["notice", "warning"]
    tag: str | None = ABSENT
    """What it is about, for machines. More words may come."""
    prevent_continuation: bool | None = ABSENT
    """True when a hook ended the run before its first request."""
    prompt_submit_outcome: dict[str, Any] | None = ABSENT
    """What became of a prompt that a hook objected to: `kind` (`blocked_by_hook`,
    `stopped_by_hook`), `prompt_kept` (whether it is in the conversation), `reason`."""


class NotificationMessage(WireMessage):
    """Something that an interface may show for a moment."""

    type: Literal["system"] = "system"
    subtype: Literal["notification"] = "notification"
    key: str
    """What it is about; a newer one takes the place of an older one of the same key."""
    text: str
    priority: Literal["low", "medium", "high", "immediate"]


class HookStartedMessage(WireMessage):
    """A hook was asked. Told when it has answered, just before `hook_response`."""

    type: Literal["system"] = "system"
    subtype: Literal["hook_started"] = "hook_started"
    hook_id: str
    """The same when the hook is asked again about the same moment, after a host was lost."""
    hook_name: str
    """The event and what it is about: `PreToolUse:Bash`, `SessionStart:startup`."""
    hook_event: str


class HookResponseMessage(WireMessage):
    """What a hook answered."""

    type: Literal["system"] = "system"
    subtype: Literal["hook_response"] = "hook_response"
    hook_id: str
    hook_name: str
    hook_event: str
    output: str
    """All that a command printed, or the body of an HTTP answer; cut where it is long."""
    stdout: str
    stderr: str
    exit_code: int | None = ABSENT
    """Of a command."""
    outcome: Literal["success", "error", "cancelled"]


class RateLimitInfo(BaseModel):
    """Where the provider's limit stands that binds most."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    status: Literal["allowed", "allowed_warning", "rejected"]
    """Below the limit; near it; a request was refused."""
    resetsAt: int | None = ABSENT  # noqa: N815 - the wire's name, as are those below
    """Seconds since 1970."""
    rateLimitType: str | None = ABSENT  # noqa: N815
    """The window of a subscription, such as `five_hour`; absent for the limits of an API key."""
    utilization: float | None = ABSENT
    """The share that is used up, 0 to 1."""
    overageStatus: str | None = ABSENT  # noqa: N815
    overageResetsAt: int | None = ABSENT  # noqa: N815
    overageDisabledReason: str | None = ABSENT  # noqa: N815
    resource: str | None = ABSENT
    """What an API key's limit counts: `requests`, `tokens`, `input_tokens`, `output_tokens`."""


class RateLimitEvent(WireMessage):
    """The provider's rate limit came near, was hit, or is far again."""

    type: Literal["rate_limit_event"] = "rate_limit_event"
    rate_limit_info: RateLimitInfo


class PromptSuggestionMessage(WireMessage):
    """What the user may want to send next. Comes after the result, where it was asked for."""

    type: Literal["prompt_suggestion"] = "prompt_suggestion"
    suggestion: str
    """One line."""


class ToolProgressMessage(WireMessage):
    """A call is still running. Ephemeral."""

    type: Literal["tool_progress"] = "tool_progress"
    tool_use_id: str
    tool_name: str
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: int
    subagent_type: str | None = ABSENT
    subagent_retry: dict[str, Any] | None = ABSENT
    """Of a call that began a subagent: its model request failed and will be made again. `agent_id`,
    `attempt`, `max_retries`, `retry_delay_ms`, `error_status`, `error_category`."""


Ephemeral: TypeAlias = StatusMessage | ToolProgressMessage | ThinkingTokensMessage
