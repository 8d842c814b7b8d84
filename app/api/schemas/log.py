"""Pages of a session's log."""

from typing import Literal

from pydantic import ConfigDict, RootModel

from app.api.schemas.common import Out
from app.domain.messages import Message


class SdkMessage(RootModel[Message]):
    """A message of the Claude Agent SDK's stream-json: by `type`, and `subtype` if `system`."""


class ServiceEventObject(Out):
    """A fact about the service, with more fields by its `type`. More types may come."""

    model_config = ConfigDict(extra="allow")

    type: str
    """`session.created`, `run.queued`, `run.started`, `run.finished`, `model.retry`, `file.changed` (by a tool
    that edits; what commands change is not known), `usage.snapshot`, `budget.warning` …"""
    seq: int
    session_id: str
    run_id: str | None
    at: str


class LogEntry(Out):
    """A durable entry of a session's log."""

    seq: int
    at: str
    run_id: str | None
    kind: Literal["message", "service"]
    data: SdkMessage | ServiceEventObject
    """An SDK message, verbatim, or a service event."""


class StoredOutputLink(Out):
    """All of a tool's output, of which the message holds a part."""

    size_bytes: int
    """When it was stored."""
    path: str
    """Where the agent finds it."""
    url: str
    """Where you do. The file is the agent's own: it may change it, or take it away."""


class LogMessage(Out):
    """One message of a session's log."""

    seq: int
    at: str
    run_id: str | None
    kind: Literal["message"]
    data: SdkMessage
    """The SDK message, verbatim."""
    stored_output: StoredOutputLink | None
    """Set on the result of a tool whose output was too long for a message."""


class EventPage(Out):
    data: list[LogEntry]
    has_more: bool
    next_after: int | None
    """Pass it as `after` (or `before`, newest first) to go on."""


class MessagePage(Out):
    data: list[SdkMessage]
    """SDK messages, verbatim."""
    has_more: bool
    next_after: int | None
