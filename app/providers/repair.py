"""Model text is repaired once, where it comes in: what we cannot store or send becomes visible.

NUL becomes U+2400, a lone surrogate U+FFFD. Sound input, which is nearly all of it, pays for one
search of a byte string.
"""

import json
import math
import re

import orjson

from app.domain.tools import JsonValue

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INT64 = range(-(2**63), 2**64)


def repaired_text(text: str) -> str:
    """Give `text` without NUL and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return _LONE_SURROGATE.sub("\ufffd", text.replace("\0", "\u2400"))


def repaired(value: JsonValue) -> JsonValue:
    """Give a decoded JSON value with all its strings repaired, keys included."""
    if isinstance(value, str):
        return repaired_text(value)
    if isinstance(value, dict):
        return {repaired_text(key): repaired(item) for key, item in value.items()}
    if isinstance(value, list):
        return [repaired(item) for item in value]
    return value


def loads_repaired(data: bytes) -> JsonValue:
    """Decode JSON whose strings may be damaged. Raises `ValueError` if it is no JSON at all."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _loads_damaged(data)
    return _repaired_if_shallow(value) if b"\\u0000" in data else value


def _loads_damaged(data: bytes) -> JsonValue:
    # orjson refuses lone surrogates and invalid UTF-8; the slow decoder lets us mend them. It is
    # laxer about numbers, so those are held to what orjson takes and can write again.
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(
            text, parse_constant=_refused, parse_float=_finite, parse_int=_int_or_float
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return _repaired_if_shallow(value)


def _repaired_if_shallow(value: JsonValue) -> JsonValue:
    try:
        return repaired(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("number out of range")
    return value


def _int_or_float(digits: str) -> int | float:
    value = int(digits)
    return value if value in _INT64 else _finite(digits)
