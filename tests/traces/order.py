"""The order of tool results: which calls ran together, and which ended at the same time."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby

from tests.traces.previews import Json

READ_ONLY = frozenset({"Read", "Glob", "Grep", "mcp__m__ro", "StructuredOutput"})
"""Calls that run together with their neighbours, here as in the reference."""


def settle(messages: Sequence[Json]) -> list[Json]:
    """Put results of calls that ran together and end at the same time into the calls' order.

    Two correct runs may differ in them. Calls of the stand-in tools last as long as they were
    told to sleep; all others are quick.
    """
    return reorder_results(messages, _ties)


def _ties(calls: Sequence[Json]) -> list[Hashable]:
    groups = numbers_of_groups(calls, READ_ONLY)
    return [(group, _duration_s(call)) for group, call in zip(groups, calls, strict=True)]


def _duration_s(call: Json) -> float:
    is_sleeper = call["name"].startswith("mcp__")
    return float(call["input"].get("s", 0)) if is_sleeper else 0.0


def numbers_of_groups(calls: Sequence[Json], together: frozenset[str]) -> list[int]:
    """Number the groups in which calls run: neighbours of `together` share one, others don't."""
    groups: list[int] = []
    for is_shared, members in groupby(calls, lambda call: call["name"] in together):
        first = groups[-1] + 1 if groups else 0
        size = len(list(members))
        groups += [first] * size if is_shared else range(first, first + size)
    return groups


def reorder_results(
    messages: Sequence[Json], keys_of: Callable[[Sequence[Json]], Sequence[Hashable]]
) -> list[Json]:
    """Put results whose calls have equal keys into the calls' order, each in a place of theirs.

    `keys_of` gives the keys of the calls of one response, in order. All else stays.
    """
    calls_by_response: dict[str, list[Json]] = {}
    for message in messages:
        for call in uses(message):
            calls_by_response.setdefault(message["message"]["id"], []).append(call)
    key_of_call: dict[str, Hashable] = {}
    for response, calls in calls_by_response.items():
        for call, key in zip(calls, keys_of(calls), strict=True):
            key_of_call[call["id"]] = (response, key)
    order = list(key_of_call)
    waiting: dict[Hashable, list[Json]] = {}
    for message in messages:
        if (call_id := answered(message)) in key_of_call:
            waiting.setdefault(key_of_call[call_id], []).append(message)
    for same in waiting.values():
        same.sort(key=lambda message: order.index(answered(message)))
    return [
        waiting[key_of_call[call_id]].pop(0)
        if (call_id := answered(message)) in key_of_call
        else message
        for message in messages
    ]


def uses(message: Json) -> list[Json]:
    """Give the tool uses of a message in normal form."""
    return _content(message, "tool_use") if message["type"] == "assistant" else []


def answered(message: Json) -> str:
    """Give the id of the call that a message answers; empty if it is no result."""
    results = _content(message, "tool_result") if message["type"] == "user" else []
    return str(results[0]["tool_use_id"]) if results else ""


def _content(message: Json, kind: str) -> list[Json]:
    blocks: str | Iterable[Json] = message["message"]["content"]
    return [] if isinstance(blocks, str) else [b for b in blocks if b["type"] == kind]
