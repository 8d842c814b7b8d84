"""The two forms of a stream: server-sent events, and a JSON object a line."""

from typing import Protocol

from starlette.requests import Request

from app.api.ndjson import Lines
from app.api.sse import Events
from app.runs.items import Comment, Delta, Framed, Preview


class Form(Protocol):
    """How what a stream sends is written. Every piece of it is whole frames, or lines."""

    @property
    def media_type(self) -> str: ...

    @property
    def heartbeat(self) -> bytes:
        """What says that the connection lives, and nothing else."""
        ...

    def opening(self, where: str) -> bytes:
        """Give the first bytes."""
        ...

    def item(self, item: Framed | Preview | Delta | Comment) -> bytes:
        """Give a row, a preview or a remark."""
        ...

    def told(self, event: str, body: bytes) -> bytes:
        """Give what is about the connection itself: `end`, `problem`."""
        ...


def wants_ndjson(request: Request) -> bool:
    """Whether the client asked for lines, and did so before it asked for events."""
    accepts = request.headers.get("accept", "")
    lines, events = accepts.find("application/x-ndjson"), accepts.find("text/event-stream")
    return lines >= 0 and (events < 0 or lines < events)


def wants_stream(request: Request) -> bool:
    """Whether the client asked for a stream at all."""
    return "text/event-stream" in request.headers.get("accept", "") or wants_ndjson(request)


def form_of(request: Request, *, is_wrapped: bool) -> Form:
    """Give the form that the client asked for."""
    return Lines(is_wrapped) if wants_ndjson(request) else Events(is_wrapped)
