"""Deferred tools: told by name, found by ToolSearch, and then there for the rest of the session."""

from typing import Any

import pytest

from app.domain.tools import ToolResult
from app.tools.tool import Tool, ToolContext, ToolInput, tool
from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import host
from tests.runs.prompts import finished, messages, scripted, start

Json = dict[str, Any]


class PlaceInput(ToolInput):
    city: str
    """Which one."""


async def _fine(given: PlaceInput, _: ToolContext) -> ToolResult:
    return ToolResult(f"{given.city}: fine")


def deferred(name: str) -> Tool[Any]:
    words = f"Tells about a place: {name}."
    return tool(
        name=name, description=words, input_model=PlaceInput, read_only=True, deferred=True
    )(_fine)


WEATHER, TIDES = deferred("Weather"), deferred("Tides")
SEARCH = {"tool": "ToolSearch", "input": {"query": "select:Weather"}}


def call(name: str, **given: Any) -> Json:
    return {"tool": name, "input": given}


def held(body: Json) -> tuple[list[str], list[str]]:
    """Names of the tools that a request holds in full, and of those that it defers."""
    tools = body["tools"]
    assert "cache_control" in [t for t in tools if not t.get("defer_loading")][-1]
    assert all("cache_control" not in t for t in tools if t.get("defer_loading"))
    full = [t["name"] for t in tools if not t.get("defer_loading")]
    return full, [t["name"] for t in tools[len(full) :]]


def bare(value: Any) -> Any:
    """Leave the cache marks out, which move on."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if k != "cache_control"}
    return [bare(item) for item in value] if isinstance(value, list) else value


def assert_prefix(earlier: Json, later: Json) -> None:
    """What the provider cached of the earlier request stands at the beginning of the later one."""
    assert held(earlier)[0] == held(later)[0]
    assert bare(earlier["tools"]) == bare(later["tools"])[: len(earlier["tools"])]
    assert earlier["system"] == later["system"]
    assert bare(later["messages"])[: len(earlier["messages"])] == bare(earlier["messages"])


def results(told: list[Json]) -> list[Any]:
    return [
        block
        for message in told
        if message["type"] == "user" and not message.get("isReplay")
        for block in message["message"]["content"]
        if isinstance(block, dict) and block["type"] in {"tool_result", "text"}
    ]


@pytest.mark.requirement("tools:search")
async def test_what_was_found_stays_found_on_other_hosts_and_after_a_compaction(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    tools = [WEATHER, TIDES]
    async with (
        host(make_settings(), extra_tools=tools) as a,
        host(make_settings(), extra_tools=tools) as b,
    ):
        steps = [
            call("Weather", place="Bern"),
            SEARCH,
            call("Weather", city="Bern"),
            {"text": "fine"},
        ]
        run = await start(a.client, scripted(*steps))
        await finished(a.client, run["id"])
        session_id = run["session_id"]
        first, second, third, fourth = messages_api.bodies()
        told = await messages(a.client, session_id)
        assert {"ToolSearch", "Weather", "Tides"} <= set(told[0]["tools"])
        full, waiting = held(first)
        assert "ToolSearch" in full
        assert not {"Weather", "Tides"} & set(full)
        assert waiting == ["deferred_tools"]
        announced = first["messages"][0]["content"][0]["text"]
        assert "\nWeather\nTides\n" in announced
        assert held(third)[1] == held(fourth)[1] == ["deferred_tools", "Weather"]
        for earlier, later in ((first, second), (second, third), (third, fourth)):
            assert_prefix(earlier, later)
        betas = [request.headers["anthropic-beta"] for request in messages_api.requests]
        assert set(betas) == {"advanced-tool-use-2025-11-20"}

        refused, reference, note, fine = results(told)
        assert "select:Weather" in refused["content"]
        assert refused["content"].endswith("</tool_use_error>")
        assert reference["content"] == [{"type": "tool_reference", "tool_name": "Weather"}]
        assert note == {"type": "text", "text": "Loaded: Weather."}
        assert fine["content"] == "Bern: fine"
        assert {
            "matches": ["Weather"],
            "query": "select:Weather",
            "total_deferred_tools": 2,
        } in [message.get("tool_use_result") for message in told]

        again = await start(b.client, scripted({"text": "yes"}), session_id=session_id)
        await finished(b.client, again["id"])
        assert_prefix(fourth, messages_api.bodies()[-1])

        compacted = await b.client.post(f"/v1/sessions/{session_id}/compact", json={})
        await finished(b.client, compacted.json()["run"]["id"])
        assert_prefix(fourth, messages_api.bodies()[-1])
        after = await start(
            a.client,
            scripted(call("Weather", town="x"), {"text": "still"}),
            session_id=session_id,
        )
        await finished(a.client, after["id"])
        body = messages_api.bodies()[-1]
        assert held(body) == ([*full, "Weather"], ["deferred_tools"])
        assert "tool_reference" not in str(body["messages"])
        assert "\nWeather\nTides\n" in body["messages"][0]["content"][0]["text"]
        assert "select:Weather" not in str(results(await messages(a.client, session_id))[-1])


async def test_without_tool_search_all_tools_are_there_from_the_beginning(
    make_settings: MakeSettings, messages_api: MessagesApi
) -> None:
    async with host(make_settings(), extra_tools=[WEATHER]) as a:
        found = await start(a.client, scripted(SEARCH, {"text": "found"}))
        await finished(a.client, found["id"])
        run = await start(
            a.client,
            scripted(call("Weather", city="Bern"), {"text": "fine"}),
            session_id=found["session_id"],
            model="claude-haiku-4-5",
        )
        await finished(a.client, run["id"])
        body = messages_api.bodies()[-1]
        full, waiting = held(body)
        assert "Weather" in full
        assert "ToolSearch" not in full
        assert waiting == []
        assert "anthropic-beta" not in messages_api.requests[-1].headers
        assert "tool_reference" not in str(body["messages"])
        assert "ToolSearch loads these no longer:\nWeather" in str(body["messages"]).replace(
            "\\n", "\n"
        )
        init = [m for m in await messages(a.client, run["session_id"]) if m["type"] == "system"]
        assert "ToolSearch" not in init[-1]["tools"]
    async with host(make_settings(model={"tool_search": False}), extra_tools=[WEATHER]) as off:
        run = await start(off.client, scripted({"text": "x"}))
        await finished(off.client, run["id"])
        assert "Weather" in held(messages_api.bodies()[-1])[0]
    async with host(make_settings()) as plain:  # the package is gone
        run = await start(plain.client, scripted({"text": "x"}), session_id=found["session_id"])
        await finished(plain.client, run["id"])
        body = messages_api.bodies()[-1]
        assert "tool_reference" not in str(body["messages"])
        assert not {"Weather", "ToolSearch"} & {tool["name"] for tool in body["tools"]}
