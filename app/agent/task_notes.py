"""Background tasks on the wire: their start, their end, and what the model is told of it.

A task that the journal shows as running is asked after before each model request, and when a run
starts: it runs on this host, or it ended here, or it is not known here and so ended with another
host. Each end is journalled once, since that takes the task out of the state.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import replace

from app.agent.effects import Effects, Stamps, Tasks
from app.agent.state import Advance, LoopState
from app.agent.task_fold import OUTPUT_FILE, TASK_NOTICE
from app.domain.journal import Batch, Entry
from app.domain.messages import (
    BackgroundTasksChangedMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
)
from app.domain.tasks import BackgroundTask, TaskEnd

_NOTICE = """\
<system-reminder>
This comes from the system, not from the user: a background task has ended.
<task-notification>
<task-id>{task.id}</task-id>
<tool-use-id>{task.tool_use_id}</tool-use-id>
<output-file>{task.output_file}</output-file>
<status>{end.status}</status>
<summary>{summary}</summary>{hint}
</task-notification>
</system-reminder>"""


async def with_ends_told(
    step: Callable[[LoopState, Effects], AsyncGenerator[Advance]],
    state: LoopState,
    effects: Effects,
) -> AsyncGenerator[Advance]:
    """Tell the ends of background tasks, then take the step."""
    if entries := ends_told(state, effects.tasks, effects):
        advance = state.after(Batch(entries))
        yield advance
        state = advance.state
    async with aclosing(step(state, effects)) as advances:
        async for advance in advances:
            yield advance


def ends_told(state: LoopState, tasks: Tasks, stamps: Stamps) -> tuple[Entry, ...]:
    """Give the messages about tasks that have ended since they were last asked after."""
    ends = [(task, tasks.end_of(task.id)) for task in state.tasks.values()]
    ended = [(task, end) for task, end in ends if end is not None]
    if not ended:
        return ()
    messages = [
        entry
        for task, end in ended
        for entry in _end(task, end, state, stamps, notice=_notice(task, end))
    ]
    return (*messages, tasks_changed(state, stamps, without={task.id for task, _ in ended}))


def task_started(
    task: BackgroundTask, call_id: str, state: LoopState, stamps: Stamps
) -> tuple[Entry, ...]:
    """Give the messages about a task that a call has started."""
    run_id = state.run.run_id
    begun = replace(task, tool_use_id=call_id, run_id=run_id)
    message = TaskStartedMessage(
        session_id=state.run.session_id,
        uuid=stamps.clock.uuid(),
        task_id=task.id,
        run_id=run_id,
        tool_use_id=call_id,
        description=task.description,
    )
    return (
        tasks_changed(state, stamps, also=(begun,)),
        Entry.of(message, {OUTPUT_FILE: task.output_file}),
    )


def task_stopped(task_id: str, state: LoopState, tasks: Tasks, stamps: Stamps) -> tuple[Entry, ...]:
    """Give the messages about a task that a call has ended; the model knows of it already."""
    task, end = state.tasks.get(task_id), tasks.end_of(task_id)
    if task is None or end is None:
        return ()
    return (*_end(task, end, state, stamps), tasks_changed(state, stamps, without={task_id}))


def _end(
    task: BackgroundTask,
    end: TaskEnd,
    state: LoopState,
    stamps: Stamps,
    *,
    notice: str | None = None,
) -> tuple[Entry, Entry]:
    ended_s = stamps.clock.now().timestamp() if end.ended_s is None else end.ended_s
    updated = TaskUpdatedMessage(
        session_id=state.run.session_id,
        uuid=stamps.clock.uuid(),
        task_id=task.id,
        run_id=task.run_id,
        patch={"status": end.status, "end_time": round(ended_s * 1000)},
    )
    told = TaskNotificationMessage(
        session_id=state.run.session_id,
        uuid=stamps.clock.uuid(),
        task_id=task.id,
        run_id=task.run_id,
        tool_use_id=task.tool_use_id,
        status="stopped" if end.status == "killed" else end.status,
        output_file=task.output_file,
        summary=_summary(task, end),
    )
    return Entry.of(updated), Entry.of(told, {TASK_NOTICE: notice} if notice else None)


def tasks_changed(
    state: LoopState,
    stamps: Stamps,
    *,
    also: Iterable[BackgroundTask] = (),
    without: Collection[str] = (),
) -> Entry:
    """List the tasks that run now: those of the state, `also` these, `without` those ids."""
    tasks = [task for task in (*state.tasks.values(), *also) if task.id not in without]
    return Entry.of(
        BackgroundTasksChangedMessage(
            session_id=state.run.session_id,
            uuid=stamps.clock.uuid(),
            tasks=[
                {
                    "task_id": task.id,
                    "run_id": task.run_id,
                    "task_type": "local_bash",
                    "description": task.description,
                }
                for task in tasks
            ],
        )
    )


def _summary(task: BackgroundTask, end: TaskEnd) -> str:
    return f'The background command "{task.description}" {end.how}.'


def _notice(task: BackgroundTask, end: TaskEnd) -> str:
    hint = f"\n<note>{end.hint}</note>" if end.hint else ""
    return _NOTICE.format(task=task, end=end, summary=_summary(task, end), hint=hint)
