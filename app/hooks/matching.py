"""Whether a hook is asked: its matcher, held against what an event is about.

A matcher is a name (`Bash`), several (`Edit|Write`), or a regular expression that is looked for
anywhere in the name (`^mcp__.*__delete`). None, nothing and `*` match everything. Expressions are
strangers' own: they run in the engine that pydantic brings, which takes time in proportion to the
text and knows neither look-around nor references back.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

Matches = Callable[[str | None], bool]

_NAMES = re.compile(r"[A-Za-z0-9_-]+(\|[A-Za-z0-9_-]+)*")


@lru_cache(maxsize=1024)
def matcher_of(text: str | None) -> Matches:
    """Give the test for a matcher. An event that is about nothing is matched by all.

    Raises `ValueError` for what is no regular expression.
    """
    if not text or text == "*":
        return lambda _: True
    if _NAMES.fullmatch(text):
        names = frozenset(text.split("|"))
        return lambda subject: subject is None or subject in names
    try:
        found = SchemaValidator(core_schema.str_schema(pattern=text, regex_engine="rust-regex"))
    except SchemaError as error:
        raise ValueError(f"{text!r} is no regular expression that is supported here") from error

    def matches(subject: str | None) -> bool:
        if subject is None:
            return True
        try:
            found.validate_python(subject)
        except ValidationError:
            return False
        return True

    return matches
