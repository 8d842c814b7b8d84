"""Messages that are on their way, for readers of previews; and what such readers hold."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.domain.model import StreamPart
from app.runs.items import Comment, Delta, Item, Preview

Block = tuple[str, int]
"""A message's id and an index in it."""


def parts_of(message_id: str, blocks: Iterable[Iterable[str]]) -> list[StreamPart]:
    """Give the events of a response of text blocks, each given by its pieces."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": message_id, "content": []}}
    ]
    for index, pieces in enumerate(blocks):
        begun = {"type": "text", "text": ""}
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "text_delta", "text": piece},
            }
            for piece in pieces
        ]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
    events.append({"type": "message_stop"})
    return [StreamPart(event, message_id) for event in events]


@dataclass(slots=True)
class Screen:
    """What a client holds that only ever appends, and never begins anew."""

    texts: dict[Block, str] = field(default_factory=dict)
    open: set[Block] = field(default_factory=set)
    kinds: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    def show(self, item: Item) -> None:
        """Take what a reader got."""
        if isinstance(item, Comment):
            self.kinds.append(item.text)
        elif isinstance(item, (Preview, Delta)):
            self.show_body(orjson.loads(item.data))

    def show_body(self, body: dict[str, Any]) -> None:
        """Take the JSON of a preview."""
        if body["type"] == "service_preview_aborted":
            self.aborted.append(body["message_id"])
            return
        if body.get("subtype") == "status":
            return  # what the run is about, not what it says
        assert body["type"] == "stream_event"
        event = body["event"]
        self.kinds.append(event["type"])
        block = (body["api_message_id"], event.get("index", -1))
        match event["type"]:
            case "content_block_start":
                assert block not in self.texts
                self.texts[block] = ""
                self.open.add(block)
            case "content_block_delta":
                assert block in self.open, "a delta of a block that never began, or is over"
                self.texts[block] += event["delta"]["text"]
            case "content_block_stop":
                self.open.remove(block)
            case _:
                pass
