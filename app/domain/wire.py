"""What all wire messages share."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


def _is_none(value: object) -> bool:
    return value is None


ABSENT: Any = Field(default=None, exclude_if=_is_none)
"""Default of fields that are left out of the JSON when they have no value."""


def wire_time(at: datetime) -> str:
    """Give a time as the wire has it: RFC 3339, UTC, milliseconds."""
    return at.isoformat(timespec="milliseconds")[:_TO_MILLISECONDS] + "Z"


_TO_MILLISECONDS = len("2026-01-01T00:00:00.000")


class WireMessage(BaseModel):
    """A message of a session, as it is stored and as every reader gets it."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    session_id: str
    """The session; the same on all its messages, also after a resume on another host."""
    uuid: str
    """Unique to the message."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Say that what tells messages apart is always there, though it has a default here."""
        schema = handler(core_schema)
        fields = handler.resolve_ref_schema(schema)
        tags = {"type", "subtype"} & fields["properties"].keys()
        fields["required"] = sorted(
            {*fields["required"], *tags}, key=list(fields["properties"]).index
        )
        return schema
