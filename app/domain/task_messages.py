"""Background tasks on the wire. Source: loop 1.7."""

from typing import Any, Literal

from app.domain.wire import WireMessage


class TaskStartedMessage(WireMessage):
    """A background task has begun."""

    type: Literal["system"] = "system"
    subtype: Literal["task_started"] = "task_started"
    task_id: str
    run_id: str
    """The run that started it."""
    tool_use_id: str
    """The call that started it."""
    description: str
    is_backgrounded: bool = True
    task_type: str = "local_bash"


class TaskUpdatedMessage(WireMessage):
    """A background task has ended."""

    type: Literal["system"] = "system"
    subtype: Literal["task_updated"] = "task_updated"
    task_id: str
    run_id: str
    patch: dict[str, Any]
    """`status` (`completed`, `failed`, `killed`) and `end_time` (milliseconds since 1970)."""


class TaskNotificationMessage(WireMessage):
    """How a background task ended, for people."""

    type: Literal["system"] = "system"
    subtype: Literal["task_notification"] = "task_notification"
    task_id: str
    run_id: str
    tool_use_id: str
    status: Literal["completed", "failed", "stopped"]
    output_file: str
    """What it printed, in the agent's view."""
    summary: str


class BackgroundTasksChangedMessage(WireMessage):
    """The background tasks that there are now: all of them, each time."""

    type: Literal["system"] = "system"
    subtype: Literal["background_tasks_changed"] = "background_tasks_changed"
    tasks: list[dict[str, str]]
    """`task_id`, `run_id`, `task_type`, `description` of each."""
