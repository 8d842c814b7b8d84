"""A record that agrees with a trace, made of the trace alone: the meta-test starts from it."""

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from tests.traces.differences import expected_form
from tests.traces.fields import SAID
from tests.traces.normal import Json, Like, Record
from tests.traces.scenario import CWD, Scenario, scenario_of
from tests.traces.story import Line
from tests.traces.turns import turns_of


def agreeing_record(lines: Sequence[Line]) -> Record:
    """Give what a service would have done that follows the trace and our decisions."""
    scenario = scenario_of(lines)
    form = expected_form(lines, scenario)
    numbers = count(1)
    messages = [_wire(message, next(numbers)) for message in _spelt(form.messages)]
    _name_prompts(messages)
    requests = [_spelt(request) for request in form.requests]
    _with_scripts((messages, requests), scenario)
    return Record(messages, requests, form.tool_events, _spelt(form.hooks))


def _wire(message: Json, number: int) -> Json:
    """Give every key that the form says is there a value, and uuids of their own."""
    wire: Json = dict.fromkeys(message["keys"], 0) | message
    del wire["keys"]
    if "uuid" in wire:
        wire["uuid"] = f"00000000-0000-4000-8000-{number:012d}"
    if "compact_metadata" in wire:
        told = wire["compact_metadata"]
        parts = {name: dict.fromkeys(told[name], 0) for name in told if name.startswith("pres")}
        wire["compact_metadata"] = (
            dict.fromkeys(told["keys"], 0) | parts | {"trigger": told["trigger"]}
        )
    if "cwd" in wire:
        wire["cwd"] = CWD
    if SAID in wire:
        wire["message"] = wire.pop(SAID)
    elif "message" in wire:
        wire["message"] = dict.fromkeys(wire["message"]["keys"], 0) | wire["message"]
        del wire["message"]["keys"]
    if isinstance(note := wire.get("tool_use_result"), dict):
        wire["tool_use_result"] = dict.fromkeys(note["keys"], 0)
    elif note == "list":
        wire["tool_use_result"] = []
    return wire


def _name_prompts(messages: Sequence[Json]) -> None:
    """Let messages name the prompts that their runs took in."""
    for turn in turns_of(messages):
        taken = [message["uuid"] for message in turn if message.get("isReplay")]
        for message in turn:
            if "user_message_uuid" in message:
                message["user_message_uuid"] = taken[0]
            if "user_message_uuids" in message:
                message["user_message_uuids"] = taken[: len(message["user_message_uuids"])]


def _spelt(value: Any) -> Any:  # any JSON value
    """Put texts in place of patterns and marks."""
    if isinstance(value, dict):
        return {key: _spelt(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_spelt(item) for item in value]
    if isinstance(value, Like):
        return _spelt(value.example)
    if not isinstance(value, str):
        return value
    text = value.replace("<long:tool_use_error>", "<tool_use_error>no</tool_use_error>")
    text = re.sub(r"<long:.*>", "word " * 20, text)
    return text.replace("<cwd>", CWD).replace("<sig>", "c2lnbmF0dXJl")


def _with_scripts(everything: Any, scenario: Scenario) -> None:  # JSON values
    """Write the scripts back into the prompts."""
    for block in _text_blocks(everything):
        for prompt in scenario.prompts:
            words = prompt.text.partition("<<script")[0].split()
            if block["text"] == " ".join((*words, "<script>")):
                block["text"] = prompt.text


def _text_blocks(value: Any) -> Iterator[Json]:  # any JSON value
    if isinstance(value, dict):
        if value.get("type") == "text" and "text" in value:
            yield value
        for item in value.values():
            yield from _text_blocks(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _text_blocks(item)
