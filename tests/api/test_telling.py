"""How a run is getting on, as readers hear it: limits, requests, calls that take long."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.stage import Stage, open_stage, scripted
from tests.conftest import MakeSettings
from tests.databases import fresh_database
from tests.fakes.messages_api import MessagesApi
from tests.hosts import host
from tests.runs.prompts import finished, messages, start
from tests.runs.sse import Frame, read_to_end

NEAR = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "5",
    "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:00Z",
}
SLOW = scripted({"tool": "Bash", "input": {"command": "sleep 1.2"}}, {"text": "done"})


@pytest.fixture(scope="module")
async def hasty(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    """A host that tells of calls after a third of a second."""
    stream = {"tool_progress_s": 0.3}
    async with fresh_database(postgres) as dsn, open_stage(scratch, dsn, stream=stream) as opened:
        yield opened


async def read(client: httpx.AsyncClient, run: dict[str, Any], previews: str) -> list[Frame]:
    return await read_to_end(client, f"/v1/runs/{run['id']}/stream", previews=previews)


def of(frames: list[Frame], kind: str) -> list[dict[str, Any]]:
    """Give previews of a kind: what is never journalled has no id."""
    told = [frame for frame in frames if frame.event == "preview"]
    assert all(frame.id is None for frame in told)
    return [f.body for f in told if kind in {f.body["type"], f.body.get("subtype")}]


@pytest.mark.requirement("wire:rate-limit")
async def test_a_limit_that_is_near_is_told_before_the_answer_it_came_with(stage: Stage) -> None:
    run = await stage.run(scripted({"text": "done", "headers": NEAR}))
    told, answer = (await messages(stage.client, run["session_id"]))[2:4]
    assert told == {
        "type": "rate_limit_event",
        "session_id": run["session_id"],
        "uuid": told["uuid"],
        "rate_limit_info": {
            "status": "allowed_warning",
            "resetsAt": 1_796_040_000,
            "utilization": 0.9,
            "resource": "requests",
        },
    }
    assert answer["type"] == "assistant"


@pytest.mark.requirement("wire:rate-limit")
async def test_a_refusal_with_headers_is_told_before_its_retry(stage: Stage) -> None:
    gone = {**NEAR, "anthropic-ratelimit-requests-remaining": "0"}
    step = {"text": "done", "http": 429, "error": "rate_limit_error", "headers": gone, "times": 1}
    run = await stage.run(scripted({**step, "retry_after": 0.01}))
    told, retry = (await messages(stage.client, run["session_id"]))[2:4]
    assert told["rate_limit_info"]["status"] == "rejected"
    assert told["rate_limit_info"]["utilization"] == 1
    assert retry["subtype"] == "api_retry"


@pytest.mark.requirement("wire:rate-limit")
async def test_the_share_that_counts_as_near_is_the_operators(
    make_settings: MakeSettings,
) -> None:
    async with host(make_settings(model={"rate_limit_near": 0.95})) as running:
        run = await start(running.client, scripted({"text": "done", "headers": NEAR}))
        await finished(running.client, run["id"])
        kinds = [m["type"] for m in await messages(running.client, run["session_id"])]
    assert "rate_limit_event" not in kinds


@pytest.mark.requirement("wire:tool-progress")
async def test_a_call_that_takes_long_is_told_of_to_readers_of_previews_alone(
    hasty: Stage,
) -> None:
    run = await start(hasty.client, SLOW, allowed_tools=["Bash"])
    frames = await read(hasty.client, run, "all")
    told = of(frames, "tool_progress")
    assert 2 <= len(told) <= 4
    (use,) = [
        block
        for message in await messages(hasty.client, run["session_id"])
        if message["type"] == "assistant"
        for block in message["message"]["content"]
        if block["type"] == "tool_use"
    ]
    assert told[-1] == {
        "type": "tool_progress",
        "session_id": run["session_id"],
        "uuid": told[-1]["uuid"],
        "tool_use_id": use["id"],
        "tool_name": "Bash",
        "parent_tool_use_id": None,
        "elapsed_time_seconds": 1,
    }
    journalled = [frame.body["type"] for frame in frames if frame.event == "message"]
    assert "tool_progress" not in journalled
    for previews in ("none", "text"):
        quiet = await start(hasty.client, SLOW, allowed_tools=["Bash"])
        assert of(await read(hasty.client, quiet, previews), "tool_progress") == []


@pytest.mark.requirement("wire:tool-progress")
async def test_a_quick_call_is_not_told_of(stage: Stage) -> None:
    prompt = scripted({"tool": "Bash", "input": {"command": "true"}}, {"text": "done"})
    run = await start(stage.client, prompt, allowed_tools=["Bash"])
    assert of(await read(stage.client, run, "all"), "tool_progress") == []


@pytest.mark.requirement("wire:status")
async def test_each_try_of_a_request_is_announced_before_its_first_event(stage: Stage) -> None:
    step = {"text": "late", "delay": 0.3, "chunk_delay": 0.05}
    failing = {**step, "http": 529, "times": 1, "retry_after": 0.5}
    run = await start(stage.client, scripted(failing))
    frames = await read(stage.client, run, "all")
    told = [frame.body for frame in frames if frame.event == "preview"]
    shapes = [t.get("status") or t["event"]["type"] for t in told]
    assert shapes[-7:] == [
        *("requesting", "message_start", "content_block_start", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    requesting = of(frames, "status")
    assert requesting[-1] == {
        "type": "system",
        "subtype": "status",
        "session_id": run["session_id"],
        "uuid": requesting[-1]["uuid"],
        "status": "requesting",
    }
    assert len({t["uuid"] for t in requesting}) == len(requesting)


@pytest.mark.requirement("wire:status")
@pytest.mark.requirement("wire:tool-progress")
async def test_a_reader_on_another_host_hears_the_same(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    async with AsyncExitStack() as stack:
        settings = make_settings(stream={"tool_progress_s": 0.3}, engine={"poll_s": 20.0})
        driver = await stack.enter_async_context(host(settings))
        other = await stack.enter_async_context(host(settings, "api"))
        later = {"blocks": [{"text": "done"}], "chunk_delay": 0.05, "delay": 0.2}
        slow = {"blocks": [{"tool": "Bash", "input": {"command": "sleep 2"}}], "delay": 0.5}
        run = await start(driver.client, scripted(slow, later), allowed_tools=["Bash"])
        frames = await read(other.client, run, "all")
    assert of(frames, "tool_progress")
    assert of(frames, "status")
    assert len(messages_api.requests) == 2


# -- service events ---------------------------------------------------------------------------


async def service_events(stage: Stage, run: dict[str, Any]) -> list[dict[str, Any]]:
    path = f"/v1/sessions/{run['session_id']}/events"
    page = (await stage.client.get(path, params={"run_id": run["id"], "limit": 1000})).json()
    return [entry["data"] for entry in page["data"] if entry["kind"] == "service"]


async def test_a_cancel_is_told_once_before_the_end_of_its_run(stage: Stage) -> None:
    run = await start(stage.client, scripted({"text": "late", "delay": 20}))
    path = f"/v1/runs/{run['id']}/cancel"
    for reason in ("not needed", "really not"):
        answer = await stage.client.post(path, json={"reason": reason}, params={"wait": 10})
        assert answer.is_success, answer.text
    told = await service_events(stage, run)
    kinds = [event["type"] for event in told]
    assert kinds == ["run.queued", "run.started", "run.cancel_requested", "run.finished"]
    assert told[2] == {
        "type": "run.cancel_requested",
        "seq": told[2]["seq"],
        "session_id": run["session_id"],
        "run_id": run["id"],
        "at": told[2]["at"],
        "reason": "not needed",
        "end_reason": "cancelled",
    }
    frames = await read(stage.client, run, "none")
    assert [f.body["type"] for f in frames if f.event == "service"] == kinds


async def test_a_run_that_is_superseded_is_told_so_and_one_that_never_began_just_ends(
    stage: Stage,
) -> None:
    run = await start(stage.client, scripted({"text": "late", "delay": 20}))
    path = f"/v1/sessions/{run['session_id']}/runs"
    queued = (await stage.client.post(path, json={"prompt": "waits"})).json()["run"]
    await stage.client.post(f"/v1/runs/{queued['id']}/cancel")
    assert [e["type"] for e in await service_events(stage, queued)] == [
        *("run.queued", "run.finished"),
    ]
    taking = await stage.client.post(path, json={"prompt": "now", "on_busy": "interrupt"})
    await finished(stage.client, taking.json()["run"]["id"])
    told = await service_events(stage, run)
    assert [event["type"] for event in told][2:] == ["run.cancel_requested", "run.finished"]
    assert told[-1]["end_reason"] == "superseded"


@pytest.mark.requirement("engine:budget-warning")
async def test_a_budget_that_is_nearly_spent_is_told_in_the_log(stage: Stage) -> None:
    dear = {"tool": "Glob", "input": {"pattern": "*"}, "usage": {"output_tokens": 900}}
    options = {"max_budget_usd": "0.01", "allowed_tools": ["Glob"], "model": "claude-sonnet-5"}
    run = await stage.run(scripted(dear, {"text": "done"}), options=options)
    (told,) = [e for e in await service_events(stage, run) if e["type"] == "budget.warning"]
    assert (told["scope"], told["share"], told["budget_usd"]) == ("run", 0.8, "0.01")
    assert told["spent_usd"].startswith("0.0092")


@pytest.mark.requirement("engine:service-events")
async def test_the_log_says_when_a_request_is_made_again_and_which_files_were_changed(
    stage: Stage,
) -> None:
    failing = {"http": 529, "error": "overloaded_error", "times": 1, "retry_after": 0.5}
    write = {"tool": "Write", "input": {"file_path": "a/new.txt", "content": "x"}}
    unread = {
        "tool": "Edit",
        "input": {"file_path": "no.txt", "old_string": "a", "new_string": "b"},
    }
    edit = {"file_path": "a/new.txt", "old_string": "x", "new_string": "y"}
    steps = (
        {"blocks": [write], **failing},
        unread,
        {"tool": "Edit", "input": edit},
        {"text": "ok"},
    )
    run = await stage.run(scripted(*steps), options={"permission_mode": "acceptEdits"})
    events = await service_events(stage, run)
    (retry,) = [event for event in events if event["type"] == "model.retry"]
    assert (retry["attempt"], retry["status"], retry["error"]) == (1, 529, "overloaded")
    assert retry["at"] <= retry["next_at"]
    changed = [event for event in events if event["type"] == "file.changed"]
    assert [(event["path"], event["tool_name"]) for event in changed] == [
        ("/workspace/a/new.txt", "Write"),
        ("/workspace/a/new.txt", "Edit"),
    ]
    page = (await stage.client.get(f"/v1/sessions/{run['session_id']}/events")).json()["data"]
    before = [page[event["seq"] - 2]["data"] for event in changed]
    assert [m["message"]["content"][0]["tool_use_id"] for m in before] == [
        event["tool_use_id"] for event in changed
    ]


@pytest.mark.requirement("engine:service-events")
async def test_the_log_says_every_ten_turns_what_a_run_has_used(stage: Stage) -> None:
    look = {"tool": "Glob", "input": {"pattern": "*"}}
    options = {"allowed_tools": ["Glob"], "model": "claude-sonnet-5"}
    run = await stage.run(scripted(*[look] * 21, {"text": "done"}), options=options)
    told = [e for e in await service_events(stage, run) if e["type"] == "usage.snapshot"]
    assert [event["num_turns"] for event in told] == [10, 20]
    assert (told[0]["input_tokens"], told[0]["output_tokens"]) == (1000, 100)
    assert float(told[1]["spent_usd"]) == pytest.approx(20 * (100 * 2 + 10 * 10) / 1_000_000)


@pytest.mark.requirement("wire:thinking-tokens")
async def test_readers_of_previews_hear_how_long_a_thought_is_while_it_lasts(stage: Stage) -> None:
    blocks = [{"thinking": "hm, " * 500}, {"text": "done"}]
    step = {"blocks": blocks, "chunk": 100, "chunk_delay": 0.01, "delay": 0.2}
    run = await start(stage.client, scripted(step))
    frames = await read(stage.client, run, "all")
    told = of(frames, "thinking_tokens")
    assert len(told) >= 5
    counts = [estimate["estimated_tokens"] for estimate in told]
    assert counts == sorted(set(counts))
    assert sum(estimate["estimated_tokens_delta"] for estimate in told) == counts[-1] <= 500
    journalled = [f.body for f in frames if f.event == "message"]
    (whole,) = [body for body in journalled if body.get("subtype") == "thinking_tokens"]
    assert whole["estimated_tokens"] == 500
    quiet = await start(stage.client, scripted(step))
    assert of(await read(stage.client, quiet, "text"), "thinking_tokens") == []
