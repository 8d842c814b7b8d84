"""Images for Read: one image block, scaled down where it is large."""

import binascii

from app.domain.tools import ToolResult
from app.errors import ToolFailed
from app.tools.decoder import Decoder
from app.tools.decoding.answer import Answer, Picture
from app.tools.images import image_kind
from app.tools.notebooks import Json
from app.tools.open_file import OpenFile
from app.tools.paths import shown
from app.tools.seen import saw

IMAGE_EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})
_SNIFFED_BYTES = 16


def looks_like_image(file: OpenFile) -> bool:
    """Tell by the first bytes."""
    return image_kind(file.head(_SNIFFED_BYTES)) is not None


async def read_image(file: OpenFile, path: str, decoder: Decoder) -> ToolResult:
    """Give the image block. Raises `ToolFailed` for what is no image, or cannot be decoded."""
    if file.size_bytes == 0:
        raise ToolFailed(f"{shown(path)} is empty, so it is no image.")
    if not looks_like_image(file):
        head = binascii.hexlify(file.head(8), " ").decode()
        raise ToolFailed(
            f"{shown(path)} is not an image of a known kind: it starts with the bytes {head}."
        )
    try:
        answer = await decoder.image(file)
    except ToolFailed as error:
        raise ToolFailed(f"{shown(path)} cannot be shown: {error.message}.") from error
    (picture,) = answer["pictures"]
    return ToolResult(
        [image_block(picture)],
        structured={"type": "image", "file": _structured(picture, answer)},
        facts=saw(path, answer["sha256"], file.version),
    )


def image_block(picture: Picture) -> Json:
    """Give the block of the Messages API."""
    source = {
        "type": "base64",
        "media_type": picture["media_type"],
        "data": picture["base64"],
    }
    return {"type": "image", "source": source}


def _structured(picture: Picture, answer: Answer) -> Json:
    return {
        "base64": picture["base64"],
        "type": picture["media_type"],
        "originalSize": answer["size_bytes"],
        "dimensions": {
            "originalWidth": picture["originalWidth"],
            "originalHeight": picture["originalHeight"],
            "displayWidth": picture["width"],
            "displayHeight": picture["height"],
        },
    }
