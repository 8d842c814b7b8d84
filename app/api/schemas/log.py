"""Pages of a session's log."""

from typing import Any, Literal

from app.api.schemas.common import Out


class LogEntry(Out):
    """A durable entry of a session's log."""

    seq: int
    at: str
    run_id: str | None
    kind: Literal["message", "service"]
    data: dict[str, Any]
    """An SDK message, verbatim, or a service event."""


class EventPage(Out):
    data: list[LogEntry]
    has_more: bool
    next_after: int | None
    """Pass it as `after` (or `before`, newest first) to go on."""


class MessagePage(Out):
    data: list[dict[str, Any]]
    """SDK messages, verbatim."""
    has_more: bool
    next_after: int | None
