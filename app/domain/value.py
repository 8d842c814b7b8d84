"""Values that are made many times a turn.

A frozen dataclass sets each field by a call of `object.__setattr__`, which costs many times what setting an attribute
does, and a turn with five calls sets a thousand fields. That nobody changes a value is checked where it matters, by the
type checker: to it these are frozen.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a dataclass with slots that is compared and hashed by its fields."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
