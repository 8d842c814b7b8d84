"""Which tools a request holds, and how.

Tools that are deferred stand in no request before ToolSearch has found them: the model knows their
names (`app/agent/briefing.py`). A found one stands behind all others, in the order of finding and
marked `defer_loading`: the provider puts such a tool where the conversation refers to it, so that the
cached prefix stays as it was. A compaction takes the reference out of the conversation (and makes the
prefix anew), so what was found before is held in full from there on.

A model that has no tool search gets all tools in full, and references as words.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import orjson

from app.domain.model import ContextMessage
from app.domain.tools import ToolMemory, ToolSpec
from app.domain.value import value

TOOL_SEARCH = "ToolSearch"
STAND_IN = "deferred_tools"
"""Name of the entry that keeps tool search in use while nothing is loaded."""
BETA = "advanced-tool-use-2025-11-20"
_RESULT = b'{"type":"tool_result"'
_REFERENCE = b'"tool_reference"'


@value
class Offer:
    """The tools of one request."""

    specs: tuple[ToolSpec, ...]
    """Held in full, in an order that stays."""
    found: tuple[ToolSpec, ...] = ()
    """Held as deferred, in the order in which they were found."""
    is_searching: bool = False
    """Whether tool search is in use."""

    @property
    def tools(self) -> tuple[bytes, ...]:
        """The encoded tools that are held in full."""
        return tuple(spec.encoded for spec in self.specs)

    @property
    def deferred(self) -> tuple[bytes, ...]:
        """The encoded tools that follow."""
        return (_STAND_IN, *(_deferred(spec) for spec in self.found)) if self.is_searching else ()

    def readable(
        self, messages: tuple[ContextMessage, ...], loaded: Collection[str]
    ) -> tuple[ContextMessage, ...]:
        """Give a conversation without references that the provider could not follow.

        `loaded`: all that it refers to. A tool may be gone, and a model may have no tool search.
        """
        names = {spec.name for spec in (*self.specs, *self.found)} if self.is_searching else set()
        if names.issuperset(loaded):
            return messages
        return tuple(_readable(message, names) for message in messages)


def on_offer(specs: Sequence[ToolSpec], *, has_search: bool) -> tuple[ToolSpec, ...]:
    """Leave ToolSearch out where it has nothing to do."""
    if has_search and any(spec.deferred for spec in specs):
        return tuple(specs)
    return tuple(spec for spec in specs if spec.name != TOOL_SEARCH)


def deferred_names(specs: Sequence[ToolSpec], *, has_search: bool) -> tuple[str, ...]:
    """Name the tools that have to be found: none unless ToolSearch is on offer."""
    if not has_search or all(spec.name != TOOL_SEARCH for spec in specs):
        return ()
    return tuple(spec.name for spec in specs if spec.deferred)


def offer_of(specs: Sequence[ToolSpec], memory: ToolMemory, *, has_search: bool) -> Offer:
    """Give what a request holds of the tools on offer."""
    offered = on_offer(specs, has_search=has_search)
    hidden = deferred_names(offered, has_search=has_search)
    if not hidden:
        return Offer(offered)
    by_name = {spec.name: spec for spec in offered if spec.deferred}
    known = [by_name[name] for name in memory.loaded if name in by_name]
    settled = [spec for spec in known if spec.name in memory.settled]
    found = [spec for spec in known if spec.name not in memory.settled]
    upfront = [spec for spec in offered if not spec.deferred]
    return Offer((*upfront, *settled), tuple(found), is_searching=True)


def unsent_hint(spec: ToolSpec, memory: ToolMemory, offered: Sequence[ToolSpec]) -> str:
    """Say what helps when a call does not fit a schema that the model has not seen; else nothing."""
    if not spec.deferred or spec.name in memory.loaded:
        return ""
    if all(each.name != TOOL_SEARCH for each in offered):
        return ""
    return (
        f"\nYou have not seen the schema of {spec.name} yet: load it with {TOOL_SEARCH} "
        f'(query "select:{spec.name}"), then call it again.'
    )


def _deferred(spec: ToolSpec) -> bytes:
    return spec.encoded[:-1] + b',"defer_loading":true}'


_STAND_IN = _deferred(
    ToolSpec(
        STAND_IN,
        "Stands for the tools that ToolSearch loads; it cannot be called.",
        {"type": "object", "properties": {}},
    )
)


def _readable(message: ContextMessage, names: Collection[str]) -> ContextMessage:
    blocks = tuple(_followed(block, names) for block in message.blocks)
    return message if blocks == message.blocks else replace(message, blocks=blocks, whole=None)


def _followed(block: bytes, names: Collection[str]) -> bytes:
    """Keep the references of a result that lead somewhere; give words where none does."""
    if not block.startswith(_RESULT) or _REFERENCE not in block:
        return block
    result = orjson.loads(block)
    if isinstance(result["content"], str):
        return block
    kept: list[dict[str, Any]] = []
    lost: list[dict[str, Any]] = []
    for part in result["content"]:
        is_lost = part.get("type") == "tool_reference" and part.get("tool_name") not in names
        (lost if is_lost else kept).append(part)
    if not lost:
        return block
    said = ", ".join(str(part.get("tool_name")) for part in lost)
    words = f"Found: {said}. What of these can be called now is among your tools."
    return orjson.dumps({**result, "content": kept or [{"type": "text", "text": words}]})
