"""Parameters that routes share: what they are called, what they may be, what they mean."""

from typing import Annotated, Literal

from fastapi import Header, Query

from app.api.schemas.common import LONGEST_WAIT_S
from app.api.schemas.runs import RunStatus
from app.errors import CursorInvalid

Limit = Annotated[int, Query(ge=1, le=200, description="Most items of a page.")]
LogLimit = Annotated[int, Query(ge=1, le=1000, description="Most entries of a page.")]
Seq = Annotated[int, Query(ge=0, le=2**63 - 1, description="Entries beyond this seq.")]
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="The id of the last frame read; wins over `after`."),
]
Order = Literal["asc", "desc"]
RunStatuses = Annotated[list[RunStatus] | None, Query()]
Previews = Annotated[
    Literal["none", "text", "all"] | None,
    Query(description="Partial messages. Default: all if the run includes them, else none."),
]
Wait = Annotated[
    int, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for the run's end.")
]
Envelope = Annotated[
    bool,
    Query(description="Wrap messages: frames `entry`, `{seq, run_id, message}` instead of it."),
]
SessionPreviews = Annotated[
    Literal["none", "text", "all"], Query(description="Partial messages of all runs.")
]
EventWait = Annotated[
    int,
    Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for an entry if there is none."),
]
CancelWait = Annotated[
    int, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait until it has stopped.")
]


def stream_start(last_event_id: str | None, after: str | None) -> int | None:
    """Give the cursor that a stream begins at: -1 means "live only", None "not said"."""
    # A browser that has read no frame yet has an empty id: that says nothing.
    given = last_event_id or after
    if not given:
        return None
    if given == "latest" and not last_event_id:
        return -1
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise CursorInvalid("The cursor must be a number: the id of a frame.")
    return int(given)
