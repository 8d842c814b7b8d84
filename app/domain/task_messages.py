"""Tasks on the wire: commands in the background, and subagents. Source: loop 1.7, 13."""

from typing import Any, Literal

from app.domain.wire import ABSENT, WireMessage


class TaskStartedMessage(WireMessage):
    """A command in the background, or a subagent, has begun."""

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
    """`local_bash`: a command; `local_agent`: a subagent."""
    subagent_type: str | None = ABSENT
    spawn_depth: int | None = ABSENT
    """1 for what the main conversation began."""
    parent_task_id: str | None = ABSENT
    """The subagent that began it."""
    prompt: str | None = ABSENT
    """What a subagent was asked."""


class TaskProgressMessage(WireMessage):
    """A subagent is about to make a call."""

    type: Literal["system"] = "system"
    subtype: Literal["task_progress"] = "task_progress"
    task_id: str
    run_id: str
    tool_use_id: str
    """The call that began the subagent."""
    description: str
    """What it does now."""
    subagent_type: str
    usage: dict[str, int]
    """`total_tokens`: what its newest response and its request held; `tool_uses`; `duration_ms`."""
    last_tool_name: str


class TaskUpdatedMessage(WireMessage):
    """A task has ended."""

    type: Literal["system"] = "system"
    subtype: Literal["task_updated"] = "task_updated"
    task_id: str
    run_id: str
    patch: dict[str, Any]
    """`status` (`completed`, `failed`, `killed`), `end_time` (milliseconds since 1970), and `error`
    where a subagent failed."""


class TaskNotificationMessage(WireMessage):
    """How a task ended, for people."""

    type: Literal["system"] = "system"
    subtype: Literal["task_notification"] = "task_notification"
    task_id: str
    run_id: str
    tool_use_id: str
    status: Literal["completed", "failed", "stopped"]
    output_file: str
    """What it printed, in the agent's view; empty for a subagent."""
    summary: str
    """How it ended; of a subagent, its answer."""
    usage: dict[str, int] | None = ABSENT
    """Of a subagent, as in `task_progress`."""
    summary_is_report: bool | None = ABSENT
    """True of a subagent in the background: `summary` is its answer."""


class BackgroundTasksChangedMessage(WireMessage):
    """The background tasks that there are now: all of them, each time."""

    type: Literal["system"] = "system"
    subtype: Literal["background_tasks_changed"] = "background_tasks_changed"
    tasks: list[dict[str, str]]
    """`task_id`, `run_id`, `task_type`, `description` of each, and `subagent_type` of a subagent."""
