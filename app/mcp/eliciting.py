"""What a server asks in the middle of a call."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import mcp_types as types
import orjson

from app.domain.mcp import Elicitation, Elicited
from app.domain.text import is_too_deep, printable, printable_value
from app.domain.tools import ToolCall

Ask: TypeAlias = Callable[[ToolCall, Elicited], Awaitable[Elicitation]]
"""Puts a question to somebody, for a call that waits for the answer."""

CALL: ContextVar[ToolCall] = ContextVar("mcp_call")
"""The call that is being made."""
MAX_MESSAGE = 10_000
MAX_SCHEMA_BYTES = 65_536


def elicited(
    params: types.ElicitRequestParams, server: str, *, can_repeat: bool
) -> Elicited | None:
    """Give the question; None for one that nobody can be shown."""
    message = printable(params.message)[:MAX_MESSAGE]
    if isinstance(params, types.ElicitRequestURLParams):
        url = printable(params.url)
        is_web = url.startswith(("https://", "http://")) and len(url) <= MAX_MESSAGE
        return Elicited(server, message, url=url, can_repeat=can_repeat) if is_web else None
    schema = params.requested_schema
    if is_too_deep(schema) or len(orjson.dumps(printable_value(schema))) > MAX_SCHEMA_BYTES:
        return None
    return Elicited(server, message, printable_value(schema), can_repeat=can_repeat)


def elicit_result(answer: Elicitation) -> types.ElicitResult:
    """Give the answer as the server takes it."""
    content = None if answer.content is None else dict(answer.content)
    return types.ElicitResult(action=answer.action, content=content)


@contextmanager
def calling(call: ToolCall) -> Iterator[None]:
    """Say which call is being made in the block."""
    token = CALL.set(call)
    try:
        yield
    finally:
        CALL.reset(token)
