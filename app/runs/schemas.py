"""JSON Schemas among a client's options: refused at once when they cannot work."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from app.domain.options import AgentOptions
from app.errors import ValidationFailed
from app.tools.json_schema import SchemaRefused, check_schema, pointer


async def check_schemas(options: AgentOptions) -> None:
    """Raise `ValidationFailed` with the pointer to what is wrong in a schema, if something is."""
    if options.output_format is not None:
        await _check(options.output_format.json_schema, "/options/output_format/schema")
    for index, tool in enumerate(options.client_tools):
        await _check(tool.input_schema, f"/options/client_tools/{index}/input_schema")


async def _check(schema: Mapping[str, Any], place: str) -> None:
    text = orjson.dumps(schema)
    try:
        # Costly for a large one, and a client may make it so: away from the event loop.
        await asyncio.to_thread(check_schema, text)
    except SchemaRefused as refused:
        place += pointer(refused.path)
        raise ValidationFailed(
            f"{place}: {refused.message}",
            errors=[{"pointer": place, "code": "invalid_schema", "message": refused.message}],
        ) from None
