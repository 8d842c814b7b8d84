"""What a tool gave, fit for the journal and the model: tools are other people's too."""

from dataclasses import replace

from app.domain.text import MAX_JSON_DEPTH, is_plain, printable, printable_value
from app.domain.tools import ToolFacts, ToolResult

_SHOWN = {"image": "source", "document": "source", "text": "text", "tool_reference": "tool_name"}
"""Blocks that a result may hold, and what makes each of them one: another kind, or half of one, would
have the provider refuse every later request."""


def is_fit(result: ToolResult) -> bool:
    """Say at a look whether a result is fit as it is, as most are; `check_result` says it of all others."""
    return (
        type(result) is ToolResult
        and type(result.facts) is ToolFacts
        and isinstance(result.content, str)
        and result.content != ""
        and result.notes == ()
        and is_plain(result.content)
        and is_plain(result.structured)
    )


def check_result(result: object) -> None:
    """Raise `TypeError` for what is no result, or could not be stored or sent."""
    if not isinstance(result, ToolResult) or not isinstance(result.facts, ToolFacts):
        raise TypeError(f"a tool gives a ToolResult, not a {type(result).__name__}")
    content: object = result.content
    is_fit = isinstance(content, str) or (
        isinstance(content, list) and all(map(_is_block, content)) and _is_json(content)
    )
    if not is_fit:
        raise TypeError("the content is neither a text nor a list of content blocks")
    if not _is_json(result.structured):
        raise TypeError("the structured form is no JSON, or nests too deep")
    if not all(isinstance(note, str) for note in result.notes):
        raise TypeError("a note is no text")


def presentable(result: ToolResult, name: str) -> ToolResult:
    """Give a result without NULs and surrogates, and never an empty one."""
    content = printable_value(result.content) or f"({name} completed with no output)"
    structured = printable_value(result.structured)
    if content is result.content and structured is result.structured and not result.notes:
        return result
    notes = tuple(map(printable, result.notes))
    return replace(result, content=content, structured=structured, notes=notes)


def _is_block(block: object) -> bool:
    if not isinstance(block, dict):
        return False
    part = _SHOWN.get(block.get("type", ""))
    kind = dict if part == "source" else str
    return part is not None and isinstance(block.get(part), kind)


def _is_json(value: object, levels: int = MAX_JSON_DEPTH) -> bool:
    if value is None or isinstance(value, str | int | float):
        return True
    if levels == 0:
        return False
    if isinstance(value, dict):
        return all(
            isinstance(key, str) and _is_json(item, levels - 1) for key, item in value.items()
        )
    return isinstance(value, list | tuple) and all(_is_json(item, levels - 1) for item in value)
