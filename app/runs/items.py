"""What streams are made of: rows, pieces of messages that are on their way, the end."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import orjson

from app.domain.model import StreamPart
from app.domain.value import value
from app.store.rows import Row

EndReason = Literal["run_finished", "server_shutdown", "slow_reader", "max_age"]


@value
class Framed:
    """A durable row with its SSE frame."""

    row: Row
    frame: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Preview:
    """A piece of a message that is on its way: best effort, no id."""

    run_id: str
    data: bytes
    """Its JSON."""
    is_text: bool = False
    """Whether `previews=text` shows it."""
    message_id: str | None = None
    """The message that it is a piece of; None for a whole message that is never journalled."""
    part: StreamPart | None = None
    """The event in it."""
    aborts: str | None = None
    """Why the message will not be completed."""

    @property
    def begins(self) -> bool:
        """Whether its message begins with it."""
        return self.part is not None and self.part.event.get("type") == "message_start"


@dataclass(slots=True, eq=False)
class Delta:
    """Some more of a block, encoded when it is taken first: until then it can be joined."""

    run_id: str
    session_id: str
    uuid: str
    message_id: str
    index: int
    kind: str
    key: str
    """Where the text stands in the delta."""
    text: str
    _data: bytes | None = None
    begins: ClassVar[bool] = False
    aborts: ClassVar[str | None] = None

    @property
    def is_text(self) -> bool:
        """Whether `previews=text` shows it."""
        return self.kind == "text_delta"

    @property
    def part(self) -> StreamPart:
        """The event in it."""
        delta = {"type": self.kind, self.key: self.text}
        event = {"type": "content_block_delta", "index": self.index, "delta": delta}
        return StreamPart(event, self.message_id)

    @property
    def data(self) -> bytes:
        """Its JSON."""
        if self._data is None:
            self._data = stream_event(self.session_id, self.uuid, self.part)
        return self._data

    def continues(self, other: "Item") -> bool:
        """Whether it can be joined to `other`, which came just before it."""
        return (
            isinstance(other, Delta)
            and self.index == other.index
            and self.kind == other.kind
            and self.message_id == other.message_id
        )


@dataclass(frozen=True, slots=True)
class Comment:
    """A remark between frames, which parsers pass over."""

    run_id: str
    text: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing more comes on this connection."""

    reason: EndReason


Piece: TypeAlias = Preview | Delta
Item: TypeAlias = Framed | Preview | Delta | Comment | End

JOINABLE = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}
"""Kinds of deltas that mean the same in one piece or in many, and where their text stands."""


def stream_event(session_id: str, uuid: str, part: StreamPart) -> bytes:
    """Give the JSON of a `stream_event` message."""
    body: dict[str, Any] = {
        "type": "stream_event",
        "session_id": session_id,
        "uuid": uuid,
        "parent_tool_use_id": None,
        "api_message_id": part.message_id,
        "event": part.event,
    }
    if part.ttft_ms is not None:
        body["ttft_ms"] = part.ttft_ms
    return orjson.dumps(body)


def piece_of(part: StreamPart, *, session_id: str, run_id: str, uuid: str) -> Piece:
    """Make an event ready for readers."""
    event = part.event
    delta = event.get("delta")
    if delta is not None and len(event) == 3 and len(delta) == 2:
        kind = delta.get("type")
        key, index = JOINABLE.get(kind), event.get("index")
        if key is not None and key in delta and index is not None:
            text = delta[key]
            return Delta(run_id, session_id, uuid, part.message_id, index, kind, key, text)
    return Preview(
        run_id,
        stream_event(session_id, uuid, part),
        is_text=delta is not None and delta.get("type") == "text_delta",
        message_id=part.message_id,
        part=part,
    )


def aborted(session_id: str, run_id: str, message_id: str, reason: str) -> Preview:
    """Give what closes a message that will not be completed."""
    body = {
        "type": "service_preview_aborted",
        "session_id": session_id,
        "message_id": message_id,
        "reason": reason,
    }
    return Preview(run_id, orjson.dumps(body), True, message_id, aborts=reason)  # noqa: FBT003 - is_text
