"""Rows of subagents: a thread's messages as its parent hands them on, and what is told of tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.agent.effects import Stamps
from app.agent.hook_points import with_hook
from app.agent.run_info import Thread, thread_of
from app.agent.state import LoopState
from app.agent.thread_facts import KILLED_BY, LAUNCHED, OF_THREAD, THREAD
from app.domain.agents import AGENT_TOOL
from app.domain.blocks import TextBlock, ToolResultBlock, ToolUseBlock
from app.domain.journal import Batch, Entry
from app.domain.messages import (
    AssistantMessage,
    Message,
    PermissionDeniedMessage,
    ResultMessage,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UserContent,
    UserMessage,
    wire_time,
)
from app.domain.subagent_stats import Killer
from app.domain.tasks import TaskStatus
from app.domain.usage import LedgerRow

_LONGEST_LINE = 120


def in_thread(
    batch: Batch,
    child: LoopState,
    stamps: Stamps,
    duration_ms: int,
    *,
    is_alone: bool = False,
    shows_text: bool | None = None,
) -> Batch:
    """Give a subagent's batch as rows of its parent. `child` is where it stands then.

    Its result message stays behind: what comes of it is the result of a call. `shows_text`: whether
    readers see what it says; None: as the run's options have it. `is_alone`: it is in the background.
    """
    thread = _thread(child)
    shows = child.run.options.forward_subagent_text if shows_text is None else shows_text
    entries: list[Entry] = []
    for entry in batch.entries:
        if isinstance(entry.message, ResultMessage):
            continue
        told = [inside(entry, thread, shows_text=shows)]
        if (call := _call(entry)) is not None and entry.thread is None:
            # In the background it is told behind the call, in the foreground before it.
            told.insert(int(is_alone), _progress(call, child, stamps, duration_ms))
        entries += told
    rows = tuple(row_of_thread(row, thread.call_id) for row in batch.ledger)
    return Batch(tuple(entries), rows, events=batch.events)


def thread_begins(
    prompt: str,
    launched: Mapping[str, Any],
    state: LoopState,
    stamps: Stamps,
    added: Mapping[str, Any],
) -> Batch:
    """Give what tells of a new subagent: its start, then its prompt.

    `launched` are the facts of its start; `added` says what hooks tell it.
    """
    thread = thread_of(launched)
    started = TaskStartedMessage(
        session_id=state.run.session_id,
        uuid=stamps.clock.uuid(),
        task_id=thread.agent_id,
        run_id=state.run.run_id,
        tool_use_id=thread.call_id,
        description=thread.description,
        is_backgrounded=False,
        task_type="local_agent",
        subagent_type=thread.agent_type,
        spawn_depth=thread.depth,
        parent_task_id=thread.parent_agent_id,
        prompt=prompt,
    )
    asked = UserMessage(
        session_id=state.run.session_id,
        uuid=stamps.clock.uuid(),
        message=UserContent(content=[TextBlock(text=prompt)]),
        timestamp=wire_time(stamps.clock.now()),
    )
    return Batch(
        (
            Entry.of(started, {LAUNCHED: dict(launched)}),
            # Of a subagent's own subagents the prompt is told by `task_started` alone.
            inside(with_hook(Entry.of(asked), added), thread, shows_text=thread.depth == 1),
        )
    )


def thread_ends(
    child: LoopState,
    status: TaskStatus,
    summary: str,
    stamps: Stamps,
    *,
    duration_ms: int | None = None,
    killer: Killer = "system",
) -> tuple[Entry, ...]:
    """Tell that a subagent has ended; those that it had begun end with it.

    `killer` is who stopped it, where it was.
    """
    thread, run = _thread(child), child.run
    below = [
        entry
        for grandchild in child.threads.values()
        for entry in _killed(grandchild, stamps, killer)
    ]
    patch: dict[str, Any] = {
        "status": status,
        "end_time": round(stamps.clock.now().timestamp() * 1000),
    }
    if status == "failed":
        patch["error"] = summary
    updated = TaskUpdatedMessage(
        session_id=run.session_id,
        uuid=stamps.clock.uuid(),
        task_id=thread.agent_id,
        run_id=run.run_id,
        patch=patch,
    )
    told = TaskNotificationMessage(
        session_id=run.session_id,
        uuid=stamps.clock.uuid(),
        task_id=thread.agent_id,
        run_id=run.run_id,
        tool_use_id=thread.call_id,
        status="stopped" if status == "killed" else status,
        output_file="",
        summary=summary,
        usage=task_usage(child, duration_ms) if duration_ms is not None else None,
    )
    facts = {KILLED_BY: killer} if status == "killed" else None
    return (*below, Entry.of(updated, facts), Entry.of(told))


def threads_killed(
    calls: Sequence[ToolUseBlock], state: LoopState, stamps: Stamps, killer: Killer = "system"
) -> Iterator[Entry]:
    """Tell that the subagents of calls were stopped, those that had begun."""
    for call in calls:
        if (child := state.threads.get(call.id)) is not None:
            yield from _killed(child, stamps, killer)


def _killed(child: LoopState, stamps: Stamps, killer: Killer) -> tuple[Entry, ...]:
    return thread_ends(child, "killed", _thread(child).description, stamps, killer=killer)


def _thread(child: LoopState) -> Thread:
    if child.run.thread is None:
        raise ValueError("the main conversation is no subagent")
    return child.run.thread


def _call(entry: Entry) -> ToolUseBlock | None:
    if not isinstance(entry.message, AssistantMessage):
        return None
    block = entry.message.message.content[0]
    return block if isinstance(block, ToolUseBlock) else None


def inside(entry: Entry, thread: Thread, *, shows_text: bool) -> Entry:
    """Give a row of a thread as its parent sees it."""
    facts: dict[str, Any] = {THREAD: thread.call_id, OF_THREAD: entry.facts}
    if entry.thread is not None:  # a grandchild's: its words are those of its own thread
        return replace(entry, facts=facts)
    message = _named(entry.message, thread)
    is_aside = not _is_shown(message, shows_text=shows_text)
    told = replace(entry, facts=facts)
    if message is not entry.message:
        told = replace(Entry.of(message, facts), audit=entry.audit)
    is_task = isinstance(
        message,
        TaskStartedMessage | TaskProgressMessage | TaskUpdatedMessage | TaskNotificationMessage,
    )
    return replace(told, thread=thread.call_id, is_aside=is_aside and not is_task)


def _named(message: Message, thread: Thread) -> Message:
    """Give a message that says whose it is."""
    if isinstance(message, PermissionDeniedMessage):
        return message.model_copy(update={"agent_id": thread.agent_id})
    if not isinstance(message, AssistantMessage | UserMessage):
        return message
    told: dict[str, Any] = {
        "parent_tool_use_id": thread.call_id,
        "agent_id": thread.agent_id,
        "subagent_type": thread.agent_type,
        "task_description": thread.description,
    }
    if isinstance(message, UserMessage) and not _is_failure(message):
        told["tool_use_result"] = None  # it is nobody's to render
    if isinstance(message, UserMessage) and _was_stopped(message):
        told["tool_result_meta"] = None
    return message.model_copy(update=told)


def _was_stopped(message: UserMessage) -> bool:
    """Whether it tells of a call that was stopped, not denied: of a subagent's that says enough."""
    return any(
        "non_execution_kind" in meta and "permission_decision" not in meta
        for meta in message.tool_result_meta or ()
    )


def _is_failure(message: UserMessage) -> bool:
    content = message.message.content
    return not isinstance(content, str) and any(
        isinstance(block, ToolResultBlock) and bool(block.is_error) for block in content
    )


def _is_shown(message: Message, *, shows_text: bool) -> bool:
    """Whether readers of the session see a subagent's message."""
    if isinstance(message, PermissionDeniedMessage):
        return True
    if isinstance(message, AssistantMessage | UserMessage):
        content = message.message.content
        is_work = not isinstance(content, str) and any(
            isinstance(block, ToolUseBlock | ToolResultBlock) for block in content
        )
        return shows_text or is_work
    return False


def _progress(call: ToolUseBlock, child: LoopState, stamps: Stamps, duration_ms: int) -> Entry:
    thread = _thread(child)
    message = TaskProgressMessage(
        session_id=child.run.session_id,
        uuid=stamps.clock.uuid(),
        task_id=thread.agent_id,
        run_id=child.run.run_id,
        tool_use_id=thread.call_id,
        description=_doing(call),
        subagent_type=thread.agent_type,
        usage=task_usage(child, duration_ms),
        last_tool_name=call.name,
    )
    facts = {THREAD: thread.call_id, OF_THREAD: None}
    return replace(Entry.of(message, facts), thread=thread.call_id)


def _doing(call: ToolUseBlock) -> str:
    """Give a line on what a call does."""
    given = call.input
    if call.name == "Bash":
        said = f"Running {given.get('command', '')}"
    elif call.name == AGENT_TOOL:
        said = str(given.get("description", ""))
    else:
        what = given.get("file_path") or given.get("path") or given.get("pattern") or ""
        said = f"{call.name} {what}"
    line = " ".join(said.split())
    return line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + "…"


def task_usage(child: LoopState, duration_ms: int) -> dict[str, int]:
    """Give a subagent's `usage` as messages about its task have it."""
    return {
        "total_tokens": child.used_tokens,
        "tool_uses": sum(child.uses.values()),
        "duration_ms": duration_ms,
    }


def row_of_thread(row: LedgerRow, call_id: str) -> LedgerRow:
    """Give what a subagent's request cost, as a row that names its thread."""
    if row.thread is not None:
        return row
    purpose = "subagent" if row.purpose == "main" else row.purpose
    return replace(row, thread=call_id, purpose=purpose)
