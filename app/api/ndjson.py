"""Streams as lines: one JSON object each, for programs without a reader of server-sent events.

A line is `{"event": …, "id": …, "data": …}`; only rows have an id. An empty line is a heartbeat.
"""

from dataclasses import dataclass

from app.api.entries import row_event
from app.runs.items import Comment, Delta, Framed, Preview


@dataclass(frozen=True, slots=True)
class Lines:
    """The form that `curl` and `jq` read. Fits `Form`."""

    is_wrapped: bool = False
    media_type: str = "application/x-ndjson; charset=utf-8"
    heartbeat: bytes = b"\n"

    def opening(self, where: str) -> bytes:  # noqa: ARG002 - this form has no remarks
        return b"\n"

    def item(self, item: Framed | Preview | Delta | Comment) -> bytes:
        match item:
            case Framed(row):
                event, text = row_event(row, is_wrapped=self.is_wrapped)
                return f'{{"event":"{event}","id":{row.seq},"data":{text}}}\n'.encode()
            case Comment():
                return b""
            case _:
                return self.told("preview", item.data)

    def told(self, event: str, body: bytes) -> bytes:
        return b'{"event":"' + event.encode() + b'","data":' + body + b"}\n"
