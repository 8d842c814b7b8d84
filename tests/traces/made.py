"""Messages and requests in normal form, made from a script.

Where a decision takes something out of a recording, it is first held against what the reference is
known to do: a recording that holds anything else is noticed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.providers.answer import answer_frames
from app.providers.script import Step
from tests.traces.fields import KEYS, MESSAGE_KEYS
from tests.traces.normal import Form, Json
from tests.traces.previews import event_form, joined_deltas
from tests.traces.spending import add_spend, total
from tests.traces.turns import USAGE, index_of, user_message

MODEL = "claude-sonnet-5"
"""The model that the recordings use."""
INPUT_TOKEN_USD = 0.000002
OUTPUT_TOKEN_USD = 0.00001
NOTHING: Mapping[str, int] = dict.fromkeys(USAGE, 0)

_ALWAYS = frozenset({"message", "parent_tool_use_id", "session_id", "timestamp", "type", "uuid"})
_FAILURE = frozenset({"api_error", "error", "is_api_error_message"})


def assistant(session_id: str, number: int, block: Json, usage: Mapping[str, int] = USAGE) -> Json:
    """Give a block of a response as the reference tells it, with its early snapshot."""
    body = {
        "keys": sorted(MESSAGE_KEYS),
        "content": [block],
        "id": f"msg-{number}",
        "model": MODEL,
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    return {
        "type": "assistant",
        "session_id": session_id,
        "keys": sorted(_ALWAYS),
        "parent_tool_use_id": None,
        "message": body,
    }


def synthetic(session_id: str, number: int, text: str, error: str, stop_reason: str) -> Json:
    """Give the message that tells of a lost connection, or of a limit."""
    told = assistant(session_id, number, words(text), NOTHING)
    told |= {"error": error, "is_api_error_message": True, "api_error": "connection_failed"}
    told["keys"] = sorted(_ALWAYS | _FAILURE)
    told["message"] |= {"model": "<synthetic>", "stop_reason": stop_reason, "usage": dict(NOTHING)}
    return told


def answer(session_id: str, number: int, step: Step, tool: int = 1) -> list[Json]:
    """Give the messages of a scripted response; its calls are numbered from `tool` on."""
    usage = {**USAGE, **step.usage}
    return [assistant(session_id, number, block, usage) for block in blocks_of(step, tool)]


def note(session_id: str, mark: str) -> Json:
    """Give a note of the loop."""
    told = user_message(session_id, [words(mark)])
    return {**told, "keys": sorted([*told["keys"], "isSynthetic"]), "isSynthetic": True}


def retry(session_id: str, attempt: int, max_retries: int) -> Json:
    """Give the word of a try that brought no answer."""
    told: Json = {
        "type": "system",
        "session_id": session_id,
        "subtype": "api_retry",
        "attempt": attempt,
        "max_retries": max_retries,
        "error_status": None,
        "error": "unknown",
    }
    own = {"attempt", "error", "error_status", "max_retries", "retry_delay_ms"}
    return {**told, "keys": sorted({"session_id", "subtype", "type", "uuid"} | own)}


def being_asked(session_id: str) -> Json:
    """Give the word that a model is being asked."""
    return {
        "type": "system",
        "session_id": session_id,
        "keys": ["session_id", "subtype", "type", "uuid"],
        "subtype": "status",
        "status": "requesting",
    }


def events_of(session_id: str, number: int, step: Step, tool: int = 1) -> list[Json]:
    """Give the previews of a scripted response, all events of it."""
    message_id = f"msg-{number}"
    events: list[Json] = []
    for frame in answer_frames(step, message_id=message_id, model=MODEL):
        event = json.loads(frame.split(b"data: ")[1])
        if event.get("content_block", {}).get("type") == "tool_use":
            event["content_block"]["id"] = f"tool-{tool}"
            tool += 1
        keys = KEYS["stream_event"] - ({"ttft_ms"} if events else set())
        events.append(
            {
                "type": "stream_event",
                "session_id": session_id,
                "keys": sorted(keys),
                "parent_tool_use_id": None,
                "event": event_form(event),
                "api_message_id": message_id,
            }
        )
    return joined_deltas(events)


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def blocks_of(step: Step, tool: int = 1) -> list[Json]:
    """Give the content of a scripted response."""
    blocks: list[Json] = []
    for block in step.blocks:
        if "tool" in block:
            used = {"type": "tool_use", "id": f"tool-{tool}", "name": block["tool"]}
            blocks.append({**used, "input": block["input"]})
            tool += 1
        elif "text" in block:
            blocks.append(words(block["text"]))
    return blocks


def said(role: str, *blocks: Json) -> Json:
    """Give a message of a request."""
    return {"role": role, "content": list(blocks)}


# -- putting ours in their place --------------------------------------------------------------


def put_messages(
    form: Form, turn: Sequence[Json], theirs: Sequence[Json], ours: Iterable[Json]
) -> None:
    """Put our messages between `init` and result. Raises `ValueError` where theirs are others."""
    if list(turn[1:-1]) != list(theirs):
        raise ValueError("the reference says something else")
    at = index_of(form.messages, turn[0]) + 1
    form.messages[at : at + len(theirs)] = ours


def put_requests(
    form: Form, theirs: Sequence[Sequence[Json]], ours: Iterable[Sequence[Json]]
) -> None:
    """Put our conversations in place of all that the reference sent."""
    if [request["messages"] for request in form.requests] != [list(each) for each in theirs]:
        raise ValueError("the reference asks something else")
    if any(request != {**form.requests[0], **_messages(request)} for request in form.requests):
        raise ValueError("the reference asks in another way")
    form.requests[:] = [{**form.requests[0], "messages": list(each)} for each in ours]


def _messages(request: Json) -> Json:
    return {"messages": request["messages"]}


def turn_into(
    result: Json,
    was: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    without: str = "",
    has: str = "",
) -> None:
    """Change a result's fields. `without`, `has`: keys whose values say nothing.

    Raises `ValueError` where the reference has another value, or a field that it should not.
    """
    if any(name not in result or result[name] != value for name, value in was.items()):
        raise ValueError("the reference ends in another way")
    keys = set(result["keys"])
    gone = (was.keys() - now.keys()) | set(without.split())
    new = (now.keys() - was.keys()) | set(has.split())
    if gone - keys or new & keys:
        raise ValueError("the reference's result has other fields")
    for name in gone & result.keys():
        del result[name]
    result.update(now)
    result["keys"] = sorted((keys - gone) | new)


def spend_instead(
    form: Form,
    result: Json,
    was: Sequence[Mapping[str, int]],
    now: Sequence[Mapping[str, int]],
) -> None:
    """Change what the session has spent from this result on."""
    before, after = total(was), total(now)
    change = {name: after[name] - before[name] for name in after}
    cost = change["input_tokens"] * INPUT_TOKEN_USD + change["output_tokens"] * OUTPUT_TOKEN_USD
    add_spend(form.messages, index_of(form.messages, result), MODEL, change, cost)
