"""The order of what subagents do that run side by side: between two of them it says nothing.

Two correct runs may differ in it. So each of them is told to its end before the next one, in the
places that all of their messages have; their requests stand in one order whatever came first. What
one does in the background says nothing either beside what its parent does: it is told just before
its end, and asked behind all else.
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
    apart = [
        waiting[together[call][0]].pop(0)[1]
        if (call := thread_of(message)) in together
        else message
        for message in messages
    ]
    return _before_their_ends(apart)


def in_background(messages: Sequence[Json]) -> Mapping[str, Json]:
    """Give the starts of subagents in the background, by their calls."""
    return {
        message["tool_use_id"]: message
        for message in messages
        if message.get("subtype") == "task_started"
        and message.get("task_type") == "local_agent"
        and message.get("is_backgrounded")
    }


def _before_their_ends(messages: Sequence[Json]) -> list[Json]:
    begun = in_background(messages)
    said: dict[str, list[Json]] = {start["task_id"]: [] for start in begun.values()}
    others: list[Json] = []
    for message in messages:
        call = str(message.get("parent_tool_use_id") or "")
        if message.get("subtype") == "task_progress":
            call = message["tool_use_id"]
        if call in begun:
            said[begun[call]["task_id"]].append(message)
        else:
            others.append(message)
    told: list[Json] = []
    for message in others:
        if message.get("subtype") == "task_updated":
            told += said.pop(message["task_id"], [])
        told.append(message)
    return [*told, *(message for left in said.values() for message in left)]


def asked_apart(requests: Sequence[Json], messages: Sequence[Json]) -> list[Json]:
    """Put requests of subagents that run side by side into an order of their own."""
    starts = in_background(messages).values()
    openings = [[[{"type": "text", "text": start.get("prompt")}]] for start in starts]
    apart = [r for r in requests if [m["content"] for m in r["messages"][:1]] in openings]
    requests = [*(r for r in requests if r not in apart), *sorted(apart, key=_progress)]
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
