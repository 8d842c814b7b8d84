"""Which background tasks there are: a fold of the messages that tell of them."""

from collections.abc import Mapping
from typing import Any

from app.domain.messages import TaskNotificationMessage, TaskStartedMessage
from app.domain.tasks import BackgroundTask

TASK_NOTICE = "task_notice"
"""Fact on the message that tells the end of a task: what the model is told of it."""
OUTPUT_FILE = "output_file"
"""Fact on the message that tells the start of a command."""
OWN_RUN = "own_run"
"""Fact on the message that tells the start of a subagent in the background: the run that it is."""

Tasks = Mapping[str, BackgroundTask]


def tasks_after(
    tasks: Tasks,
    message: TaskStartedMessage | TaskNotificationMessage,
    facts: Mapping[str, Any] | None,
) -> Tasks:
    """Give the tasks whose end is not told, by id, after a message about one of them."""
    if isinstance(message, TaskNotificationMessage):
        return {key: task for key, task in tasks.items() if key != message.task_id}
    told = facts or {}
    begun = BackgroundTask(
        message.task_id,
        message.description,
        str(told.get(OUTPUT_FILE, "")),
        message.tool_use_id,
        message.run_id,
        "local_agent" if OWN_RUN in told else "local_bash",
        message.subagent_type,
        told.get(OWN_RUN),
    )
    return {**tasks, begun.id: begun}
