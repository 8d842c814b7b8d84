"""Content blocks: the parts of a message, as the Messages API has them.

Blocks come from models and tools, so known fields are typed and unknown ones are kept:
what the provider sent goes back to it unchanged (thinking signatures depend on it).
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter

UNPARSED = "__unparsedToolInput"
"""Where a call's input holds text that was no JSON object: such a call is refused."""
type_of_known_blocks = frozenset({"text", "thinking", "tool_use", "tool_result"})


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)


class TextBlock(_Block):
    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(_Block):
    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str = ""
    """Opaque; must go back to the provider byte for byte."""


class ToolUseBlock(_Block):
    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    """Arguments as parsed. Text that was no JSON object stands under `UNPARSED`."""


class ToolResultBlock(_Block):
    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: str | list[dict[str, Any]]
    """Text, or blocks (text, image, document) in Messages API form."""
    is_error: Annotated[bool | None, Field(exclude_if=lambda value: value is None)] = None
    """True on failure, explicitly false on a successful Bash, else absent."""


class OtherBlock(_Block):
    """A block of a kind that we only pass on (images, documents, redacted thinking …)."""

    type: Annotated[str, Field(json_schema_extra={"not": {"enum": sorted(type_of_known_blocks)}})]


def _block_kind(value: Any) -> str:  # noqa: ANN401 - pydantic hands over whatever came in
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", "")
    return kind if kind in type_of_known_blocks else "other"


Block = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[OtherBlock, Tag("other")],
    Discriminator(_block_kind),
]
"""Any content block, discriminated by `type`."""

_ANY_BLOCK: TypeAdapter[Block] = TypeAdapter(Block)


def parse_block(value: object) -> Block:
    """Build the block that a decoded JSON object stands for. Raises `ValidationError`."""
    return _ANY_BLOCK.validate_python(value)


def is_thinking(encoded: bytes) -> bool:
    """Whether an encoded block is a thought, redacted or not."""
    return encoded.startswith(_THOUGHTS)


# `type` comes first in what `encode_block` writes.
_THOUGHTS = (b'{"type":"thinking"', b'{"type":"redacted_thinking"')


def encode_block(block: Block) -> bytes:
    """Encode a block once, for requests. Known fields come first, in a fixed order.

    Never raises for a block that a journalled message holds: the same encoder made its body.
    """
    return block.__pydantic_serializer__.to_json(block)  # `model_dump_json` would decode it
