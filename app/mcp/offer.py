"""Which of a server's tools are offered, under which names, and what they must not change. Pure.

A tool list is a text that a stranger wrote. One bad entry must not spoil a run: the Messages API
refuses a whole request for one schema, so a tool that it would not take is left out, and why is told.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from jsonschema import Draft202012Validator

from app.compaction.sizes import block_tokens
from app.domain.mcp import MAX_NAME, ServerPin, tool_name
from app.domain.text import is_too_deep, printable, printable_value
from app.domain.tools import ToolSpec
from app.mcp.listing import MAX_TOOLS, ListedTool

MAX_SCHEMA_BYTES = 65_536
MAX_DESCRIPTION = 4_096
"""Characters of a description; what is longer is cut."""
CHANGED = (
    "it is not as it was when this session first saw it, or was not there then. It can be used once "
    "the server's list is accepted: set `accept_tools` of the server to its `tools_hash`"
)
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_AT_THE_TOP = ("oneOf", "anyOf", "allOf")


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the model is told of it."""

    name: str
    listed: ListedTool
    description: str
    schema: Mapping[str, Any]
    tokens: int
    """Estimated size in a request."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A server's tools, judged."""

    tools: tuple[OfferedTool, ...]
    withheld: Mapping[str, str]
    """By the server's own names, printable, and why."""
    tools_hash: str
    pin: ServerPin
    """What the session remembers from now on."""


def judge(
    server: str,
    listed: Iterable[ListedTool],
    *,
    identity: str,
    pin: ServerPin | None,
    accepted: str | None,
    taken: Collection[str] = (),
) -> Offer:
    """Decide what is offered. `taken` are names of other tools, which none may have.

    Costs up to a second of processor time for a list made to cost much: not for an event loop.
    """
    tools = tuple(listed)
    # Of several with one name the first is the one that is pinned, and no other is offered.
    firsts = {printable(tool.name): tool for tool in reversed(tools)}
    hashes = {own: tool_hash(tool) for own, tool in firsts.items()}
    whole = list_hash(hashes)
    is_other = pin is None or pin.identity != identity
    # A hash that was given beforehand binds the first use too.
    is_free = is_other and (accepted is None or accepted == "any")
    if is_free or accepted in {"any", whole}:
        pin = ServerPin(identity, hashes)
    elif is_other:
        pin = ServerPin(identity)
    assert pin is not None  # noqa: S101 - for the type checker
    offered: dict[str, OfferedTool] = {}
    withheld: dict[str, str] = {}
    for index, tool in enumerate(tools):
        name, own = tool_name(server, tool.name), printable(tool.name)
        if index >= MAX_TOOLS:
            why = f"a server may have {MAX_TOOLS} tools"
        elif pin.tools.get(own) != hashes[own]:
            why = CHANGED
        elif name in offered or name in taken or tool is not firsts[own]:
            why = f"another tool has the name {name}"
        else:
            why = _unfit(tool) or ""
        if why:
            withheld.setdefault(own[:MAX_NAME], why)
        else:
            offered[name] = _offered(name, tool)
    return Offer(tuple(offered.values()), withheld, whole, pin)


def _offered(name: str, tool: ListedTool) -> OfferedTool:
    description, schema = _description(tool), printable_value(tool.input_schema)
    tokens = block_tokens(ToolSpec(name, description, schema).encoded)
    return OfferedTool(name, tool, description, schema, tokens)


def tool_hash(tool: ListedTool) -> str:
    """Tell whether a tool is the same: all that the model and the permissions see of it counts."""
    told = [tool.name, tool.description, tool.input_schema, tool.read_only]
    if tool.needs_person:  # else the hash is the one that sessions remember from before
        told.append(tool.needs_person)
    return hashlib.sha256(_json(told)).hexdigest()[:32]


def list_hash(hashes: Mapping[str, str]) -> str:
    """Tell whether a list of tools is the same, in whatever order it comes."""
    return f"sha256:{hashlib.sha256(_json(sorted(hashes.items()))).hexdigest()}"


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(printable_value(value), option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):  # nests deeper, or has larger numbers, than is written
        return repr(value)[:1_000_000].encode(errors="backslashreplace")


def _unfit(tool: ListedTool) -> str | None:
    """Say why the Messages API, or a reader, would not take a tool."""
    schema = tool.input_schema
    if not tool.name.strip():
        return "it has no name"
    if is_too_deep(schema):
        return "its schema nests too deep"
    text = _json(schema)
    if len(text) > MAX_SCHEMA_BYTES:
        return f"its schema has more than {MAX_SCHEMA_BYTES} bytes"
    if schema.get("type") != "object":
        return "its schema is not that of an object"
    if found := [name for name in _AT_THE_TOP if name in schema]:
        return f"its schema has {found[0]} at the top, which the Messages API does not take"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return "the properties of its schema are no object"
    if bad := [name for name in properties if not _PROPERTY.fullmatch(name)]:
        return f"the Messages API does not take its parameter {printable(bad[0])[:64]!r}"
    return _malformed(schema)


def _malformed(schema: Mapping[str, Any]) -> str | None:
    try:
        draft = Draft202012Validator(Draft202012Validator.META_SCHEMA)
        error = next(iter(draft.iter_errors(schema)), None)
    except RecursionError:
        return "its schema nests too deep"
    return f"its schema is not valid: {printable(error.message)[:200]}" if error else None


def _description(tool: ListedTool) -> str:
    text = printable(tool.description)
    return text if len(text) <= MAX_DESCRIPTION else text[:MAX_DESCRIPTION] + " … [cut]"
