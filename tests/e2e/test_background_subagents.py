"""Subagents in the background over real HTTP: runs of their own, told of when they end."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_background_commands import (
    follow_up,
    in_requests,
    is_let_go,
    long_sleep,
    runs_of,
    told,
)
from tests.e2e.test_replicas import check_session, until_processes
from tests.e2e.test_subagents import OPTIONS, agent, said, subagents
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, environment, host, host_process
from tests.runs.prompts import bash, finished, messages, scripted, start
from tests.store.seeds import opened, rows, until

Json = dict[str, Any]
GO = "while [ ! -e go ]; do sleep 0.05; done; echo went"


def in_background(*steps: object, **given: Any) -> Json:
    return agent(*steps, run_in_background=True, **given)


async def child_run(client: httpx.AsyncClient, session_id: str, number: int = 0) -> Json:
    found = [run for run in await runs_of(client, session_id) if run["origin"] == "subagent"]
    return found[number]


@pytest.mark.requirement("loop:background-subagents")
async def test_a_subagent_goes_on_beside_its_parent_and_its_end_begins_a_turn(
    service: Host, messages_api: MessagesApi, database_url: str
) -> None:
    client = service.client
    child = in_background(bash(GO), {"text": "child report"})
    steps = (child, bash("touch working"), {"text": "started"}, {"text": "I heard"})
    run = await start(client, scripted(*steps), **OPTIONS, max_budget_usd=1)
    session_id = run["session_id"]
    ended = await finished(client, run["id"])
    assert (ended["result"]["text"], ended["num_turns"]) == ("started", 3)
    own = await child_run(client, session_id)
    assert (own["status"], own["parent_run_id"]) == ("running", run["id"])
    touched = await start(
        client, scripted(bash("touch go"), {"text": "went"}), session_id=session_id, **OPTIONS
    )
    await finished(client, touched["id"])
    own = await finished(client, own["id"])
    assert (own["result"]["text"], own["end_reason"]) == ("child report", "completed")
    followed = await follow_up(client, session_id, after=3)
    assert (followed["origin"], followed["num_turns"]) == ("task-notification", 1)
    assert in_requests(messages_api, "<task-notification>") == [len(messages_api.requests) - 1]
    assert "child report" in str(messages_api.bodies()[-1]["messages"][-1])
    transcript = await messages(client, session_id)
    (begun,) = told(transcript, "task_started")
    assert (begun["is_backgrounded"], begun["spawn_depth"]) == (True, 1)
    (ended_task,) = told(transcript, "task_notification")
    assert ended_task["summary_is_report"] is True
    assert (ended_task["status"], ended_task["summary"]) == ("completed", "child report")
    assert "child report" in said(transcript)
    lists = [message["tasks"] for message in told(transcript, "background_tasks_changed")]
    assert [len(tasks) for tasks in lists] == [1, 0]
    (found,) = await subagents(client, session_id)
    assert found["status"] == "completed"
    async with opened(database_url) as database:
        await until(lambda: is_let_go(database, session_id))
        await check_session(database, session_id)
        (session,) = await rows(database, "SELECT cost_usd FROM sessions")
    costs = [float(each["cost"]["run_usd"]) for each in await runs_of(client, session_id)]
    assert min(costs) > 0
    assert sum(costs) == pytest.approx(float(session["cost_usd"]))


async def test_an_end_while_the_parent_works_is_told_before_its_next_request(
    service: Host, messages_api: MessagesApi
) -> None:
    child = in_background({"text": "quick report"})
    steps = (child, bash("sleep 1.5"), {"text": "done"})
    run = await start(service.client, scripted(*steps), **OPTIONS)
    await finished(service.client, run["id"])
    assert in_requests(messages_api, "<task-notification>") == [len(messages_api.requests) - 1]
    await asyncio.sleep(0.5)
    origins = [each["origin"] for each in await runs_of(service.client, run["session_id"])]
    assert origins == ["api", "subagent"]


async def test_a_run_may_wait_for_its_subagents_and_answers_once(
    service: Host, messages_api: MessagesApi
) -> None:
    child = in_background(bash("sleep 0.7"), {"text": "late report"})
    steps = (
        [child, in_background({"text": "soon"})],
        {"text": "waiting"},
        {"text": "a"},
        {"text": "b"},
    )
    run = await start(service.client, scripted(*steps), **OPTIONS, wait_for_subagents=True)
    ended = await finished(service.client, run["id"])
    assert ended["result_subtype"] == "success"
    transcript = await messages(service.client, run["session_id"])
    assert len([m for m in transcript if m["type"] == "result"]) == 1
    assert "late report" in str(messages_api.bodies()[-1]["messages"])
    assert told(transcript, "background_tasks_changed")[-1]["tasks"] == []


async def test_stop_task_ends_a_subagent_and_a_turn_follows(
    service: Host, messages_api: MessagesApi, database_url: str
) -> None:
    client = service.client
    child = in_background(bash("sleep 60"), {"text": "never"})
    run = await start(client, scripted(child, {"text": "end"}, {"text": "after"}), **OPTIONS)
    session_id = run["session_id"]
    await finished(client, run["id"])
    await until_child_calls(client, session_id)
    (begun,) = told(await messages(client, session_id), "task_started")
    control = {"subtype": "stop_task", "task_id": begun["task_id"]}
    answer = await client.post(f"/v1/sessions/{session_id}/control", json=control)
    assert answer.status_code == 200, answer.text
    followed = await follow_up(client, session_id, after=2)
    assert followed["result"]["text"] == "after"
    own = await child_run(client, session_id)
    assert (own["end_reason"], own["result_subtype"]) == ("cancelled", "error_during_execution")
    transcript = await messages(client, session_id)
    (updated,) = told(transcript, "task_updated")
    (notified,) = told(transcript, "task_notification")
    assert (updated["patch"]["status"], notified["status"]) == ("killed", "stopped")
    assert in_requests(messages_api, "<status>killed</status>") == [len(messages_api.requests) - 1]
    async with opened(database_url) as database:
        await check_session(database, session_id)


async def until_child_calls(client: httpx.AsyncClient, session_id: str) -> None:
    async def calls() -> bool:
        return bool(told(await messages(client, session_id), "task_progress"))

    await until(calls, within_s=15)


@pytest.mark.requirement("loop:background-subagents-stops")
async def test_cancels_reach_children_unless_they_are_of_the_turn_alone(
    service: Host, database_url: str
) -> None:
    client, kept, ended, held = service.client, long_sleep(), long_sleep(), long_sleep()
    steps = (in_background(bash(kept)), bash(long_sleep()), {"text": "never"})
    run = await start(client, scripted(*steps), **OPTIONS)
    session_id = run["session_id"]
    await until_processes(kept, exist=True)
    receipt = await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", json={"scope": "turn"})
    assert (receipt.json()["status"], receipt.json()["stopped"]["tasks"]) == ("finished", [])
    await until_processes(kept, exist=True)

    steps = (in_background(bash(ended)), bash(held), {"text": "never"})
    run = await start(client, scripted(*steps), session_id=session_id, **OPTIONS)
    await until_processes(ended, exist=True)
    await until_processes(held, exist=True)
    async with asyncio.timeout(30):
        receipt = await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", json={})
        assert receipt.json()["status"] == "finished"
        await until_processes(kept, exist=False)
        await until_processes(ended, exist=False)
    assert len(receipt.json()["stopped"]["tasks"]) == 2
    runs = await runs_of(client, session_id)
    assert [r["end_reason"] for r in runs] == ["cancelled"] * 4
    transcript = await messages(client, session_id)
    assert {m["status"] for m in told(transcript, "task_notification")} == {"stopped"}
    async with opened(database_url) as database:
        await until(lambda: is_let_go(database, session_id))
        await check_session(database, session_id)


async def test_the_result_of_a_cancel_counts_what_its_subagents_have_cost(
    service: Host, messages_api: MessagesApi
) -> None:
    client, held = service.client, long_sleep()
    asked = {"text": "never said", "stall": 3}
    steps = (in_background(bash("true"), asked), bash(held), {"text": "never"})
    run = await start(client, scripted(*steps), **OPTIONS)
    await messages_api.until(lambda: len(messages_api.requests) == 4)
    await until_processes(held, exist=True)
    await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", json={})
    runs = await runs_of(client, run["session_id"])
    assert [each["end_reason"] for each in runs] == ["cancelled"] * 2
    costs = [float(each["cost"]["run_usd"]) for each in runs]
    assert min(costs) > 0
    (result,) = told_results(await messages(client, run["session_id"]))
    assert result["total_cost_usd"] == pytest.approx(sum(costs))
    stats = result["subagent_stats"]  # its end is told before the result
    assert (stats["spawned"], stats["killed"]["user"]) == (1, 1)


def told_results(transcript: list[Json]) -> list[Json]:
    return [message for message in transcript if message["type"] == "result"]


async def test_a_childs_run_is_cancelled_by_itself_and_its_parent_hears_of_it(
    service: Host,
) -> None:
    client, command = service.client, long_sleep()
    steps = (in_background(bash(command)), {"text": "end"}, {"text": "after"})
    run = await start(client, scripted(*steps), **OPTIONS)
    session_id = run["session_id"]
    await finished(client, run["id"])
    await until_processes(command, exist=True)
    busy = await client.post(f"/v1/sessions/{session_id}/rewind", json={"at_message": None})
    assert busy.status_code in {409, 422}
    own = await child_run(client, session_id)
    refused = await client.post(f"/v1/runs/{own['id']}/retry", json={})
    assert refused.status_code == 409
    receipt = await client.post(f"/v1/runs/{own['id']}/cancel?wait=10", json={})
    assert (receipt.json()["status"], receipt.json()["stopped"]["processes"]) == ("finished", 1)
    await until_processes(command, exist=False)
    assert (await follow_up(client, session_id, after=2))["result"]["text"] == "after"
    again = await client.post(f"/v1/runs/{own['id']}/cancel", json={})
    assert again.json()["already_finished"] is True
    refused = await client.post(f"/v1/runs/{own['id']}/retry", json={})
    assert refused.status_code == 409


@pytest.mark.requirement("loop:background-subagents-resume")
async def test_a_child_goes_on_elsewhere_when_its_host_dies_after_its_parents_end(
    make_settings: MakeSettings, database_url: str, tmp_path: Path
) -> None:
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.5, "poll_s": 0.2})
    command = long_sleep()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host_process(environment(settings), tmp_path / "a.log"))
        child = in_background(
            bash("echo once >> log"), bash(command), bash("cat log"), {"text": "told"}
        )
        run = await start(a.client, scripted(child, {"text": "fine"}, {"text": "heard"}), **OPTIONS)
        session_id = run["session_id"]
        await finished(a.client, run["id"])
        await until_processes(command, exist=True)
        b = await stack.enter_async_context(host(settings))
        await a.kill()
        followed = await follow_up(b.client, session_id, after=2)
        assert (followed["origin"], followed["result"]["text"]) == ("task-notification", "heard")
        own = await child_run(b.client, session_id)
        assert (own["status"], own["attempt"], own["end_reason"]) == ("finished", 2, "completed")
        assert own["result"]["text"] == "told"
        (found,) = await subagents(b.client, session_id)
        path = f"/v1/sessions/{session_id}/subagents/{found['tool_use_id']}/messages"
        said = json.dumps((await b.client.get(path)).json()["data"])
        assert '"content": "once"' in said
        assert "its effect is unknown" in said
        await until(lambda: is_let_go(database, session_id))
        await check_session(database, session_id)
        assert len(await runs_of(b.client, session_id)) == 3


async def test_a_host_that_dies_with_both_leaves_both_to_another(
    make_settings: MakeSettings, database_url: str, tmp_path: Path
) -> None:
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.5, "poll_s": 0.2})
    command, other = long_sleep(), long_sleep()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host_process(environment(settings), tmp_path / "a.log"))
        child = in_background(bash("echo once >> log"), bash(command), {"text": "told"})
        steps = (child, bash(other), {"text": "fine"}, {"text": "heard"})
        run = await start(a.client, scripted(*steps), **OPTIONS, max_budget_usd=1)
        session_id = run["session_id"]
        await until_processes(command, exist=True)
        await until_processes(other, exist=True)
        b = await stack.enter_async_context(host(settings))
        await a.kill()
        ended = await finished(b.client, run["id"])
        assert (ended["result_subtype"], ended["attempt"]) == ("success", 2)
        own = await finished(b.client, (await child_run(b.client, session_id))["id"])
        assert (own["attempt"], own["end_reason"]) == (2, "completed")

        async def is_told() -> bool:
            return bool(told(await messages(b.client, session_id), "task_notification"))

        await until(is_told, within_s=15)
        await until(lambda: is_let_go(database, session_id))
        await check_session(database, session_id)
        (session,) = await rows(database, "SELECT cost_usd FROM sessions")
        costs = [float(each["cost"]["run_usd"]) for each in await runs_of(b.client, session_id)]
        assert sum(costs) == pytest.approx(float(session["cost_usd"]))
        (untold,) = await rows(database, "SELECT count(*) AS n FROM runs WHERE is_untold")
        assert untold["n"] == 0


async def test_a_host_that_stops_hands_its_subagents_over_at_a_boundary(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    settings = make_settings(engine={"lease_s": 30, "heartbeat_s": 1, "poll_s": 0.2})
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host(settings))
        child = in_background(bash("sleep 1; echo once >> log"), bash("cat log"), {"text": "told"})
        run = await start(a.client, scripted(child, {"text": "fine"}, {"text": "heard"}), **OPTIONS)
        session_id = run["session_id"]
        await finished(a.client, run["id"])
        await until_child_calls(a.client, session_id)
        b = await stack.enter_async_context(host(settings))
        await a.service.drain()
        followed = await follow_up(b.client, session_id, after=2)
        assert followed["result"]["text"] == "heard"
        own = await child_run(b.client, session_id)
        assert (own["attempt"], own["result"]["text"]) == (2, "told")
        assert "its effect is unknown" not in json.dumps(messages_api.bodies())
        await until(lambda: is_let_go(database, session_id))
        await check_session(database, session_id)


async def test_a_host_that_stops_with_both_tells_no_end_of_what_it_hands_over(
    make_settings: MakeSettings, database_url: str
) -> None:
    settings = make_settings(engine={"lease_s": 30, "heartbeat_s": 1, "poll_s": 0.2})
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host(settings))
        child = in_background(bash("sleep 1; echo once >> log"), bash("cat log"), {"text": "told"})
        steps = (child, bash("sleep 1.5"), {"text": "fine"}, {"text": "heard"}, {"text": "heard"})
        run = await start(a.client, scripted(*steps), **OPTIONS)
        session_id = run["session_id"]
        await until_child_calls(a.client, session_id)
        b = await stack.enter_async_context(host(settings))
        await a.service.drain()
        await finished(b.client, run["id"])
        own = await finished(b.client, (await child_run(b.client, session_id))["id"])
        assert (own["attempt"], own["result"]["text"]) == (2, "told")
        await until(lambda: is_let_go(database, session_id))
        ends = told(await messages(b.client, session_id), "task_notification")
        assert [end["status"] for end in ends] == ["completed"]
        (untold,) = await rows(database, "SELECT count(*) AS n FROM runs WHERE is_untold")
        assert untold["n"] == 0
        await check_session(database, session_id)


@pytest.mark.requirement("loop:background-subagents-budget")
async def test_at_the_cap_children_are_stopped_and_no_more_are_begun(
    service: Host, database_url: str
) -> None:
    client, command = service.client, long_sleep()
    dear = {"usage": {"input_tokens": 10_000, "output_tokens": 1000}}
    sleeper = in_background(bash(command))
    spender = in_background({"blocks": [bash("echo x")], **dear}, {"text": "never"})
    last = {"blocks": [in_background({"text": "no"})], **dear}
    steps = ([sleeper, spender], bash("sleep 1"), last, {"text": "never"})
    run = await start(client, scripted(*steps), **OPTIONS, max_budget_usd=0.05)
    ended = await finished(client, run["id"])
    assert ended["result_subtype"] == "error_max_budget_usd"
    await until_processes(command, exist=False)
    runs = await runs_of(client, run["session_id"])
    assert [each["status"] for each in runs] == ["finished"] * len(runs)
    children = [each for each in runs if each["origin"] == "subagent"]
    assert "max_budget_run" in {each["end_reason"] for each in children}
    assert sum(float(each["cost"]["run_usd"]) for each in runs) <= 0.05 + 2 * 0.05
    transcript = await messages(client, run["session_id"])
    assert len(told(transcript, "task_notification")) == len(children)
    async with opened(database_url) as database:
        await until(lambda: is_let_go(database, run["session_id"]))
        await check_session(database, run["session_id"])


async def test_a_budget_that_children_spend_after_their_parents_end_stops_them_all(
    service: Host,
) -> None:
    client, command = service.client, long_sleep()
    dear = {"usage": {"input_tokens": 10_000, "output_tokens": 1000}}
    spender = in_background(
        bash("sleep 1.5"), *({"blocks": [bash("echo x")], **dear} for _ in range(9))
    )
    steps = ([in_background(bash(command)), spender], {"text": "fine"}, {"text": "never"})
    run = await start(client, scripted(*steps), **OPTIONS, max_budget_usd=0.05)
    assert (await finished(client, run["id"]))["result_subtype"] == "success"
    followed = await follow_up(client, run["session_id"], after=3)
    assert followed["result_subtype"] == "error_max_budget_usd"
    await until_processes(command, exist=False)
    runs = await runs_of(client, run["session_id"])
    children = [each for each in runs if each["origin"] == "subagent"]
    assert [each["end_reason"] for each in children] == ["max_budget_run"] * 2
    assert sum(float(each["cost"]["run_usd"]) for each in runs) <= 0.05 + 2 * 0.05


async def test_a_child_that_asks_a_person_waits_and_goes_on(
    service: Host, database_url: str
) -> None:
    client = service.client
    options = {**OPTIONS, "allowed_tools": [], "actions": {"permissions": "ask", "hold_seconds": 0}}
    steps = (in_background(bash("touch b.txt"), {"text": "told"}), {"text": "fine"}, {"text": "ok"})
    run = await start(client, scripted(*steps), **options)
    session_id = run["session_id"]
    await finished(client, run["id"])

    async def waits() -> bool:
        return bool((await child_run(client, session_id))["status"] == "requires_action")

    await until(waits, within_s=10)
    path = f"/v1/sessions/{session_id}/actions"
    (pending,) = (await client.get(path, params={"status": "pending"})).json()["data"]
    await client.post(f"/v1/actions/{pending['id']}/resolve", json={"behavior": "allow"})
    followed = await follow_up(client, session_id, after=2)
    assert followed["result"]["text"] == "ok"
    own = await child_run(client, session_id)
    assert own["result"]["text"] == "told"
    async with opened(database_url) as database:
        await check_session(database, session_id)


async def test_a_definition_may_be_for_the_background_and_the_model_may_stop_it(
    service: Host, messages_api: MessagesApi
) -> None:
    client, command = service.client, long_sleep()
    helper = {"description": "helps", "prompt": "You are HELPER.", "background": True}
    options = {**OPTIONS, "agents": {"helper": helper}}
    steps = (agent(bash(command)), {"text": "fine"})
    run = await start(client, scripted(*steps), **options)
    session_id = run["session_id"]
    await finished(client, run["id"])
    await until_processes(command, exist=True)
    (begun,) = told(await messages(client, session_id), "task_started")
    stop = {"tool": "TaskStop", "input": {"task_id": begun["task_id"]}}
    second = await start(
        client, scripted(stop, {"text": "stopped"}), session_id=session_id, **options
    )
    await finished(client, second["id"])
    await until_processes(command, exist=False)
    assert "<task-notification>" not in str(messages_api.bodies()[-1]["messages"])
    assert [each["origin"] for each in await runs_of(client, session_id)] == [
        "api",
        "subagent",
        "api",
    ]


async def test_what_told_children_have_spent_still_counts_on_the_next_host(
    make_settings: MakeSettings, database_url: str
) -> None:
    settings = make_settings(engine={"lease_s": 60.0, "heartbeat_s": 30.0, "poll_s": 0.1})
    dear = {"usage": {"input_tokens": 10_000, "output_tokens": 1000}}
    async with host(settings) as service, opened(database_url) as database:
        child = in_background({"text": "report", **dear})
        steps = (child, bash("sleep 0.7"), bash("sleep 1"), {"text": "fine"})
        run = await start(service.client, scripted(*steps), **OPTIONS, max_budget_usd=0.06)

        async def has_told() -> bool:
            return bool(
                told(await messages(service.client, run["session_id"]), "task_notification")
            )

        await until(has_told)
        await database.raw.execute("UPDATE runs SET cost_usd = 0.07 WHERE origin = 'subagent'")
        await database.raw.execute("UPDATE sessions SET lease_expires_at = now()")
        ended = await finished(service.client, run["id"])
        assert (ended["attempt"], ended["result_subtype"]) == (2, "error_max_budget_usd")


async def test_an_end_that_the_conversation_has_no_place_for_begins_one_turn_at_most(
    make_settings: MakeSettings, database_url: str
) -> None:
    async with (
        host(make_settings(engine={"poll_s": 0.1})) as service,
        opened(database_url) as database,
    ):
        client = service.client
        steps = (
            in_background({"text": "report"}),
            bash("sleep 1"),
            {"text": "done"},
            {"text": "a"},
        )
        run = await start(client, scripted(*steps), **OPTIONS)
        session_id = run["session_id"]
        await finished(client, run["id"])
        await until(lambda: is_let_go(database, session_id))
        # As after a rewind to before its begin, which came before the end was told.
        await database.raw.execute("UPDATE runs SET is_untold = true WHERE origin = 'subagent'")
        await follow_up(client, session_id, after=2)
        await until(lambda: is_let_go(database, session_id))
        await asyncio.sleep(0.5)
        assert len(await runs_of(client, session_id)) == 3


async def result_of(client: httpx.AsyncClient, run_id: str) -> Json:
    result: Json = (await client.get(f"/v1/runs/{run_id}/result")).json()
    return result


@pytest.mark.requirement("loop:subagent-stats")
async def test_what_a_subagent_in_the_background_begins_counts_with_its_end_on_every_host(
    service: Host, database_url: str
) -> None:
    client = service.client
    child = in_background(agent(bash(GO), {"text": "below"}), {"text": "report"})
    steps = (child, {"text": "began"}, {"text": "heard"})
    run = await start(client, scripted(*steps), **OPTIONS)
    session_id = run["session_id"]
    await finished(client, run["id"])

    async def calls_below() -> bool:
        return len(told(await messages(client, session_id), "task_started")) == 2

    await until(calls_below, within_s=15)
    again = await start(client, scripted({"text": "x"}), session_id=session_id, **OPTIONS)
    await finished(client, again["id"])
    for run_id in (run["id"], again["id"]):  # the second was loaded anew
        stats = (await result_of(client, run_id))["subagent_stats"]
        assert (stats["spawned"], stats["max_depth"], stats["completed"]) == (1, 1, 0)
    touched = scripted(bash("touch go"), bash("sleep 1"), {"text": "went"}, {"text": "heard"})
    await start(client, touched, session_id=session_id, **OPTIONS)
    async with opened(database_url) as database:
        await until(lambda: is_let_go(database, session_id))
    last = await start(client, scripted({"text": "y"}), session_id=session_id, **OPTIONS)
    await finished(client, last["id"])
    told_ends = told_results(await messages(client, session_id))[2:]
    assert len(told_ends) >= 2
    for result in told_ends:
        stats = result["subagent_stats"]
        assert (stats["spawned"], stats["spawned_by_subagents"], stats["completed"]) == (2, 1, 2)
        assert (stats["max_depth"], stats["by_type"]) == (2, {"helper": 2})


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_fork_has_of_a_subagent_what_comes_with_its_end(
    service: Host, database_url: str, is_told: bool
) -> None:
    client = service.client
    child = in_background(agent({"text": "below"}), {"text": "report"})
    steps = (child, bash("sleep 1.5"), {"text": "done"})
    run = await start(client, scripted(*steps), **OPTIONS, wait_for_subagents=True)
    session_id = run["session_id"]
    await finished(client, run["id"])
    transcript = await messages(client, session_id)
    end = transcript[-1]
    if (
        not is_told
    ):  # the call of the command: the subagent ends while it runs, and is told afterwards
        sent = (m for m in transcript if "sleep 1.5" in str(m) and m["type"] == "assistant")
        end = [m for m in sent if m["message"]["content"][0]["name"] == "Bash"][-1]
    answer = await client.post(f"/v1/sessions/{session_id}/fork", json={"at_message": end["uuid"]})
    assert answer.status_code == 201, answer.text
    fork_id = answer.json()["id"]
    own = await start(client, scripted({"text": "forked"}), session_id=fork_id, **OPTIONS)
    await finished(client, own["id"])
    stats = (await result_of(client, own["id"]))["subagent_stats"]
    ended = stats["completed"] + stats["failed"] + sum(stats["killed"].values())
    begun = told(await messages(client, fork_id), "task_started")
    assert (stats["spawned"], ended, len(begun)) == ((2, 2, 2) if is_told else (1, 1, 1))
    async with opened(database_url) as database:
        await check_session(database, fork_id)


async def test_a_fork_leaves_a_subagent_that_works_where_it_is(
    service: Host, database_url: str
) -> None:
    client = service.client
    child = in_background(agent(bash(GO), {"text": "below"}), {"text": "report"})
    steps = (child, {"text": "began"}, {"text": "heard"})
    run = await start(client, scripted(*steps), **OPTIONS)
    session_id = run["session_id"]
    await finished(client, run["id"])

    async def calls_below() -> bool:
        begun = told(await messages(client, session_id), "task_started")
        return len(begun) == 2 and len(await subagents(client, session_id)) == 2

    await until(calls_below, within_s=15)
    answer = await client.post(f"/v1/sessions/{session_id}/fork", json={})
    assert answer.status_code == 201, answer.text
    fork_id = answer.json()["id"]
    assert [each["status"] for each in await subagents(client, session_id)] == ["running"] * 2
    assert [each["status"] for each in await subagents(client, fork_id)] == ["stopped"]
    own = await start(client, scripted({"text": "forked"}), session_id=fork_id, **OPTIONS)
    await finished(client, own["id"])
    transcript = await messages(client, fork_id)
    (begun,) = told(transcript, "task_started")
    (told_end,) = told(transcript, "task_notification")
    assert begun["task_id"] == told_end["task_id"]
    stats = transcript[-1]["subagent_stats"]
    assert (stats["spawned"], stats["failed"] + sum(stats["killed"].values())) == (1, 1)
    touched = scripted(bash("touch go"), {"text": "went"})
    await start(client, touched, session_id=session_id, **OPTIONS)
    await follow_up(client, session_id, after=3)
    async with opened(database_url) as database:
        await check_session(database, session_id)
        await check_session(database, fork_id)
