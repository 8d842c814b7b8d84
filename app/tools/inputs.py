"""Checking what a model put into a call, and telling it what is wrong.

Models write numbers and booleans as strings now and then; these are taken. Everything else must
have the type that the schema names.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.domain.text import printable
from app.domain.tools import JsonValue
from app.errors import ToolFailed
from app.tools.tool import InputT, Tool

UNPARSED = "__unparsedToolInput"
"""Where the model client leaves input that was no JSON object."""

_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?")
_MAX_ISSUES = 20
_MAX_NAME = 100
_MAX_SCALAR = 40


def parse_input(tool: Tool[InputT], raw: Mapping[str, JsonValue]) -> InputT:
    """Give the validated input. Raises `ToolFailed` with one line for each problem."""
    name = tool.spec.name
    if UNPARSED in raw:
        raise ToolFailed(
            f"InputValidationError: {name} was called with input that could not be parsed as "
            "JSON. Send one complete JSON object.",
            wrapped=True,
        )
    if tool.input_model.model_config.get("extra") == "forbid":  # else the schema alone says it
        with suppress(ValidationError):  # most are right as they are
            return tool.input_model.model_validate(raw, strict=True)
    properties = tool.spec.input_schema.get("properties", {})
    given = {key: _coerced(value, properties.get(key, {})) for key, value in raw.items()}
    try:
        return tool.input_model.model_validate(given, strict=True)
    except ValidationError as error:
        issues = error.errors(include_url=False, include_context=False)
    lines = [_issue(issue, properties) for issue in issues[:_MAX_ISSUES]]
    raise ToolFailed(
        f"InputValidationError: {name} failed due to the following issue(s):\n" + "\n".join(lines),
        wrapped=True,
    )


def _coerced(value: JsonValue, schema: object) -> JsonValue:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(kind, str):  # a schema of somebody else's
        return value
    if kind == "boolean" and value in ("true", "false"):
        return value == "true"
    if kind not in {"integer", "number"} or isinstance(value, bool):
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value) if "." in value else int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON knows one kind of number: 2.0 is 2
    return value


def _issue(issue: ErrorDetails, properties: Mapping[str, Any]) -> str:
    name = printable(".".join(str(part) for part in issue["loc"]))[:_MAX_NAME]
    if issue["type"] == "missing":
        return f"The required parameter `{name}` is missing"
    if issue["type"] == "extra_forbidden":
        return f"An unexpected parameter `{name}` was provided"
    value = issue["input"]
    schema = properties.get(name, {})
    allowed = schema.get("enum")
    if allowed:
        return f"The parameter `{name}` must be one of {', '.join(allowed)}; {_received(value)}"
    expected, received = schema.get("type"), _kind(value)
    if expected and expected != received and (expected, received) != ("number", "integer"):
        return f"The parameter `{name}` must be of type {expected}; {_received(value)}"
    return f"The parameter `{name}` is not valid: {issue['msg']}; {_received(value)}"


def _received(value: JsonValue) -> str:
    kind = _kind(value)
    if kind in {"boolean", "integer", "number"}:
        return f"got {kind} {str(value)[:_MAX_SCALAR]}"
    return f"got {kind}"


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"
