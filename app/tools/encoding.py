"""Bytes of a text file to text and back, without losing what the file was.

Kept are UTF-8, UTF-8 with a byte-order mark, and UTF-16LE with one. Anything else is shown as
UTF-8 with replacement characters and may not be written: a round trip would destroy it.
"""

import codecs

from app.domain.value import value
from app.errors import ToolFailed

_NUL_WITHIN_BYTES = 8192


@value
class Decoded:
    """Text of a file, the mark hidden."""

    text: str
    mark: bytes = b""
    """The byte-order mark, which also says the encoding; empty for plain UTF-8."""
    flaw: str | None = None
    """Why the text is only an approximation, in words that finish "the file …"."""

    def encode(self, text: str) -> bytes:
        """Encode a new text as this file was. Raises `ToolFailed` for a lone surrogate."""
        name = "utf-16-le" if self.mark == codecs.BOM_UTF16_LE else "utf-8"
        try:
            return self.mark + text.removeprefix("\ufeff" if self.mark else "").encode(name)
        except UnicodeEncodeError as error:
            raise ToolFailed(
                "The text contains a lone surrogate, which no file can hold.", wrapped=True
            ) from error


def decode(data: bytes) -> Decoded:
    """Decode the content of a file, or the head of it."""
    for mark, name in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")):
        if data.startswith(mark):
            return _decode_as(name, mark, data[len(mark) :])
    if data.startswith(codecs.BOM_UTF16_BE):
        return Decoded(data.decode(errors="replace"), flaw="is UTF-16BE")
    decoded = _decode_as("utf-8", b"", data)
    if decoded.flaw is None and b"\0" in data[:_NUL_WITHIN_BYTES]:
        return Decoded(decoded.text, flaw="contains NUL bytes")
    return decoded


def _decode_as(name: str, mark: bytes, data: bytes) -> Decoded:
    try:
        return Decoded(data.decode(name), mark)
    except UnicodeDecodeError:
        label = name.upper().replace("UTF-16-LE", "UTF-16LE")
        return Decoded(data.decode(name, errors="replace"), mark, f"is not valid {label}")
