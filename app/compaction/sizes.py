"""How many tokens a piece of a conversation is, about: for what no provider has counted yet."""

import re
from collections.abc import Iterable

from app.domain.model import ContextMessage

BYTES_PER_TOKEN = 4
MEDIA_TOKENS = 1_600
"""Of an image: the most that one costs, however many bytes it has."""
_MEDIA = re.compile(rb'"data":"[A-Za-z0-9+/=]{64,}"')


def block_tokens(block: bytes) -> int:
    """Estimate an encoded block."""
    media = size = 0
    if b'"base64"' in block:
        for found in _MEDIA.finditer(block):
            media += 1
            size += found.end() - found.start()
    return (len(block) - size) // BYTES_PER_TOKEN + media * MEDIA_TOKENS


def blocks_tokens(blocks: Iterable[bytes]) -> int:
    """Estimate some encoded blocks."""
    return sum(block_tokens(block) for block in blocks)


def message_tokens(message: ContextMessage) -> int:
    """Estimate a message."""
    return blocks_tokens(message.blocks)


def text_tokens(texts: Iterable[str]) -> int:
    """Estimate some texts."""
    return sum(len(text.encode()) // BYTES_PER_TOKEN for text in texts)
