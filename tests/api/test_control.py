"""Control of what goes on: mode, model, interrupt, tasks; and what an answer changes for later calls."""

import asyncio
import uuid
from typing import Any

import httpx
import pytest

from tests.api.stage import RANDOM_SESSION, Stage, pointers, problem, scripted
from tests.api.test_actions import (
    PARKS,
    TOUCH,
    answer,
    asked,
    asking,
    kinds,
    log,
    parked,
    read,
    results,
    until,
)
from tests.api.test_queue import ended, post

WRITE = {"tool": "Write", "input": {"file_path": "a.txt", "content": "a"}}
OTHER_MODEL = "claude-opus-5-5"


async def control(client: httpx.AsyncClient, session_id: str, **body: Any) -> dict[str, Any]:
    said = await client.post(f"/v1/sessions/{session_id}/control", json=body)
    assert said.status_code == 200, said.text
    assert said.json()["subtype"] == "success"
    response: dict[str, Any] = said.json()["response"]
    return response


def statuses(entries: list[dict[str, Any]]) -> list[str]:
    """The permission modes that a log tells of."""
    return [e["permissionMode"] for e in entries if e.get("subtype") == "status"]


# -- what an answer changes -------------------------------------------------------------------


@pytest.mark.parametrize("hold_seconds", [0, 60])
async def test_an_answer_may_spare_the_next_questions_in_this_run_and_in_later_ones(
    stage: Stage, hold_seconds: int
) -> None:
    other = {"tool": "Write", "input": {"file_path": "b.txt", "content": "b"}}
    run, action = await asking(
        stage.client, scripted(WRITE, other, {"text": "fine"}), hold_seconds=hold_seconds
    )
    updates = [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    said = await answer(stage.client, action, behavior="allow", updated_permissions=updates)
    assert said.status_code == 200, said.text
    run = await ended(stage.client, run["id"])
    assert run["options"]["permission_mode"] == "acceptEdits"
    entries = await log(stage.client, run)
    assert kinds(entries).count("action.opened") == 1
    shown = [k for k in kinds(entries) if k in {"user", "system"}]
    assert statuses(entries) == ["acceptEdits"]
    assert shown[-3:] == ["system", "user", "user"]  # told before the call's result
    path = f"/v1/sessions/{run['session_id']}"
    assert (await read(stage.client, path))["options"]["permission_mode"] == "acceptEdits"
    third = {"tool": "Write", "input": {"file_path": "c.txt", "content": "c"}}
    later = (await post(stage.client, f"{path}/runs", prompt=scripted(third, {"text": "ok"})))[
        "run"
    ]
    later = await ended(stage.client, later["id"])
    assert later["permission_denials"] == []


async def test_rules_of_an_answer_add_up_and_what_is_not_taken_changes_nothing(
    stage: Stage,
) -> None:
    run, action = await asking(stage.client, scripted(TOUCH, TOUCH, {"text": "fine"}))
    mode = [{"type": "setMode", "mode": "bypassPermissions", "destination": "session"}]
    bad_rule = [{"type": "addRules", "rules": [{"toolName": "WebFetch", "ruleContent": "x"}]}]
    for updates in (mode, [{**bad_rule[0], "behavior": "allow"}]):
        refused = await answer(stage.client, action, behavior="allow", updated_permissions=updates)
        told = problem(refused, 422, "validation_failed")
        assert pointers(told) == ["/updated_permissions"]
    session = await read(stage.client, f"/v1/sessions/{run['session_id']}")
    assert "permission_mode" not in session["options"]
    assert (await read(stage.client, f"/v1/actions/{action['id']}"))["status"] == "pending"

    rules = [
        {
            "type": "addRules",
            "rules": [{"toolName": "Bash"}],
            "behavior": "allow",
            "destination": "localSettings",
        }
    ]
    body = {"behavior": "allow", "updated_permissions": rules}
    assert (await answer(stage.client, action, **body)).status_code == 200
    run = await ended(stage.client, run["id"])
    assert run["options"]["allowed_tools"] == ["Bash"]
    assert [r["content"] for r in results(await log(stage.client, run))] == ["1", "2"]
    assert kinds(await log(stage.client, run)).count("action.opened") == 1


async def test_an_answer_counts_for_its_call_though_it_changed_the_rules_too(stage: Stage) -> None:
    run, action = await asking(stage.client, hold_seconds=0)
    await parked(stage, run)
    rule = {"toolName": "Bash"}
    update = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}
    body = {
        "behavior": "allow",
        "updated_input": {"command": "echo edited"},
        "updated_permissions": [update],
    }
    assert (await answer(stage.client, action, **body)).status_code == 200
    run = await ended(stage.client, run["id"])
    assert [r["content"] for r in results(await log(stage.client, run))] == ["edited"]


# -- control ----------------------------------------------------------------------------------


async def test_the_mode_of_a_run_that_goes_on_is_changed_and_told(stage: Stage) -> None:
    prompt = scripted(TOUCH, WRITE, {"text": "fine"})
    run, action = await asking(stage.client, prompt)
    mode = {"subtype": "set_permission_mode", "mode": "acceptEdits"}
    assert await control(stage.client, run["session_id"], **mode) == {"mode": "acceptEdits"}
    await answer(stage.client, action, behavior="allow")
    run = await ended(stage.client, run["id"])
    entries = await log(stage.client, run)
    assert statuses(entries) == ["acceptEdits"]
    assert len(results(entries)) == 2
    assert run["permission_denials"] == []
    assert kinds(entries).count("action.opened") == 1


async def test_a_run_without_a_host_and_one_that_waits_are_changed_too(stage: Stage) -> None:
    body = {"prompt": scripted(TOUCH, WRITE, {"text": "fine"}), "actions": PARKS}
    run = (await post(stage.client, "/v1/runs", **body))["run"]
    await parked(stage, run)
    path = f"/v1/sessions/{run['session_id']}/runs"
    waiting = (await post(stage.client, path, prompt=scripted(WRITE, {"text": "ok"})))["run"]
    mode = {"subtype": "set_permission_mode", "mode": "acceptEdits"}
    await control(stage.client, run["session_id"], **mode)
    await answer(stage.client, await asked(stage.client, run), behavior="allow")
    for started in (run, waiting):
        each = await ended(stage.client, started["id"])
        assert (each["permission_denials"], each["options"]["permission_mode"]) == (
            [],
            "acceptEdits",
        )
    assert statuses(await log(stage.client, run)) == ["acceptEdits"]
    assert statuses(await log(stage.client, waiting)) == []  # its init says it


async def test_the_model_is_changed_for_the_next_request_and_for_later_runs(stage: Stage) -> None:
    run, action = await asking(stage.client)
    asked_before = len(stage.model.bodies())
    chosen = await control(stage.client, run["session_id"], subtype="set_model", model=OTHER_MODEL)
    assert chosen == {"model": OTHER_MODEL}
    await answer(stage.client, action, behavior="allow")
    run = await ended(stage.client, run["id"])
    assert stage.model.bodies()[asked_before]["model"] == OTHER_MODEL
    told = [e for e in await log(stage.client, run) if e.get("isReplay")]
    words = f"<local-command-stdout>Set model to `{OTHER_MODEL}`</local-command-stdout>"
    assert told[-1]["message"]["content"] == words
    path = f"/v1/sessions/{run['session_id']}/runs"
    later = (await post(stage.client, path, prompt=scripted({"text": "ok"})))["run"]
    assert later["options"]["model"] == OTHER_MODEL
    await ended(stage.client, later["id"])
    assert words not in str(stage.model.bodies()[-1])  # it is for people
    default = await control(stage.client, run["session_id"], subtype="set_model", model=None)
    assert default["model"] != OTHER_MODEL


async def test_an_interrupt_ends_the_turn_and_is_fine_where_none_goes_on(stage: Stage) -> None:
    run, _ = await asking(stage.client)
    path = f"/v1/sessions/{run['session_id']}/runs"
    waiting = (await post(stage.client, path, prompt=scripted({"text": "ok"})))["run"]
    said = await control(stage.client, run["session_id"], subtype="interrupt")
    assert set(said["still_queued"]) <= {waiting["id"]}
    assert (await ended(stage.client, run["id"]))["terminal_reason"] == "aborted_tools"
    await ended(stage.client, waiting["id"])
    assert await control(stage.client, run["session_id"], subtype="interrupt") == {
        "still_queued": []
    }


async def test_a_command_in_the_background_is_stopped(stage: Stage) -> None:
    sleep = {"tool": "Bash", "input": {"command": "sleep 300", "run_in_background": True}}
    body = {"prompt": scripted(sleep, {"text": "left"}, {"text": "heard"})}
    run = await stage.run(**body, options={"allowed_tools": ["Bash"]})
    entries = await log(stage.client, run)
    (task_id,) = (e["task_id"] for e in entries if e.get("subtype") == "task_started")
    assert (
        await control(stage.client, run["session_id"], subtype="stop_task", task_id=task_id) == {}
    )

    async def is_told() -> bool:
        page = await read(stage.client, f"/v1/sessions/{run['session_id']}/events", limit=1000)
        return any(e["data"].get("subtype") == "task_notification" for e in page["data"])

    await until(is_told)


WAITS_FOR = "while [ ! -e {} ]; do sleep 0.05; done"


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("sets", ["mode", "rules"])
async def test_what_is_set_meanwhile_counts_for_the_turn_that_tells_of_a_commands_end(
    stage: Stage, sets: str, goes_on: bool
) -> None:
    """Meanwhile: while the run before it goes on, or only its command does."""
    begun = bash(WAITS_FOR.format("go"), run_in_background=True)
    writes = {"tool": "Write", "input": {"file_path": "/workspace/late", "content": "x"}}
    steps = (begun, bash(WAITS_FOR.format("on")), {"text": "left"}, writes, {"text": "heard"})
    options = {"allowed_tools": ["Bash"], "permission_mode": "acceptEdits", "max_budget_usd": 1}
    folder = stage.root / uuid.uuid4().hex
    folder.mkdir(mode=0o777)
    place = {"source": "directory", "path": str(folder)}
    body = {"prompt": scripted(*steps), "options": options, "workspace": place}
    run = (await post(stage.client, "/v1/runs", **body))["run"]
    path = f"/v1/sessions/{run['session_id']}"

    async def works() -> bool:
        return "task_started" in str(await log(stage.client, run))

    await until(works)
    if not goes_on:
        (folder / "on").touch()
        await ended(stage.client, run["id"])
    if sets == "rules":
        changed = await stage.client.patch(path, json={"options": {"disallowed_tools": ["Write"]}})
        assert changed.status_code == 200
        control_after = {"subtype": "set_permission_mode", "mode": "default"}
        await control(stage.client, run["session_id"], **control_after)
    else:
        await control(stage.client, run["session_id"], subtype="set_permission_mode", mode="plan")
    (folder / "on").touch()
    before = await ended(stage.client, run["id"])
    assert "disallowed_tools" not in before["options"]  # as it was
    (folder / "go").touch()

    async def followed() -> bool:
        page = await read(stage.client, f"{path}/runs")
        return [each["status"] for each in page["data"]] == ["finished"] * 2

    await until(followed)
    page = await read(stage.client, f"{path}/runs")
    (follower,) = (each for each in page["data"] if each["origin"] == "task-notification")
    told = follower["options"].get("disallowed_tools"), follower["options"]["permission_mode"]
    assert told == ((["Write"], "default") if sets == "rules" else (None, "plan"))
    assert 0 < float(follower["options"]["max_budget_usd"]) < 1
    assert not (folder / "late").exists()


async def test_a_run_that_another_version_has_made_is_not_taken_for_changed(stage: Stage) -> None:
    run, _ = await asking(stage.client)
    database, path = stage.host.service.database, f"/v1/sessions/{run['session_id']}"
    await database.raw.execute(
        """UPDATE runs SET options = options || '{"from": "elsewhere"}' WHERE id = $1""", run["id"]
    )
    mode = {"subtype": "set_permission_mode", "mode": "plan"}
    for answered in (
        await stage.client.post(f"{path}/control", json=mode),
        await stage.client.patch(path, json={"options": {"disallowed_tools": ["Bash"]}}),
    ):
        assert problem(answered, 503, "unavailable")["retryable"] is True
    session = await read(stage.client, path)
    assert (session["options"], session["status"]) == ({}, "requires_action")
    await stage.client.post(f"/v1/runs/{run['id']}/cancel", params={"wait": 20})
    assert (await stage.client.post(f"{path}/control", json=mode)).status_code == 200


def bash(command: str, **given: Any) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command, **given}}


async def test_what_fills_the_window_is_told_as_elsewhere(stage: Stage) -> None:
    run = await stage.run()
    told = await control(stage.client, run["session_id"], subtype="get_context_usage")
    assert told == await read(stage.client, f"/v1/sessions/{run['session_id']}/context")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/subtype"),
        ({"subtype": "make_coffee"}, "/subtype"),
        ({"subtype": "set_permission_mode"}, "/mode"),
        ({"subtype": "set_permission_mode", "mode": "yolo"}, "/mode"),
        ({"subtype": "set_model", "model": ""}, "/model"),
        ({"subtype": "interrupt", "more": 1}, "/more"),
        ({"subtype": "stop_task", "task_id": 1}, "/task_id"),
    ],
)
async def test_a_control_request_that_makes_no_sense_is_refused(
    stage: Stage, body: dict[str, Any], pointer: str
) -> None:
    said = await stage.client.post(f"/v1/sessions/{RANDOM_SESSION}/control", json=body)
    told = problem(said, 422, "validation_failed")
    assert pointers(told) == [pointer]
    assert "tag" not in told["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {"subtype": "interrupt"},
        {"subtype": "set_permission_mode", "mode": "default"},
        {"subtype": "set_model", "model": None},
        {"subtype": "stop_task", "task_id": "b1"},
        {"subtype": "get_context_usage"},
    ],
)
async def test_another_tenants_session_is_not_there_to_be_controlled(
    stage: Stage, stranger: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    session = await stage.session()
    said = await stranger.post(f"/v1/sessions/{session['id']}/control", json=body)
    problem(said, 404, "not_found")


async def test_what_the_policy_forbids_no_control_request_brings(stage: Stage) -> None:
    session = await stage.session()
    path = f"/v1/sessions/{session['id']}/control"
    body = {"subtype": "set_permission_mode", "mode": "bypassPermissions"}
    told = problem(await stage.client.post(path, json=body), 422, "validation_failed")
    assert pointers(told) == ["/mode"]
    assert (await read(stage.client, f"/v1/sessions/{session['id']}"))["options"] == {}
    missing = {"subtype": "stop_task", "task_id": "b00000000"}
    async with asyncio.timeout(15):
        problem(await stage.client.post(path, json=missing), 409, "not_running")
