"""Differences of background tasks: our own words."""

import re

from tests.traces.normal import Form, Json, Like
from tests.traces.scenario import Scenario

_STARTED = Like(r".*background.*", "It runs in the background.")


def ends_are_told_in_our_words(form: Form, _: Scenario) -> None:
    """Put our words in for the end of a task. What the model is told of it is a reminder."""
    for message in form.messages:
        if message.get("subtype") == "task_notification" and message["task_id"] in _commands(form):
            description = _description(form, message["task_id"])
            if description not in message["summary"]:
                raise ValueError("the summary names another command")
            said = f'The background command "{description}" ended with exit code 0.'
            message["summary"] = Like(re.escape(said), said)


def _commands(form: Form) -> dict[str, str]:
    """Give the calls that started commands in the background, by task."""
    return {
        message["task_id"]: message["tool_use_id"]
        for message in form.messages
        if message.get("subtype") == "task_started" and message["task_type"] == "local_bash"
    }


def _description(form: Form, task_id: str) -> str:
    (started,) = [
        message
        for message in form.messages
        if message.get("subtype") == "task_started" and message["task_id"] == task_id
    ]
    return str(started["description"])


def starts_are_told_in_our_words(form: Form, _: Scenario) -> None:
    """Put our words in for the result of a call that started something in the background."""
    starts = set(_commands(form).values())
    told = [m["message"]["content"] for m in form.messages if m["type"] == "user"]
    asked = [m["content"] for request in form.requests for m in request["messages"]]
    for content in (*told, *asked):
        for block in content:
            if block.get("tool_use_id") in starts:
                _put(block)


def _put(block: Json) -> None:
    if block["content"] != "<long:30+ words>":
        raise ValueError("another result of a start")
    block["content"] = _STARTED
