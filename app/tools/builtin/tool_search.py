"""ToolSearch: find tools of which the model knows only the names so far."""

from typing import Annotated

from pydantic import Field, WithJsonSchema

from app.domain.tools import ToolFacts, ToolResult, ToolSpec
from app.tools.open_file import compute
from app.tools.paths import shown
from app.tools.ranking import ranked
from app.tools.tool import ToolContext, ToolInput, tool

_SELECT = "select:"


class ToolSearchInput(ToolInput):
    query: str
    """Words that describe what you need (a `+` before one that must be there), or "select:A,B" with \
names of tools."""
    max_results: Annotated[
        int, Field(ge=1, le=100), WithJsonSchema({"type": "number", "minimum": 1, "maximum": 100})
    ] = 5
    """How many tools to load at most; names that you select count in any case."""


@tool(
    name="ToolSearch",
    description=(
        "Loads further tools. You were told the names of some tools without their definitions: "
        "before you call one of them, load it here, by its name (select:NAME) or by words that "
        "describe it. From then on you can call it like any other."
    ),
    input_model=ToolSearchInput,
    read_only=True,
)
async def tool_search_tool(given: ToolSearchInput, context: ToolContext) -> ToolResult:
    """Answer with references, which the provider replaces by the tools. Finding none is no failure."""
    deferred = [spec for spec in context.catalogue if spec.deferred]
    found = await _found(given, context, deferred)
    names = [spec.name for spec in found]
    structured = {
        "matches": names,
        "query": given.query,
        "total_deferred_tools": len(deferred),
    }
    if not names:
        text = (
            f"No tool fits {shown(given.query)!r}. {len(deferred)} can be loaded: try other words."
        )
        return ToolResult(text, structured=structured)
    return ToolResult(
        [{"type": "tool_reference", "tool_name": name} for name in names],
        structured=structured,
        facts=ToolFacts(loaded=tuple(names)),
        notes=(f"Loaded: {', '.join(names)}.",),
    )


async def _found(
    given: ToolSearchInput, context: ToolContext, deferred: list[ToolSpec]
) -> list[ToolSpec]:
    query = given.query.strip()
    if query.lower().startswith(_SELECT):
        offered = {spec.name: spec for spec in context.catalogue}
        names = dict.fromkeys(name.strip() for name in query[len(_SELECT) :].split(","))
        return [offered[name] for name in names if name in offered]
    if named := [spec for spec in deferred if spec.name.lower() == query.lower()]:
        return named
    size = sum(len(spec.description) for spec in deferred)
    return await compute(lambda: ranked(query, deferred, given.max_results), size_bytes=size)
