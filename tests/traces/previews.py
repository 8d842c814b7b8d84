"""Partial messages in the normal form: what the provider streamed, whatever the pieces."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.traces.fields import USAGE_FIELDS

Json = dict[str, Any]


def event_form(event: Mapping[str, Any]) -> Json:
    """Give what a trace fixes of an event."""
    form = dict(event)
    match event["type"]:
        case "message_start":
            usage = _picked(event["message"]["usage"], USAGE_FIELDS)
            form["message"] = {"id": event["message"]["id"], "usage": usage}
        case "message_delta":
            form["delta"] = _picked(event["delta"], ("stop_reason",))
            form["usage"] = _picked(event["usage"], USAGE_FIELDS)
        case "content_block_start":
            # A signature comes in a delta; what stands here before is the provider's affair.
            block = event["content_block"]
            form["content_block"] = {k: v for k, v in block.items() if k != "signature"}
        case "content_block_delta" if event["delta"] == _SIGNED:
            form["delta"] = {**_SIGNED, "signature": "<sig>"}
    return form


_SIGNED: Json = {"type": "signature_delta", "signature": "c2ln"}
"""The signature that the recorded model gave."""


def name_previews(messages: Iterable[Json]) -> None:
    """Note at each event of a trace which response it is of: traces show only that it says so."""
    newest = ""
    for message in messages:
        if "event" in message:
            newest = message["event"].get("message", {}).get("id", newest)
            if "api_message_id" in message["keys"]:
                message["api_message_id"] = newest


def joined_deltas(messages: Iterable[Json]) -> list[Json]:
    """Put deltas of one block that follow each other together: their number says nothing."""
    joined: list[Json] = []
    for message in messages:
        before = joined[-1] if joined else {}
        if kind := _joint(before, message):
            texts = (before["event"]["delta"][kind], message["event"]["delta"][kind])
            event = {**message["event"], "delta": {**message["event"]["delta"]}}
            event["delta"][kind] = "".join(texts)
            joined[-1] = {**message, "event": event}
        else:
            joined.append(message)
    return joined


def _joint(first: Json, second: Json) -> str | None:
    """Give the name of the text that two deltas share, if one goes on where the other stops."""
    (one, kind), (other, of_other) = _delta(first), _delta(second)
    return kind if kind is not None and kind == of_other and one == other else None


def _delta(message: Json) -> tuple[Json, str | None]:
    """Give all of a delta but its text, and the name of the text."""
    delta = message.get("event", {}).get("delta", {})
    kind = next((k for k in ("text", "thinking", "partial_json") if k in delta), None)
    rest = {k: v for k, v in delta.items() if k != kind}
    return {**message, "event": {**message.get("event", {}), "delta": rest}}, kind


def _picked(source: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: source[name] for name in names}
