"""What a state knows beyond the messages that a compaction keeps: it goes on with the summary.

So a conversation can be folded from its last compaction on, whatever came before. Every field of
the state that the kept messages do not give is carried, those of later versions too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import create_model


class Carrier:
    """Writes and reads the carried fields of a state."""

    def __init__(self, state: type, *, known: Iterable[str]) -> None:
        """`known`: the fields that are not carried."""
        hints, left_out = get_type_hints(state), frozenset(known)
        self.names = tuple(f.name for f in fields(state) if f.name not in left_out)
        given: dict[str, Any] = {name: (hints[name] | None, None) for name in self.names}
        self._model = create_model("Carried", **given)

    def dump(self, state: object) -> dict[str, Any]:
        """Give the JSON form."""
        values = {name: getattr(state, name) for name in self.names}
        carried: dict[str, Any] = self._model.model_construct(**values).model_dump(mode="json")
        return carried

    def load(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Read what `dump` wrote. Raises `ValidationError`."""
        carried = self._model.model_validate(value)
        return {name: getattr(carried, name) for name in carried.model_fields_set}
