"""A tool's output that a hook put in place of the tool's own. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from app.domain.tools import JsonValue, ToolResult, ToolSpec


def replaced(result: ToolResult, spec: ToolSpec, output: JsonValue) -> ToolResult | None:
    """Give the result with another output; None when that has not the shape of the tool's.

    A text or a list of content blocks is what the model reads. An object takes the place of the
    tool's own object: the tool says how it reads in words. Else the model reads its `content`, where
    that is a text or blocks (MCP servers' tools, subagents), and of any other object the JSON.
    """
    if isinstance(output, str):
        structured = output if isinstance(result.structured, str | None) else result.structured
        return replace(result, content=output, structured=structured)
    if isinstance(output, list):
        return replace(result, content=output, structured=output) if _are_texts(output) else None
    if not isinstance(output, Mapping):
        return None
    if spec.words_of is not None:
        words = spec.words_of(output)
        return None if words is None else replace(result, content=words, structured=output)
    own: Any = result.structured
    if not isinstance(own, Mapping) or not output.keys() >= own.keys():
        return None
    content = output.get("content")
    if isinstance(content, str) or (isinstance(content, list) and _are_texts(content)):
        return replace(result, content=content, structured=output)
    return replace(result, content=orjson.dumps(output).decode(), structured=output)


def _are_texts(blocks: list[Any]) -> bool:
    return all(
        isinstance(block, dict)
        and block.keys() == {"type", "text"}
        and block["type"] == "text"
        and isinstance(block["text"], str)
        for block in blocks
    )
