"""Estimates of size."""

import base64

import orjson

from app.compaction.sizes import MEDIA_TOKENS, block_tokens, text_tokens


def test_text_is_estimated_by_its_bytes() -> None:
    assert text_tokens(["word" * 100, "ä" * 50]) == 125


def test_an_image_has_a_size_of_its_own_however_many_bytes_it_has() -> None:
    data = base64.b64encode(b"\x00\xff" * 300_000).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [image, image]}
    assert MEDIA_TOKENS <= block_tokens(orjson.dumps(image)) < MEDIA_TOKENS + 50
    assert 2 * MEDIA_TOKENS <= block_tokens(orjson.dumps(result)) < 2 * MEDIA_TOKENS + 100
