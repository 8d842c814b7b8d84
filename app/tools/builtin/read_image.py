"""Images for Read: one image block, as the file is."""

import base64
import binascii

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.images import image_kind
from app.tools.open_file import OpenFile
from app.tools.paths import shown
from app.tools.seen import saw, sha256

IMAGE_EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})
_MAX_BYTES = 3_500_000
"""In base64 it must stay below the 5 MB that the Messages API takes."""
_MAX_PIXELS = 8000
"""A side; the API refuses larger ones."""


def read_image(file: OpenFile, path: str) -> ToolResult:
    """Give the image block. Raises `ToolFailed` for what is no image, or too large a one."""
    if file.size_bytes == 0:
        raise ToolFailed(f"{shown(path)} is empty, so it is no image.")
    if file.size_bytes > _MAX_BYTES:
        raise ToolFailed(
            f"{shown(path)} is too large to be shown ({file.size_bytes} bytes, at most "
            f"{_MAX_BYTES}). Make a smaller copy of it first."
        )
    data = file.content(_MAX_BYTES)
    kind = image_kind(data)
    if kind is None:
        head = binascii.hexlify(data[:8], " ").decode()
        raise ToolFailed(
            f"{shown(path)} is not an image of a known kind: it starts with the bytes {head}."
        )
    if max(kind.width, kind.height) > _MAX_PIXELS:
        raise ToolFailed(
            f"{shown(path)} is too large to be shown ({kind.width}x{kind.height} pixels, at most "
            f"{_MAX_PIXELS} a side). Make a smaller copy of it first."
        )
    encoded = base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": kind.media_type, "data": encoded}
    size = {
        "originalWidth": kind.width,
        "originalHeight": kind.height,
        "displayWidth": kind.width,
        "displayHeight": kind.height,
    }
    shown_file = {
        "base64": encoded,
        "type": kind.media_type,
        "originalSize": len(data),
        "dimensions": size,
    }
    return ToolResult(
        [{"type": "image", "source": source}],
        structured={"type": "image", "file": shown_file},
        facts=saw(path, sha256(data), file.version),
    )
