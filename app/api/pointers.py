"""JSON pointers to what is wrong in a body."""

from collections.abc import Sequence

from pydantic.alias_generators import to_camel

_LONGEST_NAME = 200


def body_pointer(path: Sequence[int | str], body: object, *, is_missing: bool) -> str:
    """Give the pointer of an error that pydantic found at `path`.

    Its path also holds names that no client wrote: members of unions, and snake_case for a
    camelCase option. So the body is walked beside it: what is there counts, and the last name if
    the error is that it `is_missing`.
    """
    pointer, value, tagged = "", body, None
    for index, part in enumerate(path):
        is_last = index == len(path) - 1
        match value:
            case list() if isinstance(part, int):
                name: int | str = part
                value = value[part] if part < len(value) else None
            case dict() if part == value.get("type") and tagged is not value and not is_last:
                tagged = value
                continue
            case dict() if (found := _name_in(value, str(part))) is not None:
                name, value = found, value[found]
            case dict() if is_last and is_missing:
                name, value = part, None
            case _:
                continue
        pointer += f"/{_escaped(name)}"
    return pointer


def _name_in(value: dict[str, object], part: str) -> str | None:
    return next((name for name in (part, to_camel(part)) if name in value), None)


def _escaped(part: int | str) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")[:_LONGEST_NAME]
