"""Compaction over HTTP: by itself, by hand, across hosts, and what clients see of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.compaction.summary import TASK
from app.providers.script import Step
from tests.conftest import MakeSettings
from tests.e2e.test_replicas import check_session
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, environment, host, host_process
from tests.runs.prompts import finished, messages, scripted, start
from tests.store.seeds import rows, until

ASKED = TASK[:60]
SMALL: dict[str, Any] = {"prices": {"claude-sonnet-5": {"context_window": 10_000}}}
"""Compacts from 8,000 tokens on; a tail has 1,000."""
GO_ON = scripted(*[{"text": "after the summary"}] * 9, text="The notes.")


def look(tokens: int) -> dict[str, Any]:
    call = {"tool": "Glob", "input": {"pattern": "*"}}
    return {"blocks": [call], "usage": {"input_tokens": tokens, "output_tokens": 10}}


FILLING = scripted(look(1_000), look(6_000), look(8_000), {"text": "never reached"})


def summary(text: str = GO_ON, **controls: Any) -> Step:
    usage = {"input_tokens": 1_000, "output_tokens": 100}
    return Step(blocks=({"text": text},), usage=usage, **controls)


@pytest.fixture
async def small(make_settings: MakeSettings, messages_api: MessagesApi) -> AsyncIterator[Host]:
    """A host whose model has a small window."""
    messages_api.summaries = [(ASKED, summary())]
    async with host(make_settings(model=SMALL)) as running:
        yield running


async def filled(client: httpx.AsyncClient) -> dict[str, Any]:
    """Play a run that is compacted on the way."""
    return await finished(client, (await start(client, FILLING, allowed_tools=["Glob"]))["id"])


async def page(client: httpx.AsyncClient, session_id: str, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/sessions/{session_id}/messages", params=query)
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


def kinds(shown: list[dict[str, Any]]) -> list[str]:
    return [str(message.get("subtype", message["type"])) for message in shown]


async def test_a_run_is_compacted_on_the_way_and_its_journal_stays_whole(
    small: Host, messages_api: MessagesApi
) -> None:
    run = await filled(small.client)
    assert (run["result_subtype"], run["result"]["text"]) == ("success", "after the summary")
    shown = await messages(small.client, run["session_id"])
    assert kinds(shown) == [
        *("init", "user"),
        *("assistant", "user") * 3,
        *("status", "status", "compact_boundary", "user", "assistant", "success"),
    ]
    asked, after = messages_api.bodies()[-2:]
    assert TASK in asked["messages"][-1]["content"][-1]["text"]
    assert [message["role"] for message in after["messages"]] == ["user", "assistant", "user"]
    assert "The notes." in after["messages"][0]["content"][-1]["text"]
    assert (asked["system"], asked["tools"]) == (after["system"], after["tools"])
    await check_session(small.service.database, run["session_id"])
    purposes = await rows(
        small.service.database, "SELECT purpose, cost_usd FROM ledger ORDER BY id"
    )
    assert [row["purpose"] for row in purposes] == [*["main"] * 3, "compaction", "main"]
    assert purposes[3]["cost_usd"] > 0


async def test_the_active_view_is_what_the_model_still_sees(small: Host) -> None:
    run = await filled(small.client)
    everything = await messages(small.client, run["session_id"])
    active = await page(small.client, run["session_id"], view="active")
    assert active == everything[6:]
    assert kinds(active[:2]) == ["assistant", "user"]
    told = everything[10]["compact_metadata"]
    assert told["preserved_messages"]["uuids"] == [m["uuid"] for m in active[:2]]
    newest_first = await page(small.client, run["session_id"], view="active", order="desc", limit=3)
    assert newest_first == everything[:-4:-1]
    wrong = await small.client.get(
        f"/v1/sessions/{run['session_id']}/messages", params={"view": "half"}
    )
    assert wrong.status_code == 422


async def test_another_host_resumes_after_a_compaction_and_a_fork_does_too(
    small: Host, messages_api: MessagesApi, make_settings: MakeSettings
) -> None:
    run = await filled(small.client)
    forked = await small.client.post(f"/v1/sessions/{run['session_id']}/fork", json={})
    async with host(make_settings(model=SMALL)) as other:
        for session_id in (run["session_id"], forked.json()["id"]):
            again = await start(
                other.client, scripted({"text": "ok"}, text="Next."), session_id=session_id
            )
            assert (await finished(other.client, again["id"]))["result"]["text"] == "ok"
            roles = [m["role"] for m in messages_api.bodies()[-1]["messages"]]
            assert roles == ["user", "assistant", "user", "assistant", "user"]
    first, second = (body["messages"] for body in messages_api.bodies()[-2:])
    assert first == second
    assert len(await page(small.client, forked.json()["id"], view="active")) == 12


async def test_a_fork_that_ends_at_the_boundary_sees_what_was_there_before(
    small: Host, messages_api: MessagesApi
) -> None:
    run = await filled(small.client)
    shown = await messages(small.client, run["session_id"])
    at = next(m["uuid"] for m in shown if m.get("subtype") == "compact_boundary")
    forked = await small.client.post(
        f"/v1/sessions/{run['session_id']}/fork", json={"at_message": at}
    )
    again = await start(small.client, "Next.", session_id=forked.json()["id"])
    assert (await finished(small.client, again["id"]))["result_subtype"] == "success"
    # It is as full as the other one was, so it is compacted, from its beginning on.
    asked = messages_api.bodies()[-2]["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant"] * 2 + ["user"]
    assert asked[0]["content"][-1]["text"] == FILLING


@pytest.mark.requirement("loop:compaction-takeover")
async def test_a_host_that_dies_while_it_summarises_is_followed_by_one_summary(
    make_settings: MakeSettings, messages_api: MessagesApi, tmp_path: Path
) -> None:
    settings = make_settings(
        model=SMALL, engine={"lease_s": 1.5, "heartbeat_s": 0.5, "poll_s": 0.2}
    )
    messages_api.summaries = [(ASKED, summary(delay=60.0))]
    async with AsyncExitStack() as stack:
        doomed = await stack.enter_async_context(
            host_process(environment(settings), tmp_path / "a.log")
        )
        run = await start(doomed.client, FILLING, allowed_tools=["Glob"])
        await messages_api.until(lambda: len(messages_api.requests) == 4)
        await doomed.kill()
        messages_api.summaries = [(ASKED, summary())]
        heir = await stack.enter_async_context(host(settings))
        ended = await finished(heir.client, run["id"])
        assert (ended["result_subtype"], ended["result"]["text"]) == (
            "success",
            "after the summary",
        )
        shown = kinds(await messages(heir.client, run["session_id"]))
        assert (shown.count("compact_boundary"), shown.count("status")) == (1, 2)
        ledger = await rows(
            heir.service.database,
            "SELECT purpose, is_estimated FROM ledger WHERE purpose <> 'main' ORDER BY id",
        )
        assert [row["is_estimated"] for row in ledger] == [True, False]
        await check_session(heir.service.database, run["session_id"])


# -- by hand ----------------------------------------------------------------------------------


async def test_compacting_by_hand_is_a_run(small: Host, messages_api: MessagesApi) -> None:
    talk = scripted({"tool": "Glob", "input": {"pattern": "*"}}, {"text": "one"})
    first = await finished(
        small.client, (await start(small.client, talk, allowed_tools=["Glob"]))["id"]
    )
    path = f"/v1/sessions/{first['session_id']}/compact"
    answer = await small.client.post(path, json={"instructions": "keep the names", "wait": 20})
    assert answer.status_code == 200, answer.text
    run = answer.json()["run"]
    assert (run["result_subtype"], run["result"]["text"], run["num_turns"]) == ("success", "", 0)
    shown = await messages(small.client, first["session_id"])
    assert kinds(shown)[6:] == [
        *("status", "status", "init", "user", "compact_boundary", "user", "user", "success")
    ]
    assert shown[9]["message"]["content"] == "/compact keep the names"
    assert "keep the names" in messages_api.bodies()[-1]["messages"][-1]["content"][-1]["text"]
    await check_session(small.service.database, first["session_id"])


async def test_a_new_session_has_nothing_to_compact(small: Host) -> None:
    made = (await small.client.post("/v1/sessions", json={})).json()
    answer = await small.client.post(f"/v1/sessions/{made['id']}/compact", json={"wait": 20})
    assert answer.json()["run"]["result_subtype"] == "success"
    started = await start(small.client, "/compact")
    run = await finished(small.client, started["id"])
    shown = await messages(small.client, run["session_id"])
    assert kinds(shown) == ["init", "user", "assistant", "success"]
    assert shown[2]["message"]["content"][0]["text"] == "Error: No messages to compact"


@pytest.mark.parametrize(
    ("body", "status"),
    [({"instructions": 1}, 422), ({"words": "x"}, 422), ({"instructions": "x" * 10_001}, 422)],
)
async def test_a_wrong_wish_is_refused(small: Host, body: Any, status: int) -> None:
    made = (await small.client.post("/v1/sessions", json={})).json()
    answer = await small.client.post(f"/v1/sessions/{made['id']}/compact", json=body)
    assert answer.status_code == status
    assert answer.json()["errors"][0]["pointer"]


async def test_an_unknown_session_has_no_window(small: Host) -> None:
    for answer in (
        await small.client.post("/v1/sessions/nobody/compact"),
        await small.client.get("/v1/sessions/nobody/context"),
    ):
        assert answer.status_code == 404


async def test_a_command_sent_into_a_run_waits_until_it_has_ended(
    small: Host, messages_api: MessagesApi
) -> None:
    slow = scripted(look(100), {"blocks": [{"text": "late"}], "delay": 20})
    run = await start(small.client, slow, allowed_tools=["Glob"])
    await messages_api.until(lambda: len(messages_api.requests) == 2)
    sent = await small.client.post(
        f"/v1/sessions/{run['session_id']}/runs",
        json={"prompt": "/compact", "on_busy": "steer"},
    )
    assert sent.json()["steered_into"] == run["id"]
    messages_api.hurry()
    await finished(small.client, run["id"])

    async def is_done() -> bool:
        return kinds(await messages(small.client, run["session_id"])).count("success") == 2

    await until(is_done)
    shown = await messages(small.client, run["session_id"])
    assert "compact_boundary" in kinds(shown)
    await check_session(small.service.database, run["session_id"])


# -- what is known of the window --------------------------------------------------------------


async def test_clients_see_what_fills_the_window(small: Host) -> None:
    made = (await small.client.post("/v1/sessions", json={})).json()
    empty = (await small.client.get(f"/v1/sessions/{made['id']}/context")).json()
    assert (empty["rawMaxTokens"], empty["autoCompactThreshold"]) == (10_000, 8_000)
    assert empty["messageBreakdown"] == dict.fromkeys(empty["messageBreakdown"], 0)
    run = await filled(small.client)
    full = (await small.client.get(f"/v1/sessions/{run['session_id']}/context")).json()
    assert full["totalTokens"] == 100 + 10  # as counted for the newest response
    assert full["isAutoCompactEnabled"] is True
    assert full["messageBreakdown"]["summaryTokens"] > 0
    assert full["messageBreakdown"]["toolCallTokens"] > 0
    assert {category["name"] for category in full["categories"]} == {
        *("System prompt", "System tools", "MCP tools", "Memory files", "Messages"),
        *("Free space", "Autocompact buffer"),
    }
    assert full["apiUsage"]["input_tokens"] == 1_000 + 6_000 + 8_000 + 1_000 + 100


async def test_the_providers_word_for_a_window_counts(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    messages_api.windows = {"claude-sonnet-5": 12_345}
    async with host(make_settings()) as running:
        run = await start(running.client, scripted({"text": "hi"}))
        await finished(running.client, run["id"])

        async def is_known() -> bool:
            path = f"/v1/sessions/{run['session_id']}/context"
            return bool((await running.client.get(path)).json()["rawMaxTokens"] == 12_345)

        await until(is_known)


async def test_without_compaction_a_run_ends_where_its_window_does(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    off = {**SMALL, "auto_compact": False}
    async with host(make_settings(model=off)) as running:
        steps = scripted(look(1_000), look(8_900), {"text": "never"})
        run = await start(running.client, steps, allowed_tools=["Glob"])
        ended = await finished(running.client, run["id"])
    assert (ended["result_subtype"], ended["terminal_reason"]) == (
        "error_during_execution",
        "blocking_limit",
    )
    assert len(messages_api.requests) == 2


async def test_a_cancel_stops_a_compaction(small: Host, messages_api: MessagesApi) -> None:
    messages_api.summaries = [(ASKED, summary(delay=60.0))]
    run = await start(small.client, FILLING, allowed_tools=["Glob"])
    await messages_api.until(lambda: len(messages_api.requests) == 4)
    async with asyncio.timeout(10):
        await small.client.post(f"/v1/runs/{run['id']}/cancel?wait=5", json={})
        ended = await finished(small.client, run["id"])
    assert ended["end_reason"] == "cancelled"
    shown = await messages(small.client, run["session_id"])
    assert kinds(shown)[-4:] == ["status", "status", "user", "error_during_execution"]
    assert messages_api.disconnected == 1
    await check_session(small.service.database, run["session_id"])
