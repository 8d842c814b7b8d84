"""Tools that a run's client carries out itself."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.domain.actions import Timeout
from app.domain.text import is_too_deep

CLIENT = "client"
"""Stands for the client where a tool names its server."""
PREFIX = f"mcp__{CLIENT}__"
"""Before the name that the client gave: what the model calls."""


def taken_schema(value: object) -> object:
    """Give a JSON Schema in either form: an object, or the text that it is stored as.

    As a text it keeps the order of its names, and so the prefix of model requests, and the order in which
    a model fills them in.
    """
    if not isinstance(value, str):
        return value
    decoded = orjson.loads(value)
    if is_too_deep(decoded):
        raise ValueError("nests too deep")
    return decoded


class ClientTool(BaseModel):
    """A tool of the client's: a call of it waits as an action until the client posts its result."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,50}$")]
    """The model calls it `mcp__client__<name>`."""
    description: Annotated[str, Field(max_length=10_000)] = ""
    input_schema: dict[str, Any]
    """JSON Schema of an object: what the model may send."""
    timeout_seconds: Timeout = 3600
    """How long the client may take."""
    on_timeout: Literal["error", "fail"] = "error"
    """What happens when it takes longer. `error`: the model is told. `fail`: the run ends as
    `action_expired`."""
    readOnlyHint: bool = False  # noqa: N815 - the contract's name
    """Whether calls change nothing: then neighbouring ones wait together."""

    @field_validator("input_schema", mode="before")
    @classmethod
    def _take_stored_form(cls, value: object) -> object:
        return taken_schema(value)

    @property
    def full_name(self) -> str:
        """What the model calls."""
        return PREFIX + self.name


def stored_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give tools in stored form."""
    return [{**tool, "input_schema": orjson.dumps(tool["input_schema"]).decode()} for tool in tools]


def shown_tools(stored: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give stored tools as clients see them."""
    return [{**tool, "input_schema": orjson.loads(tool["input_schema"])} for tool in stored]
