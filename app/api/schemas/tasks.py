"""The list of what an agent means to do."""

from typing import Any, Literal

from app.api.schemas.common import Out
from app.domain.work_items import Items, blocked, open_blockers, shown


class TaskObject(Out):
    """One thing to do, as the tools TaskCreate and TaskUpdate left it."""

    id: str
    subject: str
    description: str
    active_form: str | None
    status: Literal["pending", "in_progress", "completed"]
    owner: str | None
    blocks: list[str]
    blocked_by: list[str]
    """What it still waits for."""
    metadata: dict[str, Any]


class TaskList(Out):
    data: list[TaskObject]
    """In the order of creation."""

    @staticmethod
    def of(items: Items) -> "TaskList":
        """Show what is not deleted."""
        return TaskList(
            data=[
                TaskObject.model_validate(
                    {
                        "id": item.id,
                        "subject": item.subject,
                        "description": item.description,
                        "active_form": item.active_form,
                        "status": item.status,
                        "owner": item.owner,
                        "blocks": list(blocked(item, items)),
                        "blocked_by": list(open_blockers(item, items)),
                        "metadata": dict(item.metadata),
                    }
                )
                for item in shown(items)
            ]
        )
