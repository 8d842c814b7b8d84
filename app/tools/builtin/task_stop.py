"""TaskStop: end what goes on in the background."""

import json

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.paths import shown
from app.tools.tool import ToolContext, ToolInput, tool


class TaskStopInput(ToolInput):
    task_id: str | None = None
    """Id of the background task."""
    shell_id: str | None = None
    """An older name of `task_id`."""


@tool(
    name="TaskStop",
    description="Ends a command or a subagent in the background, with everything it started.",
    input_model=TaskStopInput,
    is_internal=True,
    aliases=("KillShell",),
)
async def task_stop_tool(given: TaskStopInput, context: ToolContext) -> ToolResult:
    """Stop it; when this returns nothing of it is left."""
    task_id = given.task_id or given.shell_id
    if not task_id:
        raise ToolFailed("The parameter `task_id` is needed: it names what to stop.", wrapped=True)
    task = await context.shells.stop(task_id)
    if task is None:
        raise ToolFailed(f"No background task {shown(task_id)} is running.", wrapped=True)
    said = {
        "message": f"Task {task.id} was stopped: {task.description}",
        "task_id": task.id,
        "task_type": task.type,
        "command": task.description,
    }
    return ToolResult(json.dumps(said, ensure_ascii=False), structured=said, stopped=task.id)
