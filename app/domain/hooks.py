"""Hooks as the loop sees them: the moments at which they are asked.

Each event is a class; its fields are what a hook is told, under the names of the wire. To add one:
a class here (and in `HookEvent`), and one `fire` at its point in `agent/`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from app.domain.value import value


@value
class _Event:
    name: ClassVar[str]
    tells_mode: ClassVar[bool] = False
    """Whether the hook is told the permission mode."""
    tells_effort: ClassVar[bool] = False

    key: str
    """Tells this moment from others of its kind in the run, on every host alike."""

    @property
    def subject(self) -> str | None:
        """What a matcher is held against; None: the event has no such thing, every hook is asked."""
        return None

    @property
    def hook_name(self) -> str:
        """The name of the moment on the wire: `PreToolUse:Bash`, `SessionStart:startup`, `Stop`."""
        return self.name if self.subject is None else f"{self.name}:{self.subject}"

    def told(self) -> dict[str, Any]:
        """Give the event's own part of what hooks are told. JSON."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name != "key"}


@value
class _ToolEvent(_Event):
    tells_mode: ClassVar[bool] = True
    tells_effort: ClassVar[bool] = True

    tool_name: str
    tool_input: Mapping[str, Any]
    tool_use_id: str

    @property
    def subject(self) -> str | None:
        return self.tool_name


@value
class PreToolUse(_ToolEvent):
    """A valid call is about to be decided."""

    name: ClassVar[str] = "PreToolUse"


@value
class PostToolUse(_ToolEvent):
    """A call succeeded; its result is not told yet."""

    name: ClassVar[str] = "PostToolUse"

    tool_response: Any
    """The structured output; the text of a tool that has none."""
    duration_ms: int


@value
class PostToolUseFailure(_ToolEvent):
    """A call ran and failed; its result is not told yet."""

    name: ClassVar[str] = "PostToolUseFailure"

    error: str
    is_interrupt: bool
    duration_ms: int


@value
class PostToolBatch(_Event):
    """All calls of a response have their results."""

    name: ClassVar[str] = "PostToolBatch"

    tool_calls: Sequence[Mapping[str, Any]]
    """Each with `tool_name`, `tool_input`, `tool_use_id`, `tool_response`, in call order."""


@value
class PermissionRequest(_Event):
    """A person is asked whether a call may run."""

    name: ClassVar[str] = "PermissionRequest"
    tells_mode: ClassVar[bool] = True
    tells_effort: ClassVar[bool] = True

    tool_name: str
    tool_input: Mapping[str, Any]
    permission_suggestions: Sequence[Mapping[str, Any]]

    @property
    def subject(self) -> str | None:
        return self.tool_name


@value
class UserPromptSubmit(_Event):
    """A prompt is about to enter the conversation. Not asked for commands of the service."""

    name: ClassVar[str] = "UserPromptSubmit"
    tells_mode: ClassVar[bool] = True

    prompt: str


@value
class Stop(_Event):
    """The model came to an end; the run is about to."""

    name: ClassVar[str] = "Stop"
    tells_mode: ClassVar[bool] = True
    tells_effort: ClassVar[bool] = True

    stop_hook_active: bool
    """Whether the run goes on because of a Stop hook already."""
    last_assistant_message: str
    background_tasks: Sequence[Mapping[str, Any]]
    session_crons: Sequence[Mapping[str, Any]] = ()


@value
class SubagentStart(_Event):
    """A subagent is about to begin. It is told the contexts; what else hooks say changes nothing."""

    name: ClassVar[str] = "SubagentStart"

    agent_id: str
    agent_type: str

    @property
    def subject(self) -> str | None:
        return self.agent_type


@value
class SubagentStop(_Event):
    """A subagent's model came to an end; it is about to. For it what `Stop` is for a run."""

    name: ClassVar[str] = "SubagentStop"
    tells_mode: ClassVar[bool] = True
    tells_effort: ClassVar[bool] = True

    agent_id: str
    agent_type: str
    stop_hook_active: bool
    last_assistant_message: str
    agent_transcript_path: str
    """Of the subagent's messages, over HTTP."""

    @property
    def subject(self) -> str | None:
        return self.agent_type


@value
class StopFailure(_Event):
    """The run ends since its model request failed for good. What hooks say changes nothing."""

    name: ClassVar[str] = "StopFailure"
    tells_effort: ClassVar[bool] = True

    error: str
    """The category: `rate_limit`, `server_error` …"""
    last_assistant_message: str


@value
class PreCompact(_Event):
    """A compaction begins. What hooks say changes nothing."""

    name: ClassVar[str] = "PreCompact"

    trigger: Literal["manual", "auto"]
    custom_instructions: str | None

    @property
    def subject(self) -> str | None:
        return self.trigger


@value
class PostCompact(_Event):
    """A summary is written. What hooks say changes nothing."""

    name: ClassVar[str] = "PostCompact"

    trigger: Literal["manual", "auto"]
    compact_summary: str

    @property
    def subject(self) -> str | None:
        return self.trigger


@value
class SessionStart(_Event):
    """A run opens its session, or a compaction has made its conversation anew."""

    name: ClassVar[str] = "SessionStart"

    source: Literal["startup", "resume", "compact"]
    """`startup`: the conversation is empty; `resume`: a run goes on with one."""
    model: str

    @property
    def subject(self) -> str | None:
        return self.source


@value
class SessionEnd(_Event):
    """A run has left its session. What hooks say changes nothing."""

    name: ClassVar[str] = "SessionEnd"

    reason: str

    @property
    def subject(self) -> str | None:
        return self.reason


@value
class Notification(_Event):
    """A person's attention is wanted. What hooks say changes nothing."""

    name: ClassVar[str] = "Notification"

    message: str
    notification_type: str
    """`permission_prompt`: a call waits for an approval."""

    @property
    def subject(self) -> str | None:
        return self.notification_type


@value
class Setup(_Event):
    """A conversation begins, just before its `SessionStart`: what has to be there can be made."""

    name: ClassVar[str] = "Setup"

    trigger: Literal["init"]

    @property
    def subject(self) -> str | None:
        return self.trigger


HookEvent: TypeAlias = (
    PreToolUse
    | PostToolUse
    | PostToolUseFailure
    | PostToolBatch
    | PermissionRequest
    | UserPromptSubmit
    | Stop
    | SubagentStart
    | SubagentStop
    | StopFailure
    | PreCompact
    | PostCompact
    | SessionStart
    | SessionEnd
    | Notification
    | Setup
)
EVENTS: Mapping[str, type[HookEvent]] = {kind.name: kind for kind in get_args(HookEvent)}
"""By the names that hooks are registered under."""


@value
class Surroundings:
    """What hooks are told of the run beside the event."""

    cwd: str
    """Where the shell stands, in the agent's view."""
    permission_mode: str
    effort: str | None = None
    agent_id: str | None = None
    """Of the subagent whose conversation it is about; None: the main one."""
    agent_type: str | None = None
