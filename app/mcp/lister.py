"""What a server lists, asked for page by page, and put into our own words."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import mcp_types as types
from mcp.client.client import Client

from app.domain.text import printable, printable_value
from app.mcp.listing import (
    MAX_INSTRUCTIONS,
    MAX_PAGES,
    MAX_PROMPTS,
    MAX_RESOURCES,
    MAX_TITLE,
    MAX_TOOLS,
    ListedPrompt,
    ListedTool,
    Listing,
)

NEEDS_PERSON = "anthropic/requiresUserInteraction"
"""In a tool's `_meta`: each call is put to a person, whatever mode and rules say."""


async def list_all(client: Client) -> Listing:
    """Ask for everything that the server says it has. Raises what the client raises."""
    has, info = client.server_capabilities, client.server_info
    tools: list[ListedTool] = []
    if has.tools:
        async with aclosing(_pages(client.list_tools)) as pages:
            async for page in pages:
                tools += map(_listed, page.tools)
                if len(tools) > MAX_TOOLS:
                    break
    prompts: list[ListedPrompt] = []
    if has.prompts:
        async with aclosing(_pages(client.list_prompts)) as pages:
            async for page in pages:
                prompts += map(_prompt, page.prompts)
                if len(prompts) > MAX_PROMPTS:
                    break
    resources: list[Mapping[str, Any]] = []
    if has.resources:
        async with aclosing(_pages(client.list_resources)) as pages:
            async for page in pages:
                resources += (_json(resource) for resource in page.resources)
                if len(resources) > MAX_RESOURCES:
                    break
    return Listing(
        tuple(tools),
        tuple(prompts[:MAX_PROMPTS]),
        tuple(resources[:MAX_RESOURCES]),
        has_resources=bool(has.resources),
        instructions=printable(client.instructions or "")[:MAX_INSTRUCTIONS],
        server={
            "name": printable(info.name)[:200],
            "version": printable(info.version)[:100],
        }
        if info
        else {},
    )


async def _pages(ask: Callable[..., Awaitable[Any]]) -> AsyncGenerator[Any]:
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask(cursor=cursor)
        yield page
        cursor = page.next_cursor
        if not cursor:
            return


def _listed(tool: types.Tool) -> ListedTool:
    hints = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        read_only=bool(hints and hints.read_only_hint),
        title=printable(tool.title or (hints and hints.title) or "")[:MAX_TITLE],
        needs_person=bool(tool.meta and tool.meta.get(NEEDS_PERSON)),
    )


def _prompt(prompt: types.Prompt) -> ListedPrompt:
    return ListedPrompt(prompt.name, tuple(given.name for given in prompt.arguments or ()))


def _json(resource: types.Resource) -> Mapping[str, Any]:
    told: dict[str, Any] = printable_value(
        resource.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"icons", "meta"}
        )
    )
    return told
