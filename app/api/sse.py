"""Streams as server-sent events.

Rows carry their `seq` as id, previews none, so that a browser's last id always names a row.
"""

from dataclasses import dataclass

from app.api.entries import row_event
from app.runs.items import Comment, Delta, Framed, Preview

RETRY_MS = 2000


@dataclass(frozen=True, slots=True)
class Events:
    """The form that browsers read. Fits `Form`."""

    is_wrapped: bool = False
    media_type: str = "text/event-stream; charset=utf-8"
    heartbeat: bytes = b": hb\n\n"

    def opening(self, where: str) -> bytes:
        return f"retry: {RETRY_MS}\n: stream open {where}\n\n".encode()

    def item(self, item: Framed | Preview | Delta | Comment) -> bytes:
        match item:
            case Framed() if not self.is_wrapped:
                return item.frame
            case Framed(row):
                event, text = row_event(row, is_wrapped=True)
                return f"id: {row.seq}\nevent: {event}\ndata: {text}\n\n".encode()
            case Comment():
                return f": {item.text}\n\n".encode()
            case _:
                return b"event: preview\ndata: " + item.data + b"\n\n"

    def told(self, event: str, body: bytes) -> bytes:
        return b"event: " + event.encode() + b"\ndata: " + body + b"\n\n"
