"""Differences of what begins early: the reference starts calls while their response streams (B10)."""

from collections.abc import Sequence
from itertools import pairwise

from app.providers.script import Step
from tests.traces.normal import Form, Json
from tests.traces.order import answered, uses
from tests.traces.previews import joined_deltas
from tests.traces.scenario import Scenario
from tests.traces.side_by_side import AGENT, thread_of
from tests.traces.turns import index_of


def results_follow_responses(form: Form, scenario: Scenario) -> None:
    """Put results that came while their response streamed behind it, and its calls into its order."""
    calls: dict[str, Json] = {}
    for message in list(form.messages):
        calls |= {call["id"]: call for call in uses(message)}
        call = calls.get(answered(message))
        if call is None or not _is_streaming(form, message):
            continue
        _check_moment(form, message, call, scenario.turns[0].steps[0])
        end = next(
            other
            for other in form.messages[index_of(form.messages, message) :]
            if other.get("event", {}).get("type") == "message_stop"
        )
        _move(form, message, behind=end)
        form.messages[:] = joined_deltas(form.messages)
        _call_in_its_place(form, call, scenario.turns[0].steps[0])


def _move(form: Form, message: Json, *, behind: Json) -> None:
    del form.messages[index_of(form.messages, message)]
    form.messages.insert(index_of(form.messages, behind) + 1, message)


def _is_streaming(form: Form, message: Json) -> bool:
    """Whether a message came in the middle of a response."""
    before = form.messages[: index_of(form.messages, message)]
    kinds = [m["event"]["type"] for m in before if "event" in m]
    return bool(kinds) and kinds[-1] != "message_stop"


def _check_moment(form: Form, result: Json, call: Json, step: Step) -> None:
    """Hold the place of an early result against how long its call lasts, as the deltas go."""
    at = index_of(form.messages, result)
    deltas = round(call["input"]["s"] / step.chunk_delay)
    before, after = form.messages[at - 1], form.messages[at + 1]
    if before["event"]["delta"] != {
        "type": "text_delta",
        "text": _said(step)[: deltas * step.chunk],
    }:
        raise ValueError("a result at another moment")
    if after["event"]["type"] != "content_block_delta":
        raise ValueError("a result at another moment")


def _said(step: Step) -> str:
    return next(str(block["text"]) for block in step.blocks if "text" in block)


def _call_in_its_place(form: Form, call: Json, step: Step) -> None:
    """Put a call into the place that its response gave it: the reference sends it last."""
    kinds = ["tool_use" if "tool" in block else "text" for block in step.blocks]
    for request in form.requests:
        for message in request["messages"]:
            if call in message["content"]:
                if [block["type"] for block in message["content"]] != kinds[::-1]:
                    raise ValueError("the reference sends its blocks in another order")
                message["content"].reverse()


def subagents_follow_responses(form: Form, _: Scenario) -> None:
    """Put the blocks of a response before what the subagents do that it begins."""
    blocks = [m for m in form.messages if uses(m) and m["parent_tool_use_id"] is None]
    for first, second in pairwise(blocks):
        if first["message"]["id"] == second["message"]["id"] and _begins_agent(first):
            _check_start(form.messages, first, second)
            _move(form, second, behind=first)


def _begins_agent(message: Json) -> bool:
    return bool(uses(message)[0]["name"] == AGENT)


def _check_start(messages: Sequence[Json], first: Json, second: Json) -> None:
    """Hold what stands between two blocks against what the reference tells there: a start."""
    between = messages[index_of(messages, first) + 1 : index_of(messages, second)]
    call = uses(first)[0]["id"]
    is_of_call = [thread_of(message) == call for message in between]
    kinds = [message.get("subtype", message["type"]) for message in between]
    if kinds != ["task_started", "user"] or not all(is_of_call):
        raise ValueError("a subagent begins at another moment")
