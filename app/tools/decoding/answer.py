"""What the decoding child says."""

import base64
import hashlib
from typing import Literal

from typing_extensions import TypedDict


class Refused(Exception):
    """The file cannot be shown. The text finishes the sentence "it cannot be shown: …"."""


class Picture(TypedDict):
    """An image that the Messages API takes."""

    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    base64: str
    width: int
    height: int
    originalWidth: int
    originalHeight: int


class Answer(TypedDict, total=False):
    """One JSON object, the child's whole output."""

    sha256: str
    """Of the file as it was read."""
    size_bytes: int
    refused: str
    """Why nothing is shown. Then there is nothing else."""
    pictures: list[Picture]
    pages: int
    """How many the document has."""
    base64: str
    """The document itself."""
    text: str
    """Of a web page, as Markdown."""
    is_cut: bool
    """Whether the page's text was longer."""


def answer_for(data: bytes) -> Answer:
    """Begin an answer."""
    return Answer(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


def encoded(data: bytes) -> str:
    """Give base64 without line ends."""
    return base64.b64encode(data).decode()
