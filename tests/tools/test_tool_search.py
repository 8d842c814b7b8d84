"""ToolSearch: tools by name and by words, as references."""

from typing import Any

import pytest

from app.domain.tools import ToolFacts, ToolResult, ToolSpec
from app.tools.builtin import BUILTIN_TOOLS
from app.tools.ranking import ranked
from app.tools.tool import Tool, ToolContext, ToolInput, tool
from tests.tools.desk import Desk, blocks_of, text_of

OFFERS = {
    "mcp__github__create_issue": "Create a new issue in a repository",
    "mcp__github__list_issues": "List the issues of a repository",
    "mcp__slack__send_message": "Send a message to a channel",
    "readCalendar": "Shows events; searching them by date",
    "weather": "Tell the weather of a city",
    "weather_map": "Draw it",
}


class Nothing(ToolInput):
    pass


async def _run(_: Nothing, __: ToolContext) -> ToolResult:
    return ToolResult("done")


DEFERRED: tuple[Tool[Any], ...] = tuple(
    tool(name=name, description=words, input_model=Nothing, deferred=True)(_run)
    for name, words in OFFERS.items()
)
SPECS = [each.spec for each in DEFERRED]


@pytest.fixture
def search(desk: Desk) -> Desk:
    desk.tools = (*BUILTIN_TOOLS, *DEFERRED)
    return desk


def references(result: ToolResult) -> list[str]:
    assert not result.is_error
    blocks = blocks_of(result)
    assert all(block.keys() == {"type", "tool_name"} for block in blocks)
    assert {block["type"] for block in blocks} == {"tool_reference"}
    return [block["tool_name"] for block in blocks]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("issue", ["mcp__github__list_issues", "mcp__github__create_issue"]),
        ("create github", ["mcp__github__create_issue", "mcp__github__list_issues"]),
        ("github +create", ["mcp__github__create_issue"]),
        ("+issue +list", ["mcp__github__list_issues"]),
        ("message", ["mcp__slack__send_message"]),
        ("search an event", ["readCalendar"]),
        ("calend", ["readCalendar"]),
        ("READ calendar", ["readCalendar"]),
        ("weather city", ["weather", "weather_map"]),
        ("Weather", ["weather"]),  # a name
        ("select:weather_map, readCalendar,nope", ["weather_map", "readCalendar"]),
        ("select:Read,weather", ["Read", "weather"]),
    ],
)
async def test_tools_are_found_the_best_first(search: Desk, query: str, names: list[str]) -> None:
    result = await search.call("ToolSearch", query=query)
    assert references(result) == names
    assert result.structured == {"matches": names, "query": query, "total_deferred_tools": 6}
    assert result.facts == ToolFacts(loaded=tuple(names))
    assert result.notes == (f"Loaded: {', '.join(names)}.",)


@pytest.mark.parametrize(
    "query",
    [
        *("", "   ", "zebra", "+zebra issue", "select:", "select:nope", "+"),
        *('"', "'; DROP TABLE tools; --", "NEAR(", "AND OR NOT", "*", "name:zebra", "x" * 100_000),
        "zebra " * 20_000,
    ],
)
async def test_finding_nothing_is_an_answer(search: Desk, query: str) -> None:
    result = await search.call("ToolSearch", query=query)
    assert not result.is_error
    assert "No tool fits" in text_of(result)
    assert len(text_of(result)) < 500
    assert result.structured["matches"] == []
    assert not result.facts


async def test_the_number_of_tools_is_bounded_but_not_that_of_names(search: Desk) -> None:
    assert references(await search.call("ToolSearch", query="issue", max_results="1")) == [
        "mcp__github__list_issues"
    ]
    two = await search.call("ToolSearch", query="select:weather,readCalendar", max_results=1)
    assert references(two) == ["weather", "readCalendar"]
    for most in (0, -1, 2.5, 101):
        assert (await search.call("ToolSearch", query="a", max_results=most)).is_error


async def test_without_deferred_tools_names_can_still_be_selected(desk: Desk) -> None:
    assert references(await desk.call("ToolSearch", query="select:Bash")) == ["Bash"]
    assert "0 can be loaded" in text_of(await desk.call("ToolSearch", query="bash"))


def test_many_tools_are_ranked() -> None:
    many = [ToolSpec(f"tool_{n}", "the same words", {}) for n in range(5_000)]
    many[4_321] = ToolSpec("tool_needle", "words of a needle", {})
    assert [spec.name for spec in ranked("same needle", many, 3)] == [
        "tool_needle",
        "tool_0",
        "tool_1",
    ]
