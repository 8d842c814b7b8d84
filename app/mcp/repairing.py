"""Messages that the package cannot read: read all the same, or turned into the error that they are.

What it cannot read it only reports, and whoever waits for the answer would wait for the whole time
limit. A program that cuts a text in the middle of a character writes half of a pair, which is no
JSON to the package; other answers have another shape than the protocol's.
"""

import json
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from app.domain.text import is_too_deep, printable_value

_INVALID_REQUEST = -32600


def repaired(error: ValidationError) -> SessionMessage | None:
    """Read what an error is about; None if it answers nothing."""
    value = _decoded(error.errors(include_url=False, include_context=False)[0]["input"])
    if not isinstance(value, dict):
        return None
    if not is_too_deep(value):
        try:
            message = jsonrpc_message_adapter.validate_python(printable_value(value), by_name=False)
        except ValidationError:
            pass
        else:
            return SessionMessage(message)
    request_id = value.get("id")
    if "method" in value or isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    data = ErrorData(code=_INVALID_REQUEST, message="The server's answer is malformed.")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=data))


def _decoded(text: object) -> Any:  # noqa: ANN401 - any JSON value
    if not isinstance(text, str | bytes):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
