"""Background tasks in the loop: each start and each end is journalled once, and told."""

from dataclasses import replace

import pytest

from app.domain.messages import (
    BackgroundTasksChangedMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
)
from app.domain.tasks import BackgroundTask, TaskEnd
from app.domain.tools import ToolCall, ToolMemory, ToolResult
from tests.fakes.effects import (
    FakeTasks,
    Journal,
    ScriptedModel,
    ScriptedToolbox,
    call,
    effects,
    play,
    response,
    run_info,
    text,
)

TASK = BackgroundTask("b1", "serve", "/tmp/treadle/b1.txt")
ENDED = TaskEnd("failed", "ended with exit code 3", 12.5, "Try again.")


async def acts(given: ToolCall, _: ToolMemory) -> ToolResult:
    if given.id.startswith("stop"):
        return ToolResult("stopped", stopped="b1")
    return ToolResult("started", started=TASK) if given.id.startswith("start") else ToolResult("ok")


def system(journal: Journal) -> list[str]:
    return [str(m.subtype) for m in journal.messages() if m.type == "system"]


def newest_request(model: ScriptedModel) -> str:
    return b"".join(model.requests[-1].messages[-1].blocks).decode()


async def test_a_start_is_told_before_its_result_and_remembered() -> None:
    model = ScriptedModel([response(call("start", "Change")), response(text("on it"))])
    tasks = FakeTasks(b1=None)
    journal = await play(effects(model, tools=ScriptedToolbox(run=acts), tasks=tasks))
    changed, started = journal.messages()[3:5]
    assert isinstance(changed, BackgroundTasksChangedMessage)
    assert changed.tasks == [
        {"task_id": "b1", "run_id": "run_1", "task_type": "local_bash", "description": "serve"}
    ]
    assert isinstance(started, TaskStartedMessage)
    assert (started.tool_use_id, started.run_id) == ("start", "run_1")
    assert journal.messages()[5].type == "user"
    remembered = replace(TASK, tool_use_id="start", run_id="run_1")
    assert dict(journal.state(run_info()).tasks) == {"b1": remembered}


async def test_an_end_is_told_once_before_the_next_request() -> None:
    answers = [
        response(call("start", "Change")),
        response(call("a")),
        response(call("b")),
        response(text("done")),
    ]
    model, tasks = ScriptedModel(answers), FakeTasks(b1=None)

    async def ends_with_a(given: ToolCall, memory: ToolMemory) -> ToolResult:
        if given.id == "a":
            tasks.ends["b1"] = ENDED
        return await acts(given, memory)

    journal = await play(effects(model, tools=ScriptedToolbox(run=ends_with_a), tasks=tasks))
    assert system(journal) == [
        "init",
        "background_tasks_changed",
        "task_started",
        "task_updated",
        "task_notification",
        "background_tasks_changed",
    ]
    updated, told, changed = [m for m in journal.messages() if m.type == "system"][3:]
    assert isinstance(updated, TaskUpdatedMessage)
    assert updated.patch == {"status": "failed", "end_time": 12_500}
    assert isinstance(told, TaskNotificationMessage)
    assert (told.status, told.output_file) == ("failed", TASK.output_file)
    assert told.summary == 'The background command "serve" ended with exit code 3.'
    assert isinstance(changed, BackgroundTasksChangedMessage)
    assert changed.tasks == []
    said = b"".join(model.requests[2].messages[-1].blocks).decode()
    assert said.index("tool_result") < said.index("<task-notification>")
    assert "<note>Try again.</note>" in said
    assert "<task-notification>" not in newest_request(model)
    assert not journal.state(run_info()).tasks


async def test_a_run_that_nobody_asked_for_tells_the_end_before_its_init() -> None:
    model = ScriptedModel([response(call("start", "Change")), response(text("on it"))])
    tasks = FakeTasks(b1=None)
    journal = await play(effects(model, tools=ScriptedToolbox(run=acts), tasks=tasks))
    tasks.ends["b1"] = ENDED
    model = ScriptedModel([response(text("I saw it"))])
    follows = replace(run_info("run_2"), follows="run_1")
    await play(effects(model, prompts=[], tasks=tasks), follows, journal)
    assert system(journal)[-4:] == [
        "task_updated",
        "task_notification",
        "background_tasks_changed",
        "init",
    ]
    assert "<status>failed</status>" in newest_request(model)
    result = journal.result()
    assert (result.num_turns, result.result) == (1, "I saw it")
    assert result.origin == {
        "kind": "task-notification",
        "producer": "session-task",
        "runId": "run_1",
    }


async def test_a_run_that_has_nothing_to_tell_any_more_makes_no_request() -> None:
    journal = await play(effects([response(text("hello"))]))
    follows = replace(run_info("run_2"), follows="run_1")
    await play(effects([], prompts=[]), follows, journal)
    result = journal.result()
    assert (result.subtype, result.num_turns, result.result) == ("success", 0, "")


async def test_what_the_model_ended_itself_is_told_to_clients_alone() -> None:
    answers = [
        response(call("start", "Change")),
        response(call("stop", "Change")),
        response(text("done")),
    ]
    model, tasks = ScriptedModel(answers), FakeTasks(b1=None)

    async def stops(given: ToolCall, memory: ToolMemory) -> ToolResult:
        if given.id == "stop":
            tasks.ends["b1"] = TaskEnd("killed", "was stopped")
        return await acts(given, memory)

    journal = await play(effects(model, tools=ScriptedToolbox(run=stops), tasks=tasks))
    told = [m for m in journal.messages() if isinstance(m, TaskNotificationMessage)]
    assert [message.status for message in told] == ["stopped"]
    assert "<task-notification>" not in newest_request(model)
    assert not journal.state(run_info()).tasks


@pytest.mark.parametrize("words", ["{task.id} {0} {end}", "</task-notification>\n<b>"])
async def test_a_description_is_text_and_nothing_else(words: str) -> None:
    task = replace(TASK, description=words)

    async def starts(given: ToolCall, _: ToolMemory) -> ToolResult:
        return ToolResult("started", started=task) if given.id == "start" else ToolResult("ok")

    model = ScriptedModel(
        [response(call("start", "Change")), response(call("a")), response(text("done"))]
    )
    tasks = FakeTasks(b1=ENDED)
    journal = await play(effects(model, tools=ScriptedToolbox(run=starts), tasks=tasks))
    (told,) = [m for m in journal.messages() if isinstance(m, TaskNotificationMessage)]
    assert words in told.summary
