"""Text that JSON and Postgres can carry.

Postgres text holds neither NUL nor lone surrogates. Clients that send them are refused; what
models and tools print is made printable instead, so that no run ends over a character.
"""

import re
from collections.abc import Iterable

import orjson

from app.domain.tools import JsonValue

MAX_JSON_DEPTH = 100
"""Levels of nesting that we take in. What is much deeper can be written, but not read again."""

_FEW = 16
"""Members of an object that are looked at one by one."""
_LEAST_NUMBER, _MOST_NUMBER = -(2**63), 2**64 - 1
_SURROGATE = re.compile("[\ud800-\udfff]")


def unstorable(text: str) -> str | None:
    """Say why `text` cannot be stored, in words that finish "it contains …"; None if it can."""
    if "\0" in text:
        return "a NUL character"
    try:
        if not text.isascii():
            text.encode()  # thrice as fast as a search
    except UnicodeEncodeError:
        return "a lone surrogate"
    return None


def printable(text: str) -> str:
    """Show NUL as U+2400 and lone surrogates as U+FFFD; leave all else as it is."""
    if unstorable(text) is None:
        return text
    return _SURROGATE.sub("\ufffd", text.replace("\0", "\u2400"))


def is_too_deep(value: JsonValue) -> bool:
    """Say whether a JSON value nests deeper than `MAX_JSON_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def printable_value(value: JsonValue) -> JsonValue:
    """Make every string of a JSON value printable, keys included.

    A whole number that takes more than 64 bits, which few readers of JSON can hold, becomes its digits.
    """
    if isinstance(value, str) and value.isascii() and "\0" not in value:  # most are
        return value
    return value if _is_printable(value) else _printable(value)


def _is_printable(value: JsonValue, objects: int = 2) -> bool:
    """Say whether nothing of a value has to be changed, as is mostly so: at the speed of C.

    In that many levels of small `objects`, as tools give of a file, long texts are looked through as
    they are: a hundredth of what it takes to encode them and to find an escape in that.
    """
    if isinstance(value, str):
        return unstorable(value) is None
    if objects and isinstance(value, dict) and len(value) <= _FEW:
        for name, item in value.items():
            if unstorable(name) is not None or not _is_printable(item, objects - 1):
                return False
        return True
    try:
        encoded = orjson.dumps(value)
    except orjson.JSONEncodeError:  # surrogates, numbers of more than 64 bits, very deep ones
        return False
    return b"\\u0000" not in encoded


def _printable(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    if isinstance(value, int) and not _LEAST_NUMBER <= value <= _MOST_NUMBER:
        return _digits(value)
    return value


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # Python's limit of digits
        return f"(a number of {number.bit_length()} bits)"


def _children(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
