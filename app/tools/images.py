"""Images by their first bytes: the type that the content has, and the size in pixels."""

import struct
from dataclasses import dataclass

_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE_MARKERS = frozenset({0x01, *range(0xD0, 0xD8)})


@dataclass(frozen=True, slots=True)
class ImageKind:
    """What an image is."""

    media_type: str
    width: int
    height: int
    """Both 0 when the header does not tell."""


def image_kind(data: bytes) -> ImageKind | None:
    """Recognise PNG, JPEG, GIF and WebP; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ImageKind("image/png", *_unpacked(">II", data, 16))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ImageKind("image/gif", *_unpacked("<HH", data, 6))
    if data.startswith(b"\xff\xd8\xff"):
        return ImageKind("image/jpeg", *_jpeg_size(data))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return ImageKind("image/webp", *_webp_size(data))
    return None


def _unpacked(form: str, data: bytes, offset: int) -> tuple[int, int]:
    if len(data) < offset + struct.calcsize(form):
        return 0, 0
    first, second = struct.unpack_from(form, data, offset)
    return first, second


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Walk the segments to the frame header, which holds height and width."""
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF or marker in _JPEG_BARE_MARKERS:
            position += 1 if marker == 0xFF else 2
            continue
        if marker in _JPEG_SIZE_MARKERS:
            height, width = _unpacked(">HH", data, position + 5)
            return width, height
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    form = data[12:16]
    if form == b"VP8 ":  # lossy
        width, height = _unpacked("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if form == b"VP8L" and len(data) >= 25:  # lossless
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8X" and len(data) >= 30:  # extended
        return (
            int.from_bytes(data[24:27], "little") + 1,
            int.from_bytes(data[27:30], "little") + 1,
        )
    return 0, 0
