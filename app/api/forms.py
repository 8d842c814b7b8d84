"""The two forms of a stream: server-sent events, and a JSON object a line."""

import re
from collections.abc import Sequence
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


_EVENTS, _LINES, _JSON = "text/event-stream", "application/x-ndjson", "application/json"


def wants_ndjson(request: Request) -> bool:
    """Whether the client would rather have lines than events."""
    return _preferred(request, _EVENTS, _LINES) == _LINES


def wants_stream(request: Request) -> bool:
    """Whether the client would rather have a stream than one answer."""
    return _preferred(request, _EVENTS, _LINES, _JSON) in {_EVENTS, _LINES}


def _preferred(request: Request, *offered: str) -> str | None:
    """Give what the client likes best of what it names itself; of its equals, what it names first."""
    best, liking = None, 0.0
    for part in ",".join(request.headers.getlist("accept")).split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if kind in offered and (quality := _quality(parameters)) > liking:
            best, liking = kind, quality
    return best


def _quality(parameters: Sequence[str]) -> float:
    """Read a weight as RFC 9110 has it: 1 when there is none; one that is no number says nothing."""
    given = next((value for value in parameters if value.startswith("q=")), "q=1")[2:]
    return float(given) if _QUALITY.fullmatch(given) else 1.0


_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")


def form_of(request: Request, *, is_wrapped: bool) -> Form:
    """Give the form that the client asked for."""
    return Lines(is_wrapped) if wants_ndjson(request) else Events(is_wrapped)
