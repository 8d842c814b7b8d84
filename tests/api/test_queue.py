"""The queue of a session: seen, changed, emptied; runs with limits of their own; cancels."""

import asyncio
import uuid
from typing import Any

import httpx
import pytest

from tests.api.stage import RANDOM_RUN, Stage, frames, pointers, problem, scripted, until
from tests.store.seeds import rows

SLOW = scripted({"blocks": [{"text": "late"}], "delay": 30})
SLEEP = scripted(
    {"tool": "Bash", "input": {"command": "touch begun && sleep 30"}}, {"text": "done"}
)


def says(words: str) -> str:
    """A prompt that is answered at once, whatever stands before it."""
    return scripted({"text": "ok"}, text=words)


NOTHING = {"tools": [], "tasks": [], "processes": 0, "model_request": False}


async def post(client: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def busy(client: httpx.AsyncClient, prompt: str = SLOW, **body: Any) -> tuple[str, str]:
    """A session whose run goes on for long; gives the address of its runs, and the run."""
    started = await post(client, "/v1/runs", prompt=prompt, **body)
    return f"/v1/sessions/{started['session']['id']}/runs", started["run"]["id"]


async def queued(client: httpx.AsyncClient, path: str, **body: Any) -> str:
    """A run that waits in a session."""
    run = (await post(client, path, **{"prompt": says("waits"), **body}))["run"]
    assert run["status"] == "queued"
    found: str = run["id"]
    return found


async def order(client: httpx.AsyncClient, path: str) -> list[str]:
    """The ids of the waiting runs, next first."""
    page = (await client.get(path, params={"status": "queued"})).json()["data"]
    return [run["id"] for run in sorted(page, key=lambda run: run["queue_position"])]


async def cancel(client: httpx.AsyncClient, run: str, **query: Any) -> httpx.Response:
    return await client.post(f"/v1/runs/{run}/cancel", params={"wait": 20, **query})


async def ended(client: httpx.AsyncClient, run: str) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"/v1/runs/{run}", params={"wait": 20})).json()
    assert found["status"] == "finished", found
    return found


# -- seen -------------------------------------------------------------------------------------


async def test_the_queue_shows_what_waits_in_which_place_with_how_it_begins(stage: Stage) -> None:
    path, running = await busy(stage.client)
    long = "word " * 200
    blocks = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]
    message = {"type": "user", "message": {"role": "user", "content": blocks}}
    later = {"type": "user", "message": {"role": "user", "content": "not shown"}}
    expected = [
        (await queued(stage.client, path, prompt=long), long[:500]),
        ((await post(stage.client, path, messages=[message, later]))["run"]["id"], "first\nsecond"),
    ]
    page = (await stage.client.get(path, params={"status": "queued", "order": "asc"})).json()
    shown = [(run["id"], run["queue_position"], run["prompt"]) for run in page["data"]]
    assert shown == [(*expected[0][:1], 1, expected[0][1]), (*expected[1][:1], 2, expected[1][1])]
    page = (await stage.client.get(path, params={"status": "running"})).json()
    assert [(run["id"], run["queue_position"]) for run in page["data"]] == [(running, None)]
    both = (await stage.client.get(f"{path}?status=queued&status=running")).json()
    assert len(both["data"]) == 3
    wrong = await stage.client.get(path, params={"status": "nope"})
    assert pointers(problem(wrong, 422, "validation_failed")) == ["status.0"]
    await stage.client.post("/v1/runs/cancel", json={"session_id": path.split("/")[3]})


async def test_higher_priority_comes_first_and_equals_in_the_order_they_came(stage: Stage) -> None:
    path, running = await busy(stage.client)
    low = await queued(stage.client, path, priority=-5)
    first = await queued(stage.client, path)
    second = await queued(stage.client, path)
    high = await queued(stage.client, path, priority=7)
    assert await order(stage.client, path) == [high, first, second, low]
    await cancel(stage.client, running)
    started = [(await ended(stage.client, run))["started_at"] for run in (high, first, second, low)]
    assert started == sorted(started)


# -- changed ----------------------------------------------------------------------------------


async def test_a_waiting_run_can_be_given_another_prompt_and_other_limits(stage: Stage) -> None:
    path, running = await busy(stage.client)
    other = await queued(stage.client, path)
    run = await queued(
        stage.client,
        path,
        prompt=says("old words"),
        metadata={"a": "1", "b": "2"},
        options={"effort": "low"},
    )
    words = f"new words {uuid.uuid4()}"
    new = says(words)
    answer = await stage.client.patch(
        f"/v1/runs/{run}",
        json={
            "prompt": new,
            "options": {"max_turns": 3},
            "priority": 100,
            "metadata": {"a": None, "c": "3"},
        },
    )
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["prompt"], shown["priority"], shown["metadata"]) == (
        new,
        100,
        {"b": "2", "c": "3"},
    )
    assert (shown["options"]["max_turns"], shown["options"]["effort"]) == (3, "low")
    assert await order(stage.client, path) == [run, other]
    unchanged = await stage.client.patch(f"/v1/runs/{run}", json={})
    assert unchanged.json() == shown
    await cancel(stage.client, running)
    assert (await ended(stage.client, run))["result_subtype"] == "success"
    asked = str(stage.model.bodies())
    assert words in asked
    assert "old words" not in asked


async def test_a_change_that_is_not_allowed_changes_nothing(stage: Stage) -> None:
    path, running = await busy(stage.client)
    sent = str(uuid.uuid4())
    message = {"type": "user", "message": {"role": "user", "content": "m"}, "uuid": sent}
    await post(stage.client, path, messages=[message])
    run = f"/v1/runs/{await queued(stage.client, path)}"
    before = (await stage.client.get(run)).json()
    for body, pointer, code in (
        ({"prompt": " "}, "/prompt", "validation_failed"),
        ({"prompt": "x", "messages": [message]}, "", "validation_failed"),
        ({"messages": []}, "/messages", "validation_failed"),
        ({"priority": 101}, "/priority", "validation_failed"),
        ({"priority": -101}, "/priority", "validation_failed"),
        ({"priority": "1"}, "/priority", "validation_failed"),
        ({"metadata": {"a": 1}}, "/metadata/a", "validation_failed"),
        ({"options": {"max_turns": 10**6}}, "/options/max_turns", "validation_failed"),
        ({"options": {"hooks": {"a": 1}}}, "/options/hooks", "unsupported_option"),
        ({"on_busy": "queue"}, "/on_busy", "validation_failed"),
    ):
        answer = await stage.client.patch(run, json=body)
        assert pointers(problem(answer, 422, code)) == [pointer], body
    many = {"metadata": {f"n{n}": "x" for n in range(50)}}
    assert (await stage.client.patch(run, json=many)).status_code == 200
    more = await stage.client.patch(run, json={"metadata": {"one-more": "x"}})
    assert pointers(problem(more, 422, "validation_failed")) == ["/metadata"]
    none = {"metadata": {f"n{n}": None for n in range(50)}}
    assert (await stage.client.patch(run, json=none)).json() == before
    taken = await stage.client.patch(run, json={"messages": [message]})
    assert pointers(problem(taken, 409, "id_taken")) == ["/messages/0/uuid"]
    assert (await stage.client.get(run)).json() == before
    for path in (f"/v1/runs/{running}", f"/v1/runs/{RANDOM_RUN}"):
        answer = await stage.client.patch(path, json={"priority": 1})
        if path.endswith(RANDOM_RUN):
            problem(answer, 404, "not_found")
        else:
            found = problem(answer, 409, "run_already_started")
            assert found["context"] == {"status": "running"}
    await stage.client.post("/v1/runs/cancel", json={"session_id": before["session_id"]})
    problem(await stage.client.patch(run, json={"priority": 1}), 409, "run_already_started")


async def test_a_change_races_with_the_claim_and_is_made_whole_or_refused(stage: Stage) -> None:
    outcomes = set()
    for n in range(16):
        path, running = await busy(stage.client)
        old, new = f"old {uuid.uuid4()}", f"new {uuid.uuid4()}"
        run = await queued(stage.client, path, prompt=says(old))

        async def change(run: str = run, new: str = new, after_s: float = n * 0.002) -> int:
            await asyncio.sleep(after_s)  # spreads the race over the claim
            answer = await stage.client.patch(f"/v1/runs/{run}", json={"prompt": says(new)})
            return answer.status_code

        _, status = await asyncio.gather(cancel(stage.client, running, wait=0), change())
        done = await ended(stage.client, run)
        asked = str(stage.model.bodies())
        assert (status, done["prompt"]) in {(200, says(new)), (409, says(old))}
        assert ((old in asked), (new in asked)) == (status == 409, status == 200)
        outcomes.add(status)
    assert outcomes <= {200, 409}


# -- removed ----------------------------------------------------------------------------------


async def test_a_removed_run_ends_as_cancelled_with_its_one_result(stage: Stage) -> None:
    path, running = await busy(stage.client)
    run, other = await queued(stage.client, path), await queued(stage.client, path)
    answer = await stage.client.delete(f"/v1/runs/{run}")
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["status"], shown["end_reason"], shown["result_subtype"]) == (
        "finished",
        "cancelled",
        "error_during_execution",
    )
    assert (shown["attempt"], shown["cost"]["run_usd"]) == (0, "0.000000")
    assert (await stage.client.get(f"/v1/runs/{run}/result")).json()["type"] == "result"
    events = await stage.client.get(
        f"/v1/sessions/{shown['session_id']}/events", params={"run_id": run}
    )
    types = [entry["data"]["type"] for entry in events.json()["data"]]
    assert types == ["run.queued", "result", "run.finished"]
    assert await order(stage.client, path) == [other]
    problem(await stage.client.delete(f"/v1/runs/{run}"), 409, "run_already_started")
    problem(await stage.client.delete(f"/v1/runs/{running}"), 409, "run_already_started")
    problem(await stage.client.delete(f"/v1/runs/{RANDOM_RUN}"), 404, "not_found")
    await cancel(stage.client, running)
    assert (await ended(stage.client, other))["result_subtype"] == "success"


async def test_a_removal_races_with_the_claim_and_the_run_has_one_result(stage: Stage) -> None:
    for n in range(16):
        path, running = await busy(stage.client)
        words = f"raced {uuid.uuid4()}"
        run = await queued(stage.client, path, prompt=says(words))

        async def remove(run: str = run, after_s: float = n * 0.002) -> int:
            await asyncio.sleep(after_s)  # spreads the race over the claim
            return (await stage.client.delete(f"/v1/runs/{run}")).status_code

        _, status = await asyncio.gather(cancel(stage.client, running, wait=0), remove())
        done = await ended(stage.client, run)
        reason = "cancelled" if status == 200 else "completed"
        assert (status in {200, 409}, done["end_reason"]) == (True, reason)
        assert (words in str(stage.model.bodies())) is (status == 409)
        results = await rows(
            stage.host.service.database,
            "SELECT seq FROM journal WHERE run_id = $1 AND type = 'result'",
            run,
        )
        assert len(results) == 1


# -- cancelled --------------------------------------------------------------------------------


async def test_a_cancel_gives_a_receipt_of_what_it_stopped(stage: Stage) -> None:
    _, asking = await busy(stage.client)
    await stage.model.until(lambda: any("late" in str(body) for body in stage.model.bodies()))
    folder = stage.root / uuid.uuid4().hex
    folder.mkdir()
    folder.chmod(0o777)
    workspace = {"source": "directory", "path": str(folder)}
    path, calling = await busy(
        stage.client, SLEEP, options={"allowed_tools": ["Bash"]}, workspace=workspace
    )
    await until((folder / "begun").exists)
    page = (await stage.client.get(path.replace("/runs", "/messages"))).json()["data"]
    (call,) = (m["message"]["content"][0]["id"] for m in page if m["type"] == "assistant")
    waiting = await queued(stage.client, path)
    receipt = (await cancel(stage.client, waiting)).json()
    assert receipt == {
        "run_id": waiting,
        "status": "finished",
        "stopped": NOTHING,
        "already_finished": False,
    }
    receipt = (await stage.client.post(f"/v1/runs/{asking}/cancel", json={"scope": "turn"})).json()
    assert receipt["status"] == "finished"  # it waits two seconds unless told otherwise
    assert receipt["stopped"] == NOTHING | {"model_request": True}
    receipt = (await cancel(stage.client, calling)).json()
    assert receipt["stopped"] == NOTHING | {"tools": [call], "processes": 1}
    again = await cancel(stage.client, calling)
    assert (again.status_code, again.json()) == (200, receipt | {"already_finished": True})


async def test_a_cancel_that_does_not_wait_is_202_until_the_run_has_ended(stage: Stage) -> None:
    _, run = await busy(stage.client)
    first = await cancel(stage.client, run, wait=0)
    assert (first.status_code, first.json()["status"]) == (202, "cancelling")
    assert first.json()["stopped"] == NOTHING
    await ended(stage.client, run)
    second = await cancel(stage.client, run, wait=0)
    assert (second.status_code, second.json()["already_finished"]) == (200, True)
    problem(await cancel(stage.client, RANDOM_RUN), 404, "not_found")
    wrong = await stage.client.post(f"/v1/runs/{run}/cancel", json={"scope": "process"})
    assert pointers(problem(wrong, 422, "validation_failed")) == ["/scope"]
    for half in ({"scope": "task"}, {"task_id": "b1"}):
        vague = await stage.client.post(f"/v1/runs/{run}/cancel", json=half)
        assert "`task_id` goes with" in problem(vague, 422, "validation_failed")["detail"]


async def test_a_cancel_of_a_task_stops_that_alone(stage: Stage) -> None:
    sleep = {"tool": "Bash", "input": {"command": "sleep 300", "run_in_background": True}}
    late = {"blocks": [{"text": "late"}], "delay": 30}
    runs, run = await busy(stage.client, scripted(sleep, late), options={"allowed_tools": ["Bash"]})
    path, task_id = f"/v1/runs/{run}/cancel", None
    async with asyncio.timeout(30):
        while task_id is None:
            answer = await stage.client.get(runs.replace("/runs", "/events"))
            said = (entry["data"] for entry in answer.json()["data"])
            task_id = next((m["task_id"] for m in said if "task_id" in m), None)
    body = {"scope": "task", "task_id": task_id}
    receipt = (await stage.client.post(path, json=body)).json()
    assert (receipt["status"], receipt["already_finished"]) == ("running", False)
    assert receipt["stopped"] == NOTHING | {"tasks": [task_id]}
    assert (await stage.client.get(f"/v1/runs/{run}")).json()["status"] == "running"
    again = await stage.client.post(path, json=body)
    assert (again.status_code, again.json()["stopped"]) == (200, NOTHING)
    assert (await cancel(stage.client, run)).json()["stopped"] == NOTHING | {"model_request": True}


async def test_many_cancels_at_once_end_a_run_once(stage: Stage) -> None:
    _, run = await busy(stage.client)
    receipts = await asyncio.gather(*(cancel(stage.client, run) for _ in range(10)))
    assert {receipt.status_code for receipt in receipts} == {200}
    assert (await ended(stage.client, run))["end_reason"] == "cancelled"
    results = await rows(
        stage.host.service.database,
        "SELECT seq FROM journal WHERE run_id = $1 AND type = 'result'",
        run,
    )
    assert len(results) == 1


async def test_all_runs_of_a_session_can_be_cancelled_at_once(stage: Stage) -> None:
    path, running = await busy(stage.client)
    _, elsewhere = await busy(stage.client)
    waiting = [await queued(stage.client, path) for _ in range(3)]
    session = path.split("/")[3]
    answer = await stage.client.post("/v1/runs/cancel", json={"session_id": session, "reason": "r"})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [receipt["run_id"] for receipt in body["data"]] == [running, *waiting]
    assert {receipt["status"] for receipt in body["data"]} == {"finished"}
    assert (body["missing"], body["has_more"]) == ([], False)
    asked = [str(body["messages"]) for body in stage.model.bodies() if session in str(body)]
    assert [text for text in asked if "waits" in text] == []
    again = await stage.client.post("/v1/runs/cancel", json={"session_id": session})
    assert (again.status_code, again.json()["data"]) == (200, [])
    assert (await stage.client.get(f"/v1/runs/{elsewhere}")).json()["status"] == "running"
    ids = [elsewhere, running, RANDOM_RUN, elsewhere]
    body = (await stage.client.post("/v1/runs/cancel", json={"ids": ids})).json()
    found = {receipt["run_id"]: receipt["already_finished"] for receipt in body["data"]}
    assert found == {elsewhere: False, running: True}
    assert body["missing"] == [RANDOM_RUN]


async def test_a_cancel_of_many_takes_a_hundred_at_once_of_one_tenant(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    _, ours = await busy(stage.client)
    for _ in range(6):
        path, _ = await busy(stranger)
        await asyncio.gather(*(queued(stranger, path) for _ in range(18)))
    first = (await stranger.post("/v1/runs/cancel", json={"status": "queued"})).json()
    assert (len(first["data"]), first["has_more"]) == (100, True)
    second = (await stranger.post("/v1/runs/cancel", json={"status": ["queued"]})).json()
    assert (len(second["data"]), second["has_more"]) == (8, False)
    third = await stranger.post(
        "/v1/runs/cancel", json={"status": ["running", "queued"]}, params={"wait": 20}
    )
    assert (third.status_code, len(third.json()["data"])) == (200, 6)
    theirs = (await stranger.post("/v1/runs/cancel", json={"ids": [ours]})).json()
    assert (theirs["data"], theirs["missing"]) == ([], [ours])
    assert (await stage.client.get(f"/v1/runs/{ours}")).json()["status"] == "running"
    await cancel(stage.client, ours)


@pytest.mark.parametrize(
    ("body", "status", "found"),
    [
        ({}, 422, [""]),
        ({"ids": []}, 422, ["/ids"]),
        ({"ids": ["x"] * 101}, 422, ["/ids"]),
        ({"ids": ["x"], "status": "queued"}, 422, [""]),
        ({"session_id": "x"}, 422, ["/session_id"]),
        ({"session_id": "00000000-0000-4000-8000-000000000000"}, 404, []),
    ],
)
async def test_a_cancel_of_many_that_names_nothing_cancels_nothing(
    stage: Stage, body: dict[str, Any], status: int, found: list[str]
) -> None:
    answer = await stage.client.post("/v1/runs/cancel", json=body)
    code = "not_found" if status == 404 else "validation_failed"
    assert pointers(problem(answer, status, code)) == found
    finished = await stage.client.post("/v1/runs/cancel", json={"status": "finished"})
    assert finished.status_code == 422


# -- limits and ways of a run -----------------------------------------------------------------


async def test_a_run_shows_its_deadline_its_recovery_and_its_priority(stage: Stage) -> None:
    plain = await stage.run()
    assert (plain["deadline_at"], plain["priority"]) == (None, 0)
    assert plain["recovery"] == {"policy": "resume", "max_attempts": None}
    given = {
        "deadline_seconds": 600,
        "priority": -7,
        "recovery": {"policy": "fail", "max_attempts": 2},
    }
    new = (await post(stage.client, "/v1/runs", prompt="x", **given))["run"]
    path = f"/v1/sessions/{new['session_id']}/runs"
    for run in (new, (await post(stage.client, path, prompt="y", **given))["run"]):
        assert (run["priority"], run["recovery"]) == (-7, given["recovery"])
        (row,) = await rows(
            stage.host.service.database,
            "SELECT extract(epoch FROM deadline_at - created_at)::float8 AS s FROM runs"
            " WHERE id = $1",
            run["id"],
        )
        assert row["s"] == pytest.approx(600, abs=1)
        again = (await stage.client.get(f"/v1/runs/{run['id']}")).json()
        assert again["deadline_at"] == run["deadline_at"] is not None


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"deadline_seconds": 0}, "/deadline_seconds"),
        ({"deadline_seconds": 604_801}, "/deadline_seconds"),
        ({"deadline_seconds": 1.5}, "/deadline_seconds"),
        ({"priority": 101}, "/priority"),
        ({"recovery": {"policy": "retry"}}, "/recovery/policy"),
        ({"recovery": {"max_attempts": 0}}, "/recovery/max_attempts"),
        ({"recovery": {"max_attempts": 11}}, "/recovery/max_attempts"),
        ({"recovery": {"nope": 1}}, "/recovery/nope"),
        ({"on_disconnect": "stop"}, "/on_disconnect"),
    ],
)
async def test_a_limit_out_of_bounds_is_422(
    stage: Stage, body: dict[str, Any], pointer: str
) -> None:
    answer = await stage.client.post("/v1/runs", json={"prompt": "x", **body})
    assert pointers(problem(answer, 422, "validation_failed")) == [pointer]


async def test_a_run_that_passes_its_deadline_ends_with_its_one_result(stage: Stage) -> None:
    run = await stage.run(SLOW, deadline_seconds=1)
    assert (run["end_reason"], run["result_subtype"]) == ("deadline", "error_during_execution")


async def test_a_client_that_hangs_up_on_its_own_stream_ends_the_run_if_it_said_so(
    stage: Stage,
) -> None:
    for way, reason in (("cancel", "cancelled"), ("continue", None)):
        body = {"prompt": SLOW, "stream": True, "on_disconnect": way}
        async with stage.client.stream("POST", "/v1/runs", json=body) as answer:
            run = answer.headers["x-run-id"]
            async for frame in frames(answer):
                if frame.event == "message":
                    break
        wait = {"wait": 10 if reason else 1}
        found = (await stage.client.get(f"/v1/runs/{run}", params=wait)).json()
        assert found["end_reason"] == reason
        await cancel(stage.client, run)


async def test_only_the_stream_of_the_post_itself_ends_a_run_by_being_closed(stage: Stage) -> None:
    body = {"prompt": SLOW, "on_disconnect": "cancel"}
    run = (await post(stage.client, "/v1/runs", **body))["run"]["id"]
    async with stage.client.stream("GET", f"/v1/runs/{run}/stream") as answer:
        async for frame in frames(answer):
            if frame.event == "message":
                break
    found = (await stage.client.get(f"/v1/runs/{run}", params={"wait": 1})).json()
    assert found["status"] == "running"
    await cancel(stage.client, run)
    done = scripted({"text": "done"})
    async with stage.client.stream(
        "POST", "/v1/runs", json={"prompt": done, "stream": True, "on_disconnect": "cancel"}
    ) as answer:
        run = answer.headers["x-run-id"]
        events = [frame.event async for frame in frames(answer)]
    assert events[-1] == "end"
    assert (await ended(stage.client, run))["end_reason"] == "completed"
