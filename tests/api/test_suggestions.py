"""Why one reads to the end: what follows a result when suggestions are asked for."""

import asyncio
from typing import Any

import pytest

from app.providers.demo_rules import SUGGESTION
from tests.api.stage import Frame, Stage, frames, scripted
from tests.store.seeds import rows

WANTED = {"prompt_suggestions": True}
LATE = {"blocks": [{"text": "Too late."}], "delay": 30}


async def read(stage: Stage, prompt: str, **body: Any) -> list[Frame]:
    """Start a run and read its stream to the end."""
    sent = {"prompt": prompt, "stream": True, "options": WANTED, **body}
    async with stage.client.stream("POST", "/v1/runs", json=sent) as answer:
        return [frame async for frame in frames(answer) if frame.event]


async def until_result(stage: Stage, prompt: str, **body: Any) -> dict[str, Any]:
    """Start a run and give it once its result can be read."""
    sent = {"prompt": prompt, "options": WANTED, **body}
    run: dict[str, Any] = (await stage.client.post("/v1/runs", json=sent)).json()["run"]
    async with stage.client.stream("GET", f"/v1/runs/{run['id']}/stream") as answer:
        async for frame in frames(answer):
            if frame.event == "message" and frame.json()["type"] == "result":
                return run
    raise AssertionError("no result came")


def kinds(shown: list[Frame]) -> list[str]:
    return [frame.json().get("type", frame.event) if frame.data else "" for frame in shown]


async def checked(stage: Stage, run: dict[str, Any]) -> list[str]:
    """Check that a run ended once, as its result says; give the types of its rows."""
    shown = (await stage.client.get(f"/v1/runs/{run['id']}?wait=20")).json()
    assert (shown["status"], shown["result_subtype"]) == ("finished", "success")
    assert (shown["end_reason"], shown["result"]["text"]) == ("completed", "done")
    path = f"/v1/sessions/{run['session_id']}/events"
    page = (await stage.client.get(path, params={"run_id": run["id"]})).json()["data"]
    types = [entry["data"]["type"] for entry in page]
    assert (types.count("result"), types.count("run.finished"), types[-1]) == (1, 1, "run.finished")
    return types


@pytest.mark.requirement("loop:suggestion")
async def test_a_reader_who_stops_at_the_result_misses_the_suggestion(stage: Stage) -> None:
    shown = await read(stage, scripted({"text": "done"}, {"text": "Now the tests."}))
    assert kinds(shown)[-5:] == ["assistant", "result", "prompt_suggestion", "run.finished", "end"]
    told = shown[-3].json()
    assert told == {
        "type": "prompt_suggestion",
        "suggestion": "Now the tests.",
        "uuid": told["uuid"],
        "session_id": told["session_id"],
    }
    run_id = shown[0].json()["run_id"]
    result = (await stage.client.get(f"/v1/runs/{run_id}/result")).json()
    assert result == shown[-4].json()
    ledger = await rows(
        stage.host.service.database,
        "SELECT purpose, cost_usd FROM ledger WHERE run_id = $1 ORDER BY id",
        run_id,
    )
    assert [row["purpose"] for row in ledger] == ["main", "suggestion"]
    run = (await stage.client.get(f"/v1/runs/{run_id}")).json()
    assert float(run["cost"]["run_usd"]) == float(sum(row["cost_usd"] for row in ledger))
    # What it cost is not in the result before it, but in the next one's total.
    assert result["total_cost_usd"] == float(ledger[0]["cost_usd"])
    path = f"/v1/sessions/{told['session_id']}/runs"
    again = await stage.client.post(path, json={"prompt": scripted({"text": "x"}), "wait": 20})
    total = (await stage.client.get(f"/v1/runs/{again.json()['run']['id']}/result")).json()
    assert total["total_cost_usd"] == pytest.approx(3 * float(ledger[0]["cost_usd"]))


async def test_the_demo_model_suggests_what_it_understands(stage: Stage) -> None:
    options = {**WANTED, "model": "demo"}
    shown = await read(stage, "Read notes.txt and count the words.", options=options)
    assert shown[-3].json()["suggestion"] == SUGGESTION
    shown = await read(stage, "Sing.", options=options)
    assert kinds(shown)[-3:] == ["result", "run.finished", "end"]


async def test_a_cancel_after_the_result_ends_the_run_as_that_says(stage: Stage) -> None:
    run = await until_result(stage, scripted({"text": "done"}, LATE))
    assert (await stage.client.get(f"/v1/runs/{run['id']}")).json()["status"] == "running"
    receipt = (await stage.client.post(f"/v1/runs/{run['id']}/cancel?wait=20")).json()
    assert receipt["status"] == "finished"
    types = await checked(stage, run)
    assert types[-3:] == ["result", "run.cancel_requested", "run.finished"]
    (lost,) = await rows(
        stage.host.service.database,
        "SELECT is_estimated FROM ledger WHERE run_id = $1 AND purpose = 'suggestion'",
        run["id"],
    )
    assert lost["is_estimated"]


async def test_a_deadline_and_a_prompt_after_the_result_do_not_change_it(stage: Stage) -> None:
    run = await until_result(stage, scripted({"text": "done"}, LATE), deadline_seconds=3)
    path = f"/v1/sessions/{run['session_id']}/runs"
    steered = await stage.client.post(
        path, json={"prompt": scripted({"text": "mine"}), "on_busy": "steer"}
    )
    assert steered.json()["steered_into"] == run["id"]
    assert (await checked(stage, run))[-2:] == ["result", "run.finished"]
    async with asyncio.timeout(20):
        while True:
            page = (await stage.client.get(path, params={"status": "finished"})).json()["data"]
            if len(page) == 2:
                break
            await asyncio.sleep(0.05)
    assert page[0]["result"]["text"] == "mine"
