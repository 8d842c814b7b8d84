"""An answer as the Messages API streams it: blocks in, event frames out.

The serving side of the wire, for the demo model and for the scripted API of the tests.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from app.providers.script import Step

_USAGE: Mapping[str, Any] = {
    "input_tokens": 100,
    "output_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}


def answer_frames(step: Step, *, message_id: str, model: str) -> Iterator[bytes]:
    """Yield the frames of a sound stream, `message_start` to `message_stop`.

    Ids of tool uses are made from `message_id`, so they are unique where it is.
    """
    usage = {**_USAGE, **step.usage}
    yield _frame(
        {
            "type": "message_start",
            "message": {
                "id": message_id,
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {**usage, "output_tokens": min(1, usage["output_tokens"])},
            },
        }
    )
    blocks = [*step.blocks, *([{"text": None}] if step.deltas else [])]
    for index, block in enumerate(blocks):
        start, deltas = _parts(block, step, f"toolu_{message_id.removeprefix('msg_')}_{index}")
        yield _frame({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield _frame({"type": "content_block_delta", "index": index, "delta": delta})
        yield _frame({"type": "content_block_stop", "index": index})
    has_tools = any("tool" in block for block in blocks)
    reason = step.stop_reason or ("tool_use" if has_tools else "end_turn")
    yield _frame(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": usage,
        }
    )
    yield _frame({"type": "message_stop"})


def error_frame(error_type: str, message: str) -> bytes:
    """Give the `error` event that a failing stream sends."""
    return _frame({"type": "error", "error": {"type": error_type, "message": message}})


def error_body(error_type: str, message: str, request_id: str) -> bytes:
    """Give the JSON body of an HTTP error."""
    error = {"type": error_type, "message": message}
    return json.dumps({"type": "error", "error": error, "request_id": request_id}).encode()


def _frame(event: Mapping[str, Any]) -> bytes:
    try:
        data = orjson.dumps(event)
    except TypeError:
        # A script may ask for lone surrogates: the standard encoder escapes them, orjson refuses.
        data = json.dumps(event).encode()
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), data)


def _parts(
    block: Mapping[str, Any], step: Step, tool_id: str
) -> tuple[Mapping[str, Any], Iterator[Mapping[str, Any]]]:
    """Give the opening form of a block, and its deltas."""
    if "block" in block:
        return block["block"], iter(())
    if "tool" in block:
        text = json.dumps(block.get("input", {}))
        text = text[:-2] + "\\x" if step.garbage else text
        start = {"type": "tool_use", "id": block.get("id", tool_id), "name": block["tool"]}
        return {**start, "input": {}}, _deltas("input_json_delta", "partial_json", text, step.chunk)
    if "thinking" in block:
        start = {"type": "thinking", "thinking": "", "signature": ""}
        return start, _thinking_deltas(block, step.chunk)
    if block["text"] is None:
        return {"type": "text", "text": ""}, _filler(step.deltas, step.delta_chars)
    deltas = _deltas("text_delta", "text", block["text"], step.chunk)
    return {"type": "text", "text": ""}, deltas


def _deltas(kind: str, field: str, text: str, chunk: int) -> Iterator[Mapping[str, Any]]:
    size = chunk or max(len(text), 1)
    for at in range(0, len(text), size):
        yield {"type": kind, field: text[at : at + size]}


def _thinking_deltas(block: Mapping[str, Any], chunk: int) -> Iterator[Mapping[str, Any]]:
    yield from _deltas("thinking_delta", "thinking", block["thinking"], chunk)
    yield {"type": "signature_delta", "signature": block.get("signature", "c2lnbmVk")}


def _filler(deltas: int, chars: int) -> Iterator[Mapping[str, Any]]:
    text = "abcde " * (chars // 6 + 1)
    for _ in range(deltas):
        yield {"type": "text_delta", "text": text[:chars]}
