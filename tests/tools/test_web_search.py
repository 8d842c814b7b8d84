"""WebSearch: what the provider is asked, and what the agent is told of its answer."""

from typing import Any

import orjson
import pytest

from app.errors import ModelRejected
from app.tools.tool import Beyond
from tests.tools.asked import Small
from tests.tools.desk import Desk, text_of


def found(*links: tuple[str, str], tool_use_id: str = "srvtoolu_1") -> dict[str, Any]:
    content = [
        {"type": "web_search_result", "title": title, "url": url, "encrypted_content": "x"}
        for title, url in links
    ]
    return {"type": "web_search_tool_result", "tool_use_id": tool_use_id, "content": content}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}


def searching(desk: Desk, *blocks: dict[str, Any]) -> Small:
    small = Small(list(blocks))
    desk.beyond = Beyond(side=small)
    return small


async def test_the_provider_searches_and_its_answer_is_told_in_order(desk: Desk) -> None:
    small = searching(desk, said("I look."), USE, found(("Cats", "https://c.test/")), said("Done."))
    result = await desk.call("WebSearch", query="cats")
    assert text_of(result).split("\n\n")[:-1] == [
        'Web search results for "cats":',
        "I look.",
        'Links: [{"title":"Cats","url":"https://c.test/"}]',
        "Done.",
    ]
    assert "sources" in text_of(result).split("\n\n")[-1]
    assert result.structured == {
        "query": "cats",
        "results": [
            "I look.",
            {"tool_use_id": "srvtoolu_1", "content": [{"title": "Cats", "url": "https://c.test/"}]},
            "Done.",
        ],
        "durationSeconds": result.structured["durationSeconds"],
        "searchCount": 1,
    }
    (request,) = small.requests
    assert [orjson.loads(tool) for tool in request.tools] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    ]
    assert request.tool_choice == {"type": "tool", "name": "web_search"}
    assert "cats" in request.prompt


@pytest.mark.parametrize("filter_name", ["allowed_domains", "blocked_domains"])
async def test_a_filter_of_domains_goes_to_the_provider(desk: Desk, filter_name: str) -> None:
    small = searching(desk, USE, found())
    await desk.call("WebSearch", query="cats", **{filter_name: ["a.test"]})
    assert orjson.loads(small.requests[0].tools[0])[filter_name] == ["a.test"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"allowed_domains": ["a.test"], "blocked_domains": ["b.test"]}, "not both"),
        ({"query": "c"}, "`query`"),
        ({"allowed_domains": "a.test"}, "`allowed_domains`"),
        ({"allowed_domains": [1]}, "`allowed_domains.0`"),
    ],
)
async def test_a_search_that_cannot_be_made_is_refused(
    desk: Desk, given: dict[str, Any], says: str
) -> None:
    small = searching(desk)
    result = await desk.call_with("WebSearch", {"query": "cats", **given})
    assert result.is_error
    assert text_of(result).startswith("<tool_use_error>")
    assert says in text_of(result)
    assert small.requests == []


async def test_an_error_of_a_search_is_a_line_and_no_failure_of_the_call(desk: Desk) -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    searching(
        desk,
        USE,
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": error},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_2", "content": [7, {}]},
    )
    result = await desk.call("WebSearch", query="cats")
    assert result.is_error is None
    assert "max_uses_exceeded" in text_of(result)
    assert result.structured["searchCount"] == 2


@pytest.mark.parametrize(
    ("small", "says"),
    [
        (Small([said("I know of cats.")]), "offers no web search"),
        (Small(error=ModelRejected("no such tool", category="invalid_request")), "no such tool"),
    ],
)
async def test_a_provider_that_cannot_search_is_a_clear_error(
    desk: Desk, small: Small, says: str
) -> None:
    desk.beyond = Beyond(side=small)
    result = await desk.call("WebSearch", query="cats")
    assert result.is_error
    assert says in text_of(result)
