"""TaskCreate, TaskUpdate, TaskList, TaskGet: the agent's list of what is to be done."""

from dataclasses import replace
from typing import Any

from pydantic import Field

from app.domain.tools import ToolFacts, ToolResult
from app.domain.work_items import (
    Items,
    ItemStatus,
    WorkItem,
    blocked,
    open_blockers,
    shown,
)
from app.errors import ToolFailed
from app.tools.builtin.output_words import task_list_words, task_words
from app.tools.paths import shown as shown_id
from app.tools.tool import ToolContext, ToolInput, tool

MOST_ITEMS = 1000
MOST_CHARS = 20_000
"""Of an item, all in all."""
_PLAIN = ("subject", "description", "active_form", "owner", "status")
"""What an update puts in the place of what was there."""
_TOLD = {
    "subject": "subject",
    "description": "description",
    "active_form": "activeForm",
    "owner": "owner",
    "metadata": "metadata",
    "status": "status",
}
"""What an update may change, and what it is called then."""


class CreateInput(ToolInput):
    subject: str
    """What is to be done, in a few words."""
    description: str | None = None
    """What it takes; the subject, unless given."""
    active_form: str | None = Field(None, alias="activeForm")
    """How it is called while it is being done, such as "Running tests"."""
    metadata: dict[str, Any] | None = None
    """Anything to keep with it."""


class UpdateInput(ToolInput):
    task_id: str = Field(alias="taskId")
    """Id of the task, as TaskList shows it, without the #."""
    subject: str | None = None
    """Its new subject."""
    description: str | None = None
    """Its new description."""
    active_form: str | None = Field(None, alias="activeForm")
    """How it is called while it is being done."""
    status: ItemStatus | None = None
    """Its new status; `deleted` takes it off the list."""
    add_blocks: list[str] | None = Field(None, alias="addBlocks")
    """Ids of tasks that wait for this one."""
    add_blocked_by: list[str] | None = Field(None, alias="addBlockedBy")
    """Ids of tasks that this one waits for."""
    owner: str | None = None
    """Who does it."""
    metadata: dict[str, Any] | None = None
    """Laid over what is kept with it; a null takes a name away."""


class GetInput(ToolInput):
    task_id: str = Field(alias="taskId")
    """Id of the task, without the #."""


class ListInput(ToolInput):
    pass


@tool(
    name="TaskCreate",
    description="Puts a task on the list of this session. Use the list for work of several steps.",
    input_model=CreateInput,
    words_of=task_words,
    is_internal=True,
)
async def task_create_tool(given: CreateInput, context: ToolContext) -> ToolResult:
    """Add it at the end."""
    items = context.memory.work
    if len(items) >= MOST_ITEMS:
        raise ToolFailed(f"The list holds {MOST_ITEMS} tasks, deleted ones included: it is full.")
    item = _checked(
        WorkItem(
            str(len(items) + 1),
            given.subject,
            given.subject if given.description is None else given.description,
            given.active_form,
            metadata=given.metadata or {},
        )
    )
    told = {"id": item.id, "subject": item.subject, "description": item.description}
    return ToolResult(
        f"Task #{item.id} is on the list: {item.subject}",
        structured={"task": told},
        facts=ToolFacts(work={item.id: item}),
    )


@tool(
    name="TaskUpdate",
    description="Changes a task of the list: its status, words, owner, or what it waits for.",
    input_model=UpdateInput,
    is_internal=True,
)
async def task_update_tool(given: UpdateInput, context: ToolContext) -> ToolResult:
    """Change what is named; what stays the same is not reported."""
    items = context.memory.work
    item = _find(items, given.task_id)
    if item is None:
        text = _missing(given.task_id)
        told = {"success": False, "taskId": given.task_id, "updatedFields": [], "error": text}
        return ToolResult(text, structured=told)
    after = _checked(_updated(item, given))
    fields = _changed_fields(item, after, given)
    changed = {item.id: after}
    changed = _linked(changed, items, item.id, given.add_blocks or (), is_blocker=True)
    changed = _linked(changed, items, item.id, given.add_blocked_by or (), is_blocker=False)
    structured: dict[str, Any] = {"success": True, "taskId": item.id, "updatedFields": fields}
    if after.status != item.status:
        structured["statusChange"] = {"from": item.status, "to": after.status}
    said = f"Task #{item.id} was updated: {', '.join(fields)}" if fields else _same(item)
    return ToolResult(said, structured=structured, facts=ToolFacts(work=changed))


@tool(
    name="TaskList",
    description="Shows the tasks of this session, with their status and what they wait for.",
    input_model=ListInput,
    words_of=task_list_words,
    read_only=True,
)
async def task_list_tool(_: ListInput, context: ToolContext) -> ToolResult:
    """One line a task, oldest first."""
    items = context.memory.work
    listed = shown(items)
    told = [
        {
            "id": item.id,
            "subject": item.subject,
            "status": item.status,
            **({"owner": item.owner} if item.owner else {}),
            "blockedBy": list(open_blockers(item, items)),
        }
        for item in listed
    ]
    lines = [_line(item, items) for item in listed]
    return ToolResult("\n".join(lines) or "There are no tasks.", structured={"tasks": told})


@tool(
    name="TaskGet",
    description="Shows one task of this session, with its description.",
    input_model=GetInput,
    words_of=task_words,
    read_only=True,
)
async def task_get_tool(given: GetInput, context: ToolContext) -> ToolResult:
    """Show it whole, but for what only programs need."""
    items = context.memory.work
    item = _find(items, given.task_id)
    if item is None:
        return ToolResult(_missing(given.task_id), structured={"task": None})
    waits_for, holds_up = open_blockers(item, items), blocked(item, items)
    lines = [
        f"Task #{item.id}: {item.subject}",
        f"Status: {item.status}",
        f"Description: {item.description}",
        *([f"Blocked by: {_ids(waits_for)}"] if waits_for else []),
        *([f"Blocks: {_ids(holds_up)}"] if holds_up else []),
    ]
    told = {
        "id": item.id,
        "subject": item.subject,
        "description": item.description,
        "status": item.status,
        "blocks": list(holds_up),
        "blockedBy": list(waits_for),
    }
    return ToolResult("\n".join(lines), structured={"task": told})


def _find(items: Items, task_id: str) -> WorkItem | None:
    item = items.get(task_id)
    return None if item is None or item.status == "deleted" else item


def _missing(task_id: str) -> str:
    return f"Task {shown_id(task_id)} was not found."


def _checked(item: WorkItem) -> WorkItem:
    size = len(str(item.to_json()))
    if size > MOST_CHARS:
        raise ToolFailed(f"The task is too long: {size} characters, at most {MOST_CHARS}.")
    return item


def _updated(item: WorkItem, given: UpdateInput) -> WorkItem:
    plain = {name: getattr(given, name) for name in _PLAIN if getattr(given, name) is not None}
    metadata = {**item.metadata, **(given.metadata or {})}
    kept = {name: value for name, value in metadata.items() if value is not None}
    return replace(item, **plain, metadata=kept)


def _changed_fields(item: WorkItem, after: WorkItem, given: UpdateInput) -> list[str]:
    """Name what changed. Edges count as soon as they are named."""
    if after.status == "deleted":
        return ["deleted"]
    changed = [told for name, told in _TOLD.items() if getattr(after, name) != getattr(item, name)]
    edges = {"blocks": given.add_blocks, "blockedBy": given.add_blocked_by}
    return [*changed, *(name for name, ids in edges.items() if ids)]


def _linked(
    changed: dict[str, WorkItem],
    items: Items,
    task_id: str,
    others: "list[str] | tuple[()]",
    *,
    is_blocker: bool,
) -> dict[str, WorkItem]:
    """Add edges, each seen from both of its ends; ids that there are not are passed over."""
    for other in others:
        if _find(items, other) is None:
            continue
        first, second = (task_id, other) if is_blocker else (other, task_id)
        blocker = changed.get(first) or items[first]
        if second not in blocker.blocks:
            changed[first] = replace(blocker, blocks=(*blocker.blocks, second))
        waiting = changed.get(second) or items[second]
        if first not in waiting.blocked_by:
            changed[second] = replace(waiting, blocked_by=(*waiting.blocked_by, first))
    return changed


def _line(item: WorkItem, items: Items) -> str:
    owner = f" ({item.owner})" if item.owner else ""
    waits_for = open_blockers(item, items)
    waits = f" [blocked by {_ids(waits_for)}]" if waits_for else ""
    return f"#{item.id} [{item.status}] {item.subject}{owner}{waits}"


def _ids(ids: tuple[str, ...]) -> str:
    return ", ".join(f"#{each}" for each in ids)


def _same(item: WorkItem) -> str:
    return f"Task #{item.id} is as it was."
