"""A structured output that came whole in a response that then broke: a fallback takes it back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.agent.structured import OUTPUT_TOOL


@dataclass(slots=True)
class OutputWatch:
    """Looks at the events of one response, as they come."""

    is_whole: bool = False
    """Whether a call that gives the output is complete, and is an object."""
    _open: dict[int, list[str]] = field(default_factory=dict)
    """The JSON so far of such calls, by the index of their blocks."""

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take one raw event in. Never raises."""
        match event:
            case {
                "type": "content_block_start",
                "index": int(index),
                "content_block": {"type": "tool_use", "name": name},
            } if name == OUTPUT_TOOL:
                self._open[index] = []
            case {
                "type": "content_block_delta",
                "index": int(index),
                "delta": {"partial_json": str(more)},
            } if index in self._open:
                self._open[index].append(more)
            case {"type": "content_block_stop", "index": int(index)} if index in self._open:
                self.is_whole |= _is_object("".join(self._open.pop(index)) or "{}")
            case _:
                pass


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
