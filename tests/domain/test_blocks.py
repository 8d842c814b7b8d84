import orjson
import pytest
from pydantic import ValidationError

from app.domain.blocks import (
    Block,
    OtherBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    encode_block,
    parse_block,
)


@pytest.mark.parametrize(
    ("block", "body"),
    [
        (TextBlock(text="hi"), b'{"type":"text","text":"hi"}'),
        (
            ThinkingBlock(thinking="hm", signature="s"),
            b'{"type":"thinking","thinking":"hm","signature":"s"}',
        ),
        (
            ToolUseBlock(id="a", name="Read", input={"n": None, "big": 2**70}),
            b'{"type":"tool_use","id":"a","name":"Read","input":{"n":null,"big":1180591620717411303424}}',
        ),
        (
            ToolResultBlock(tool_use_id="a", content="x"),
            b'{"type":"tool_result","tool_use_id":"a","content":"x"}',
        ),
        (
            ToolResultBlock(tool_use_id="a", content="x", is_error=False),
            b'{"type":"tool_result","tool_use_id":"a","content":"x","is_error":false}',
        ),
    ],
)
@pytest.mark.requirement("wire:tool-result")
def test_a_block_is_encoded_with_its_known_fields_first(block: Block, body: bytes) -> None:
    assert encode_block(block) == body
    assert parse_block(orjson.loads(body)).type == block.type


def test_a_block_of_an_unknown_kind_is_passed_on_whole() -> None:
    value = {"type": "image", "source": {"type": "base64", "data": "eA=="}, "note": None}
    block = parse_block(value)
    assert isinstance(block, OtherBlock)
    assert orjson.loads(encode_block(block)) == value


def test_fields_that_we_do_not_know_are_kept() -> None:
    value = {"type": "text", "text": "x", "citations": None, "cache_control": {"type": "ephemeral"}}
    assert orjson.loads(encode_block(parse_block(value))) == value


@pytest.mark.parametrize(
    "value", [{}, {"type": "text"}, {"type": "tool_use", "id": "a", "name": "b", "input": 1}, 7]
)
def test_a_block_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        parse_block(value)
