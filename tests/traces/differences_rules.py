"""Differences of permissions: our own words for what is denied."""

import re

from tests.traces.normal import Form, Json, Like
from tests.traces.scenario import Scenario

_LONG = re.compile(r"<long:\d+\+ words>")
_NEEDS = Like(r".*\bneeds an approval\b.*", "Bash needs an approval: it changes files.")
_NEVER = Like(r".*\bdontAsk\b.*", "Bash is not allowed, and in dontAsk nobody is asked.")


def denials_are_told_in_our_words(form: Form, _: Scenario) -> None:
    """Put our sentences where the recording has long ones; its short ones are kept to the letter."""
    for notice in form.messages:
        if notice.get("subtype") == "permission_denied" and _LONG.fullmatch(notice["said"]):
            is_mode = notice.get("decision_reason_type") == "mode"
            _rewrite(form, notice, _NEVER if is_mode else _NEEDS)


def _rewrite(form: Form, notice: Json, ours: Like) -> None:
    """Put our words into a notice, and into the result that must say the same as it."""
    theirs, call = notice["said"], notice["tool_use_id"]
    notice["said"] = ours
    (told,) = [
        message
        for message in form.messages
        if message["type"] == "user" and _blocks_of(message["message"], call)
    ]
    if told["tool_use_result"] != theirs:
        raise ValueError("the result of a denied call says something else")
    told["tool_use_result"] = Like(f"Error: {ours.pattern}", f"Error: {ours.example}")
    asked = [message for request in form.requests for message in request["messages"]]
    for message in (told["message"], *asked):
        for block in _blocks_of(message, call):
            if block["content"] != theirs:
                raise ValueError("the result of a denied call says something else")
            block["content"] = ours


def _blocks_of(message: Json, call: str) -> list[Json]:
    return [block for block in message["content"] if block.get("tool_use_id") == call]
