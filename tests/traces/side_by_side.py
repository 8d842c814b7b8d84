"""The order of what subagents do that run side by side: between two of them it says nothing.

Two correct runs may differ in it. So each of them is told to its end before the next one, in the
places that all of their messages have; their requests stand in one order whatever came first.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from tests.traces.order import answered, uses
from tests.traces.previews import Json

AGENT = "Agent"


def told_apart(messages: Sequence[Json]) -> list[Json]:
    """Put the messages of subagents that one response began into the order of its calls."""
    together = _begun_together(messages)
    waiting: dict[str, list[tuple[int, Json]]] = {}
    for message in messages:
        if (call := thread_of(message)) in together:
            response, number = together[call]
            waiting.setdefault(response, []).append((number, message))
    for rows in waiting.values():
        rows.sort(key=lambda row: row[0])
    return [
        waiting[together[call][0]].pop(0)[1]
        if (call := thread_of(message)) in together
        else message
        for message in messages
    ]


def asked_apart(requests: Sequence[Json], messages: Sequence[Json]) -> list[Json]:
    """Put requests of subagents that run side by side into an order of their own."""
    if not _begun_together(messages):
        return list(requests)
    prompts = [m["message"]["content"] for m in messages if _is_prompt(m)]
    begun = [[{"role": "user", "content": prompt}] for prompt in prompts]
    ordered: list[Json] = []
    for is_of_subagent, group in groupby(requests, lambda r: r["messages"][:1] in begun):
        asked = list(group)
        ordered += sorted(asked, key=_progress) if is_of_subagent else asked
    return ordered


def thread_of(message: Json) -> str:
    """Give the call of the subagent that a message is of, or tells of, or is the result of."""
    if message["type"] == "system":
        is_told = str(message.get("subtype")).startswith("task_")
        return str(message.get("tool_use_id", message.get("task_id"))) if is_told else ""
    return str(message.get("parent_tool_use_id") or answered(message))


def _begun_together(messages: Sequence[Json]) -> Mapping[str, tuple[str, int]]:
    """Give the calls of responses with several subagents: their response, and their place in it.

    A task goes by its own id too: what tells of its end may name nothing else.
    """
    begun: dict[str, list[str]] = {}
    for message in messages:
        for call in uses(message):
            if call["name"] == AGENT:
                begun.setdefault(message["message"]["id"], []).append(call["id"])
    found = {
        call: (response, number)
        for response, calls in begun.items()
        for number, call in enumerate(calls)
        if len(calls) > 1
    }
    tasks = {
        message["task_id"]: found[message["tool_use_id"]]
        for message in messages
        if message.get("subtype") == "task_started" and message["tool_use_id"] in found
    }
    return {**found, **tasks}


def _is_prompt(message: Json) -> bool:
    is_of_subagent = message["type"] == "user" and message["parent_tool_use_id"] is not None
    return is_of_subagent and [b["type"] for b in message["message"]["content"]] == ["text"]


def _progress(request: Json) -> tuple[int, str]:
    return len(request["messages"]), json.dumps(request, sort_keys=True)
