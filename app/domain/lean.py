"""Values that are made many times a turn.

A frozen dataclass sets each field by a call of `object.__setattr__`, which costs many times what setting an attribute
does: a state has some fifty fields, and is made three times a turn. That nobody changes one is checked where it
matters, by the type checker.
"""

from dataclasses import Field, field, fields, make_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def lean(cls: type[T]) -> type[T]:
    """Make a frozen dataclass, without `__post_init__`, as cheap to make as an open one."""
    open_twin = make_dataclass(cls.__name__, [(f.name, f.type, _copy(f)) for f in fields(cls)])
    setattr(cls, "__init__", vars(open_twin)["__init__"])  # noqa: B010 - mypy takes it for that of an instance
    del cls.__setattr__, cls.__delattr__  # those that refuse
    return cls


def _copy(given: "Field[Any]") -> Any:  # noqa: ANN401 - as `field` has it
    return field(
        default=given.default,
        default_factory=given.default_factory,
        init=given.init,
        kw_only=given.kw_only,
    )
