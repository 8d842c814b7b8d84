"""Images: whole ones as they are, large ones scaled down. Only the four kinds the API takes."""

import io
from collections.abc import Mapping
from typing import Literal

from PIL import ExifTags, Image, ImageOps

from app.tools.decoding.answer import Answer, Picture, Refused, answer_for, encoded

MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]

_FORMATS: Mapping[str, MediaType] = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "GIF": "image/gif",
    "WEBP": "image/webp",
}
_MAX_SIDE = 2000
"""Pixels; larger images are scaled to this."""
_MAX_PIXELS = 80_000_000
"""An image with more is not decoded: at four bytes each this is what memory is set aside for."""
_MAX_SHOWN_BYTES = 3_500_000
"""In base64 it stays below the 5 MB of an image that the Messages API takes."""
_QUALITIES = (85, 60, 35)

Image.MAX_IMAGE_PIXELS = None  # ours is checked, and is an error


def load_formats() -> None:
    """Import all that decoding needs, by doing it once: later no file can be opened."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for kind in _FORMATS:
        file = io.BytesIO()
        Image.new("P", (2, 2)).convert("RGB").save(file, kind, exif=exif)
        image = Image.open(file, formats=list(_FORMATS))
        image.load()
        scaled_picture(ImageOps.exif_transpose(image), png_bytes=1000, max_bytes=1000)


def show_image(data: bytes) -> Answer:
    """Give the image, as it is if it can be. Raises `Refused`."""
    image = _opened(data)
    original = image.size
    try:
        image.load()
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise Refused(f"the image is damaged ({error})") from error
    answer = answer_for(data)
    if max(original) <= _MAX_SIDE and len(data) <= _MAX_SHOWN_BYTES:
        answer["pictures"] = [_picture(_FORMATS[image.format or ""], data, original, original)]
        return answer
    upright = ImageOps.exif_transpose(image)  # what tells how to turn it is lost by scaling
    png_bytes = 0 if image.format == "JPEG" else _MAX_SHOWN_BYTES
    answer["pictures"] = [scaled_picture(upright, png_bytes=png_bytes, max_bytes=_MAX_SHOWN_BYTES)]
    return answer


def _opened(data: bytes) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(data), formats=list(_FORMATS))
    except Exception as error:  # plugins raise what they like on hostile headers
        raise Refused("it is not an image of a known kind") from error
    if image.width * image.height > _MAX_PIXELS:
        raise Refused(
            f"the image has {image.width}x{image.height} pixels, at most {_MAX_PIXELS} are decoded"
        )
    return image


def scaled_picture(image: Image.Image, *, png_bytes: int, max_bytes: int) -> Picture:
    """Fit an image into what is shown: a PNG up to `png_bytes`, else a JPEG up to `max_bytes`."""
    original = image.size
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    image = image.convert("RGBA" if has_alpha else "RGB")
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    if png_bytes and len(png := _saved(image, "PNG")) <= png_bytes:
        return _picture("image/png", png, image.size, original)
    for quality in _QUALITIES:
        jpeg = _saved(_on_white(image), "JPEG", quality=quality)
        if len(jpeg) <= max_bytes:
            return _picture("image/jpeg", jpeg, image.size, original)
    raise Refused("the image is too large even when it is scaled down")


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page


def _saved(image: Image.Image, kind: str, **options: int) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _picture(
    media_type: MediaType, data: bytes, shown: tuple[int, int], original: tuple[int, int]
) -> Picture:
    return Picture(
        media_type=media_type,
        base64=encoded(data),
        width=shown[0],
        height=shown[1],
        originalWidth=original[0],
        originalHeight=original[1],
    )
