"""WebSearch: the model provider's own search, asked for in a request beside the conversation."""

from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Annotated, Any

import orjson
from pydantic import Field

from app.domain.blocks import Block, TextBlock
from app.domain.model import ModelResponse, SideRequest
from app.domain.tools import JsonValue, ToolResult
from app.errors import ToolFailed
from app.tools.builtin.output_words import search_words
from app.tools.tool import ToolContext, ToolInput, tool

MAX_SEARCHES = 8
"""By one call: each has a price."""
_DESCRIPTION = """\
Search the web. You get what was found, as text and as links; read a page with WebFetch. Results \
can be kept to some domains, or kept free of some, but not both. Name your sources to the user."""
_SYSTEM = "You search the web for what you are asked, and report what you find with its sources."
_REMINDER = "When you use these results, name the sources to the user as Markdown links."
_NO_SEARCH = (
    "The model provider of this run offers no web search. If you know an address, read it with "
    "WebFetch; else go on without, and say so."
)

Domains = Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=100)]


class WebSearchInput(ToolInput):
    query: Annotated[str, Field(min_length=2)]
    """What to search for."""
    allowed_domains: Domains | None = None
    """Only results from these domains."""
    blocked_domains: Domains | None = None
    """No results from these domains."""


@tool(
    name="WebSearch",
    description=_DESCRIPTION,
    input_model=WebSearchInput,
    words_of=search_words,
    read_only=True,
    reaches_out=True,
    asks_model=True,
)
async def web_search_tool(given: WebSearchInput, context: ToolContext) -> ToolResult:
    """Have the provider search."""
    if given.allowed_domains and given.blocked_domains:
        raise ToolFailed(
            "Error: give allowed_domains or blocked_domains, not both in one search.", wrapped=True
        )
    began_s = monotonic()
    response = await context.ask(_request(given))
    if not any(_is_search(block) for block in response.blocks):
        raise ToolFailed(_NO_SEARCH)
    results = list(_results(response))
    structured = {
        "query": given.query,
        "results": results,
        "durationSeconds": round(monotonic() - began_s, 3),
        "searchCount": sum(not isinstance(result, str) for result in results),
    }
    return ToolResult(_text(given.query, response), structured=structured)


def _request(given: WebSearchInput) -> SideRequest:
    search: dict[str, JsonValue] = {
        "type": "web_search_20250305",
        "name": "web_search",
        "max_uses": MAX_SEARCHES,
    }
    if given.allowed_domains:
        search["allowed_domains"] = given.allowed_domains
    if given.blocked_domains:
        search["blocked_domains"] = given.blocked_domains
    return SideRequest(
        _SYSTEM,
        f"Search the web for: {given.query}",
        tools=(orjson.dumps(search),),
        tool_choice={"type": "tool", "name": "web_search"},
    )


def _is_search(block: Block) -> bool:
    return block.type in {"server_tool_use", "web_search_tool_result"}


def _text(query: str, response: ModelResponse) -> str:
    parts = [f'Web search results for "{query}":']
    for block in response.blocks:
        if isinstance(block, TextBlock):
            parts.append(block.text)
        elif block.type == "web_search_tool_result":
            found = _found(block)
            parts.append(
                f"Web search error: {found}"
                if isinstance(found, str)
                else f"Links: {orjson.dumps(found).decode()}"
            )
    return "\n\n".join([*(part for part in parts if part.strip()), _REMINDER])


def _results(response: ModelResponse) -> Iterator[JsonValue]:
    for block in response.blocks:
        if isinstance(block, TextBlock):
            if block.text.strip():
                yield block.text
        elif block.type == "web_search_tool_result":
            found = _found(block)
            links = [] if isinstance(found, str) else found
            yield {"tool_use_id": _extra(block).get("tool_use_id", ""), "content": links}


def _found(block: Block) -> list[dict[str, str]] | str:
    """Give the links of a search, or the code of its error."""
    content = _extra(block).get("content")
    if isinstance(content, list):
        return [
            {"title": str(link.get("title", "")), "url": str(link.get("url", ""))}
            for link in content
            if isinstance(link, dict)
        ]
    code = content.get("error_code") if isinstance(content, dict) else None
    return str(code or "unavailable")


def _extra(block: Block) -> Mapping[str, Any]:
    return block.model_extra or {}
