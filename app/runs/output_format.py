"""The form of output that a client asks for: refused at once when it cannot work."""

import asyncio

import orjson

from app.domain.options import AgentOptions
from app.errors import ValidationFailed
from app.tools.json_schema import SchemaRefused, check_schema, pointer

_PLACE = "/options/output_format/schema"


async def check_output_format(options: AgentOptions) -> None:
    """Raise `ValidationFailed` with the pointer to what is wrong in the schema, if one is set."""
    if options.output_format is None:
        return
    text = orjson.dumps(options.output_format.json_schema)
    try:
        # Costly for a large one, and a client may make it so: away from the event loop.
        await asyncio.to_thread(check_schema, text)
    except SchemaRefused as refused:
        place = _PLACE + pointer(refused.path)
        raise ValidationFailed(
            f"{place}: {refused.message}",
            errors=[{"pointer": place, "code": "invalid_schema", "message": refused.message}],
        ) from None
