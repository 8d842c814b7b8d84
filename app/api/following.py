"""Streams of runs, as routes answer with them."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request, Response

from app.api.forms import form_of
from app.api.streaming import Pace, StreamResponse, Subject
from app.runs.callers import Caller
from app.runs.items import Framed
from app.runs.listing import Row, RunRow
from app.runs.service import Service
from app.runs.topic import frame

FRAMES = {
    "text/event-stream": {"schema": {"type": "string"}},
    "application/x-ndjson": {"schema": {"type": "string"}},
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": FRAMES,
        "description": (
            "Frames: `message` (an SDK message), `service`, `preview`, `problem` (of this "
            "connection), `end` (with `reason`: `run_finished`, or, to come back with the "
            "cursor, `server_shutdown`, `slow_reader`, `max_age`). A stream without an `end` "
            "was cut. Comments are heartbeats. A preview is a piece of a message that is on its "
            "way; a reader that comes in its middle first gets what came before it, after the "
            "comment `snapshot`. The whole message follows: drop the pieces then. "
            "`Accept: application/x-ndjson` gives a line `{event, id, data}` for each frame, and "
            "empty lines as heartbeats."
        ),
    }
}


def stream_run(
    service: Service,
    caller: Caller,
    run: RunRow,
    *,
    after: int,
    previews: str | None,
    request: Request,
    is_wrapped: bool = False,
    is_promised: bool = True,
    known: Sequence[Row] = (),
) -> Response:
    """Stream a run. The stream of a run that was just started is promised: its slot is not refused.

    `known` are all rows that there are beyond `after`, when they are known already.
    """
    if previews is None:
        previews = "all" if run.options.get("include_partial_messages") else "none"
    return StreamResponse(
        service.queries.follow_run(
            caller.tenant_id, run, after=after, previews=previews, known=known
        ),
        Subject(run.session_id, run.id, after),
        form=form_of(request, is_wrapped=is_wrapped),
        pace=pace(service),
        slot=lambda: service.stream_slots.hold(caller, run.session_id, is_promised=is_promised),
        known=[Framed(row, frame(row)) for row in known if not row.is_aside],
    )


def pace(service: Service) -> Pace:
    """Give the limits of a stream's connection."""
    return Pace(service.stream_heartbeat_s, service.stream_send_timeout_s, service.stream_max_age_s)
