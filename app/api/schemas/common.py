"""What the bodies of all resources share. Times are RFC 3339 UTC, money is a decimal string."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from app.domain.messages import wire_time

LONGEST_WAIT_S = 60
_UUID = r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"

Uuid = Annotated[
    str,
    StringConstraints(to_lower=True, pattern=_UUID),
    Field(examples=["0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f"]),
]
Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=100)],
        Annotated[str, StringConstraints(max_length=2000)],
    ],
    Field(max_length=50),
]
"""Bounded, since every list shows it."""
MetadataChange = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=100)],
        Annotated[str, StringConstraints(max_length=2000)] | None,
    ],
    Field(max_length=50),
]
"""Merged; a null takes a name away."""
Tags = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=100)]],
    Field(max_length=50),
    AfterValidator(lambda tags: list(dict.fromkeys(tags))),
]
User = Annotated[str, Field(min_length=1, max_length=200, examples=["ext-user-77"])]
"""Your id of the person that a session is for."""


class In(BaseModel):
    """What a client sends: exact types, no unknown fields."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


class Out(BaseModel):
    """What we send."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Page(Out):
    """A part of a list."""

    has_more: bool
    next_cursor: str | None
    """Where the rest begins, in the same order under the same filters."""
    prev_cursor: None = None
    """Always null: pages are read in one direction. `order` turns it around."""


def example(**body: Any) -> ConfigDict:  # noqa: ANN401 - JSON
    """Put an example into the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [body]})


def usd(amount: Decimal) -> str:
    """Write money: at least six decimals, at most nine."""
    text = f"{amount:.9f}"
    return text[: len(text) - 3] + text[-3:].rstrip("0")


def shown_time(at: datetime | None) -> str | None:
    """Write a time that may not have come."""
    return None if at is None else wire_time(at)
