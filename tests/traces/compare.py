"""The comparer: where what our service did departs from what a trace fixes."""

import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import Any

from tests.traces.differences import expected_form
from tests.traces.normal import Form, Json, Like, Record, form_of_record
from tests.traces.order import settle
from tests.traces.scenario import scenario_of
from tests.traces.story import Line

_LONG = re.compile(r"<long:(?:\d+\+ words|tool_use_error|api_error_text)>")


def disagreements(lines: Sequence[Line], record: Record) -> list[str]:
    """Compare; give one line a disagreement, none when the record agrees with the trace.

    Raises `ValueError` for a trace or a record that makes no sense by itself.
    """
    scenario = scenario_of(lines)
    expected = expected_form(lines, scenario)
    return list(compare_forms(expected, form_of_record(record)))


def compare_forms(expected: Form, actual: Form) -> Iterator[str]:
    """Compare two normal forms, the order of ties aside; yield one line a disagreement."""
    messages = (settle(expected.messages), settle(actual.messages))
    yield from _compare("messages", *messages)
    yield from _compare("requests", expected.requests, actual.requests)
    yield from _compare("tool_events", expected.tool_events, actual.tool_events)
    yield from _compare("hooks", expected.hooks, actual.hooks)


def _compare(what: str, expected: Sequence[Any], actual: Sequence[Any]) -> Iterator[str]:
    if len(expected) != len(actual):
        yield f"{what}: {len(expected)} expected, {len(actual)} came"
        wanted, got = ([outline(item) for item in side] for side in (expected, actual))
        yield from unified_diff(wanted, got, "expected", "came", lineterm="")
        return
    for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
        yield from _unequal(f"{what}[{index}]", one, other)


def _unequal(path: str, wanted: Any, got: Any) -> Iterator[str]:  # JSON values
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in sorted(wanted.keys() | got.keys()):
            if key not in got or key not in wanted:
                side = "is missing" if key not in got else f"came unasked: {got[key]!r}"
                yield f"{path}.{key} {side}"
            else:
                yield from _unequal(f"{path}.{key}", wanted[key], got[key])
    elif isinstance(wanted, list) and isinstance(got, list):
        yield from _compare(path, wanted, got)
    elif not _agree(wanted, got):
        yield f"{path}: {wanted!r} expected, {got!r} came"


def _agree(wanted: object, got: object) -> bool:
    if isinstance(wanted, Like):
        return isinstance(got, str) and re.fullmatch(wanted.pattern, got, re.DOTALL) is not None
    if isinstance(wanted, str) and _LONG.fullmatch(wanted):
        return isinstance(got, str) and _is_of_family(wanted, got)
    return wanted == got and isinstance(wanted, bool) == isinstance(got, bool)


def _is_of_family(mark: str, text: str) -> bool:
    if mark == "<long:tool_use_error>":
        return re.fullmatch(r"<tool_use_error>.+</tool_use_error>", text, re.DOTALL) is not None
    return len(text.split()) > 12 or len(text) > 140


def outline(item: Any) -> str:  # a message, a request, or an event
    """Give a line that tells an item from its neighbours."""
    if not isinstance(item, dict):
        return str(item)
    if "messages" in item:
        return " ".join(f"{m['role']}[{_kinds(m)}]" for m in item["messages"])
    kinds = _kinds(item["message"]) if "message" in item else item.get("subtype", "")
    return f"{item.get('type', item.get('role', ''))} {kinds}"


def _kinds(message: Json) -> str:
    return " ".join(_kind(block) for block in message["content"])


def _kind(block: Json) -> str:
    match block["type"]:
        case "tool_use":
            return f"{block['name']} {block['id']}"
        case "tool_result":
            return f"result {block['tool_use_id']}"
        case kind:
            return str(kind)
