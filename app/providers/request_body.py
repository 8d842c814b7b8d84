"""A model request as bytes: joined from parts that were encoded when they were born."""

from typing import Any

import orjson

from app.domain.blocks import is_thinking
from app.domain.model import ContextMessage, ModelRequest, encode_context_message

_MARK = b',"cache_control":{"type":"ephemeral"}}'
_MARKED_MESSAGES = 2
_EMPTY_TEXT = b'{"type":"text","text":""}'


def encode_request(request: ModelRequest) -> bytes:
    """Give the body of the streaming Messages API call.

    Cache marks stand on the last system block, the last tool that is not deferred, and the last block of the last two
    user messages: four at most, which is the provider's limit.
    """
    parts = [b'{"model":', orjson.dumps(request.model)]
    parts.append(b',"max_tokens":%d,"stream":true' % request.max_tokens)
    if request.metadata_user_id is not None:
        parts += (b',"metadata":', orjson.dumps({"user_id": request.metadata_user_id}))
    if request.thinking is not None:
        parts += (b',"thinking":', orjson.dumps(dict(request.thinking)))
    if config := _output_config(request):
        parts += (b',"output_config":', orjson.dumps(config))
    if system := [_text_block(text) for text in request.system if text]:
        parts += (b',"system":[', b",".join(_marked(system) if request.is_cached else system), b"]")
    if request.tools:
        tools = list(request.tools)
        told = (*(_marked(tools) if request.is_cached else tools), *request.deferred_tools)
        parts += (b',"tools":[', b",".join(told), b"]")
    if request.tool_choice is not None:
        parts += (b',"tool_choice":', orjson.dumps(dict(request.tool_choice)))
    parts.append(b',"messages":[')
    for message in _messages(request.messages, _MARKED_MESSAGES if request.is_cached else 0):
        parts += (message, b",")
    # The history is copied once: it is most of the body.
    parts[-1] = b"]}"
    return b"".join(parts)


def _output_config(request: ModelRequest) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.effort is not None:
        config["effort"] = request.effort
    if request.task_budget_tokens is not None:
        config["task_budget"] = {"type": "tokens", "total": request.task_budget_tokens}
    return config


def _text_block(text: str) -> bytes:
    return orjson.dumps({"type": "text", "text": text})


def _messages(messages: tuple[ContextMessage, ...], left: int) -> list[bytes]:
    """Encode messages; `left` user messages at the end get a mark."""
    encoded: list[bytes] = []
    for message in reversed(messages):
        if message.role == "user" and left > 0:
            left -= 1
            marked = _marked(list(message.blocks))
            encoded.append(encode_context_message(message.role, marked))
        else:
            encoded.append(message.whole or encode_context_message(message.role, message.blocks))
    encoded.reverse()
    return encoded


def _marked(blocks: list[bytes]) -> list[bytes]:
    """Mark the last block that can carry a mark: the API takes none on thoughts and empty texts."""
    for i in range(len(blocks) - 1, -1, -1):
        if not is_thinking(blocks[i]) and not blocks[i].startswith(_EMPTY_TEXT):
            blocks[i] = blocks[i][:-1] + _MARK
            break
    return blocks
