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
    return value if _is_printable(value) else _printable(value)


def is_plain(value: object, levels: int = MAX_JSON_DEPTH) -> bool:
    """Say whether a value is JSON that `printable_value` leaves as it is, by a look at each part of it.

    For what tools give, mostly a few fields and a long text: that is looked through as it is, which takes a
    hundredth of encoding it and finding an escape in that. False for lists and objects in more than `levels` others.
    """
    if isinstance(value, str):
        return unstorable(value) is None
    if isinstance(value, int):
        return _LEAST_NUMBER <= value <= _MOST_NUMBER
    if value is None or isinstance(value, float):
        return True
    if levels == 0:
        return False
    if isinstance(value, dict):
        for key, item in value.items():  # a generator costs more than what it would do here
            if not (isinstance(key, str) and is_plain(key) and is_plain(item, levels - 1)):
                return False
        return True
    return isinstance(value, list | tuple) and all(is_plain(item, levels - 1) for item in value)


def _is_printable(value: JsonValue) -> bool:
    """Say whether nothing of a value has to be changed, as is mostly so: at the speed of C."""
    if isinstance(value, str):
        return unstorable(value) is None
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
