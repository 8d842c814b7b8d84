"""The message that a model is sending: what came so far.

Kept in memory while it is open, for a reader that joins in the middle (it gets the text before it)
and for a cancel (the text is not lost). Costs an append a delta.
"""

from dataclasses import dataclass, field
from typing import Any

from app.domain.model import PartialResponse, StreamPart
from app.domain.usage import Usage

_PIECE = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "signature_delta": "signature",
}
CHARACTERS_PER_TOKEN = 4


@dataclass(slots=True)
class OpenBlock:
    """One block of the open message."""

    start: dict[str, Any]
    """Its `content_block_start` event."""
    pieces: dict[str, list[str]] = field(default_factory=dict)
    """Pieces by kind of delta, in order."""
    others: list[dict[str, Any]] = field(default_factory=list)
    """Events of deltas that cannot be joined, such as citations."""
    stop: dict[str, Any] | None = None


@dataclass(slots=True)
class OpenMessage:
    """Collects the events of one response after another."""

    _start: StreamPart | None = None
    _blocks: list[OpenBlock] = field(default_factory=list)
    _tail: list[dict[str, Any]] = field(default_factory=list)
    """What came after the blocks."""

    def feed(self, part: StreamPart) -> None:
        """Take the next event."""
        event = part.event
        match event.get("type"):
            case "content_block_delta":
                delta = event["delta"]
                kind = delta.get("type")
                if not self._blocks:
                    return
                if kind in _PIECE:
                    self._blocks[-1].pieces.setdefault(kind, []).append(delta[_PIECE[kind]])
                else:
                    self._blocks[-1].others.append(event)
            case "message_start":
                self._start = part
                self._blocks, self._tail = [], []
            case "content_block_start":
                self._blocks.append(OpenBlock(event))
            case "content_block_stop":
                if self._blocks:
                    self._blocks[-1].stop = event
            case "message_delta" | "message_stop":
                self._tail.append(event)
            case _:
                pass

    def close(self) -> None:
        """Forget the message: it is complete, or void."""
        self._start = None
        self._blocks, self._tail = [], []

    @property
    def message_id(self) -> str | None:
        return self._start.message_id if self._start else None

    def snapshot(self) -> list[StreamPart]:
        """Give the events that bring a reader up to date, in the API's own shapes."""
        if self._start is None:
            return []
        message_id = self._start.message_id
        events: list[dict[str, Any]] = []
        for position, block in enumerate(self._blocks):
            events.append(block.start)
            index = block.start.get("index", position)
            for kind, pieces in block.pieces.items():
                delta = {"type": kind, _PIECE[kind]: "".join(pieces)}
                events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events += block.others
            if block.stop is not None:
                events.append(block.stop)
        events += self._tail
        return [self._start, *(StreamPart(event, message_id) for event in events)]

    def partial(self) -> PartialResponse | None:
        """Give what had come when the response was cut off; None when none was on its way."""
        if self._start is None:
            return None
        message = self._start.event.get("message") or {}
        texts = ("".join(block.pieces.get("text_delta", ())) for block in self._blocks)
        told = message.get("usage") or {}
        came = sum(len(p) for b in self._blocks for ps in b.pieces.values() for p in ps)
        usage = Usage(
            input_tokens=int(told.get("input_tokens") or 0),
            output_tokens=max(int(told.get("output_tokens") or 0), came // CHARACTERS_PER_TOKEN),
            cache_read_tokens=int(told.get("cache_read_input_tokens") or 0),
            cache_write_5m_tokens=int(told.get("cache_creation_input_tokens") or 0),
        )
        return PartialResponse(
            self._start.message_id,
            str(message.get("model") or ""),
            tuple(text for text in texts if text.strip()),
            usage,
        )
