"""JSON Schemas that clients write: checked before they are taken, bounded when they are used.

A schema is a program that somebody else wrote. So: references lead nowhere but into the schema
itself, patterns are matched by an engine without backtracking (that of pydantic), and every
evaluation has a limit of processor time, looked at before each keyword. The validator is that of
jsonschema; the keywords that it would match patterns with, or compare each item with each, are
replaced.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

import orjson
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import SchemaResource, specification_with

from app.domain.tools import JsonValue

MAX_BYTES = 65_536
MAX_DEPTH = 50
"""Levels of nesting of a schema; each level of the value takes two."""
MAX_PATTERN_CHARS = 1_000
CHECK_CPU_S = 2.0
"""Processor time that the check of a schema may take, about: a large one needs half a second."""
EVALUATE_CPU_S = 1.0
"""Processor time that the check of a value may take."""
MAX_PATTERN_WORK = 30_000_000
"""Steps of the pattern engine for one text: about 0.3 s."""
MAX_PROBLEMS = 5
_MAX_MESSAGE = 300

Path: TypeAlias = tuple[str | int, ...]


class SchemaRefused(ValueError):
    """A schema that is not taken. `path` leads to what is wrong with it."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class TooCostly(Exception):
    """An evaluation that reached its limit."""


# -- limits -----------------------------------------------------------------------------------

_ends_at: ContextVar[float] = ContextVar("_ends_at")


def _tick() -> None:
    """Raise `TooCostly` when the limit of the evaluation that is going on is reached."""
    # Of the thread, so that a busy host refuses nothing that an idle one takes.
    if time.thread_time() > _ends_at.get():
        raise TooCostly


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern))


_REPEATS = re.compile(r"(\)?)\{(\d*)(?:,(\d*))?\}")


def _weight(pattern: str) -> int:
    """Give a bound on the states of the pattern's automaton: repeated parts count each time."""
    nested, plain = 1, 1
    for is_group, low, high in _REPEATS.findall(pattern):
        times = max(int(low or 1), int(high or 1), 1)
        if is_group:
            nested *= times
        else:
            plain = max(plain, times)
    return len(pattern) * nested * plain


def _matches(pattern: str, text: str) -> bool:
    _tick()
    if _weight(pattern) * len(text) > MAX_PATTERN_WORK:
        raise TooCostly
    return _compiled(pattern).isinstance_python(text)


# -- keywords ---------------------------------------------------------------------------------

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Any]  # jsonschema's form; JSON values
Errors: TypeAlias = Iterator[ValidationError]


def _pattern(validator: Any, pattern: str, value: JsonValue, _: Any) -> Errors:  # noqa: ANN401
    if validator.is_type(value, "string") and not _matches(pattern, value):
        yield ValidationError(f"{value[:80]!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any,  # noqa: ANN401
    patterns: Mapping[str, Any],
    value: JsonValue,
    _: Any,  # noqa: ANN401
) -> Errors:
    for pattern, schema in patterns.items() if validator.is_type(value, "object") else ():
        for name, item in value.items():
            if _matches(pattern, name):
                yield from validator.descend(item, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any,  # noqa: ANN401
    further: Any,  # noqa: ANN401
    value: JsonValue,
    schema: Mapping[str, Any],
) -> Errors:
    if not validator.is_type(value, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, item in value.items():
        if name in known or any(_matches(pattern, name) for pattern in patterns):
            continue
        if further is False:
            yield ValidationError(f"the property {name[:80]!r} is not allowed")
        else:
            yield from validator.descend(item, further, path=name)


def _unique_items(validator: Any, is_wanted: bool, value: JsonValue, _: Any) -> Errors:  # noqa: ANN401
    if is_wanted and validator.is_type(value, "array"):
        seen = {_comparable(item) for item in value}
        if len(seen) < len(value):
            yield ValidationError("has items that are equal")


def _comparable(value: JsonValue) -> Any:  # noqa: ANN401 - anything that can stand in a set
    """Give what is equal exactly where JSON values are: 1 is 1.0, but not true."""
    _tick()
    if isinstance(value, dict):
        return frozenset((name, _comparable(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    return (isinstance(value, bool), value)


_OWN: Mapping[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}


def _ticking(keyword: Keyword) -> Keyword:
    def checked(validator: Any, wanted: Any, value: Any, schema: Any) -> Errors:  # noqa: ANN401
        _tick()
        yield from keyword(validator, wanted, value, schema) or ()

    return checked


def _bounded(draft: Any) -> type[Validator]:  # noqa: ANN401 - a class that jsonschema makes
    keywords = {**draft.VALIDATORS, **_OWN}
    ticking = {name: _ticking(keyword) for name, keyword in keywords.items()}
    made: type[Validator] = extend(draft, ticking)  # type: ignore[no-untyped-call] # so are its stubs
    return made


_DRAFTS = {
    f"https://json-schema.org/draft/{name}/schema": draft
    for name, draft in (("2020-12", Draft202012Validator), ("2019-09", Draft201909Validator))
} | {f"{scheme}://json-schema.org/draft-07/schema": Draft7Validator for scheme in ("http", "https")}
_BOUNDED = {name: _bounded(draft) for name, draft in _DRAFTS.items()}
_NEWEST = "https://json-schema.org/draft/2020-12/schema"


def _dialect(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$schema", _NEWEST)).removesuffix("#")


# -- a value against a schema -----------------------------------------------------------------


class Checker:
    """Holds values against a schema that was taken."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Without its own name and dialect: nothing then leads to another validator than ours.
        bare = {name: item for name, item in schema.items() if name not in {"$schema", "$id"}}
        self._validator = _BOUNDED[_dialect(schema)](bare, registry=Registry())

    def problems(self, value: JsonValue, *, cpu_s: float = EVALUATE_CPU_S) -> list[str]:
        """Say what is wrong with a value: a few lines, none when it fits.

        A value that cannot be checked within the limits does not fit. Blocks for `cpu_s` at most.
        """
        _ends_at.set(time.thread_time() + cpu_s)
        try:
            found = list(islice(self._validator.iter_errors(value), MAX_PROBLEMS))
        except TooCostly:
            return ["root: it takes too long to check this against the schema"]
        except (RecursionError, ArithmeticError, MemoryError):
            return ["root: this cannot be checked against the schema"]
        return [_line(error) for error in found]


def _line(error: ValidationError) -> str:
    message = error.message
    if len(message) > _MAX_MESSAGE:
        message = f"{message[: _MAX_MESSAGE // 2]} … {message[-_MAX_MESSAGE // 2 :]}"
    return f"{pointer(tuple(error.absolute_path)) or 'root'}: {message}"


def pointer(path: Path) -> str:
    """Give a JSON pointer; empty for the whole."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


# -- a schema itself --------------------------------------------------------------------------

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ONLY_AT_THE_TOP = ("$schema", "$id")


@lru_cache(maxsize=64)
def check_schema(text: bytes) -> None:
    """Check the JSON of a schema for values that are objects. Raises `SchemaRefused`.

    Blocks for `CHECK_CPU_S`, about: not for an event loop.
    """
    if len(text) > MAX_BYTES:
        raise SchemaRefused(f"the schema has more than {MAX_BYTES} bytes")
    schema: dict[str, Any] = orjson.loads(text)
    if schema.get("type", "object") != "object":
        raise SchemaRefused("must be `object`: the output is the input of a tool call", ("type",))
    if (dialect := _dialect(schema)) not in _DRAFTS:
        raise SchemaRefused("known are the drafts 2020-12, 2019-09 and 7", ("$schema",))
    _ends_at.set(time.thread_time() + CHECK_CPU_S)
    try:
        references = _walked(schema)
        draft = _DRAFTS[dialect]
        _check_form(draft, schema, ())
        _check_references(draft, schema, references)
        Checker(schema)._validator.is_valid({})  # noqa: SLF001 - ours; it must come to an end
    except TooCostly:
        raise SchemaRefused("the schema takes too long to check") from None
    except RecursionError:
        raise SchemaRefused("the schema refers to itself without end") from None


def _walked(schema: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """Look at every object in the schema, wherever it stands; give its references."""
    references: list[tuple[str, Path]] = []
    has_patterns = has_unevaluated = False
    level: list[tuple[Any, Path]] = [(schema, ())]
    for depth in range(MAX_DEPTH + 1):
        for value, path in level:
            if isinstance(value, dict):
                references += _looked_at(value, path, is_top=depth == 0)
                has_patterns |= "patternProperties" in value
                has_unevaluated |= "unevaluatedProperties" in value
        level = [child for value, path in level for child in _children(value, path)]
        if not level:
            break
    else:
        raise SchemaRefused(f"the schema nests deeper than {MAX_DEPTH} levels", level[0][1])
    if has_patterns and has_unevaluated:
        raise SchemaRefused("patternProperties and unevaluatedProperties cannot be combined here")
    return references


def _children(value: JsonValue, path: Path) -> Iterator[tuple[Any, Path]]:
    if isinstance(value, dict):
        yield from ((item, (*path, name)) for name, item in value.items())
    elif isinstance(value, list):
        yield from ((item, (*path, index)) for index, item in enumerate(value))


def _looked_at(value: Mapping[str, Any], path: Path, *, is_top: bool) -> Iterator[tuple[str, Path]]:
    _tick()
    for name in () if is_top else _ONLY_AT_THE_TOP:
        if isinstance(value.get(name), str):
            raise SchemaRefused("may stand at the top of the schema only", (*path, name))
    for name in _REFERENCES:
        if isinstance(target := value.get(name), str):
            if not target.startswith("#"):
                raise SchemaRefused("references to other documents are not followed", (*path, name))
            yield target, (*path, name)
    if isinstance(pattern := value.get("pattern"), str):
        _check_pattern(pattern, (*path, "pattern"))
    if isinstance(patterns := value.get("patternProperties"), dict):
        for pattern in patterns:
            _check_pattern(pattern, (*path, "patternProperties", pattern))


def _check_pattern(pattern: str, path: Path) -> None:
    _tick()
    if len(pattern) > MAX_PATTERN_CHARS:
        raise SchemaRefused(f"the pattern has more than {MAX_PATTERN_CHARS} characters", path)
    try:
        _compiled(pattern)
    except SchemaError as error:
        why = str(error).rsplit("error:", maxsplit=1)[-1].strip().splitlines()[-1]
        raise SchemaRefused(f"the pattern cannot be used: {why}", path) from None


def _check_form(draft: Any, schema: JsonValue, path: Path) -> None:  # noqa: ANN401 - as above
    for error in draft(draft.META_SCHEMA).iter_errors(schema):
        where = () if path else tuple(error.absolute_path)
        raise SchemaRefused(error.message[:_MAX_MESSAGE], (*path, *where))


def _check_references(
    draft: Any,  # noqa: ANN401 - as above
    schema: Mapping[str, Any],
    references: list[tuple[str, Path]],
) -> None:
    specification = specification_with(draft.META_SCHEMA["$schema"])
    bare = {name: item for name, item in schema.items() if name not in _ONLY_AT_THE_TOP}
    resource: SchemaResource = specification.create_resource(bare)
    resolver = Registry().resolver_with_root(resource)
    known: set[int] = {id(bare)}
    for target, path in references:
        try:
            found = resolver.lookup(target).contents
        except Unresolvable:
            raise SchemaRefused("leads nowhere in the schema", path) from None
        if id(found) not in known:
            known.add(id(found))
            _tick()
            _check_form(draft, found, path)  # it may stand where no schema is expected
