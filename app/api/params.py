"""Parameters that routes share: what they are called, what they may be, what they mean."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends, Header, Query, Request
from pydantic import AfterValidator, AwareDatetime

from app.api.schemas.common import LONGEST_WAIT_S
from app.api.schemas.runs import RunStatus
from app.errors import CursorInvalid, ValidationFailed

Limit = Annotated[int, Query(ge=1, le=200, description="Most items of a page.")]
LogLimit = Annotated[int, Query(ge=1, le=1000, description="Most entries of a page.")]
Seq = Annotated[int, Query(ge=0, le=2**63 - 1, description="Entries beyond this seq.")]
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="The id of the last frame read; wins over `after`."),
]
Before = Annotated[
    int | None, Query(ge=0, le=2**63 - 1, description="Entries before this seq; default: all.")
]
Cursor = Annotated[
    str | None,
    Query(description="`next_cursor` of the page before, under the same order and filters."),
]
Order = Annotated[
    Literal["asc", "desc"], Query(description="By age: `asc` gives the oldest first.")
]
StreamAfter = Annotated[
    str | None,
    Query(description="The seq to begin behind, or `latest` for only what is new."),
]
OfSession = Annotated[str | None, Query(max_length=200, description="Only those of this session.")]
OfRun = Annotated[str | None, Query(max_length=200, description="Only those of this run.")]
OfUser = Annotated[
    str | None, Query(description="Only those of sessions that were made for this `user`.")
]
SearchText = Annotated[
    str,
    Query(
        min_length=1,
        max_length=500,
        description='Words that must all be there; "in quotes" in a row; `or`, `-without`.',
    ),
]


def _of_our_days(at: datetime) -> datetime:
    if not 1970 <= at.year < 3000:  # the database's calendar has an end
        raise ValueError("must be a time from 1970 to 2999")
    return at


_Time = Annotated[AwareDatetime, AfterValidator(_of_our_days)]
CreatedAfter = Annotated[_Time | None, Query(description="Made then, or later.")]
CreatedBefore = Annotated[_Time | None, Query(description="Made before then.")]
View = Annotated[
    Literal["full", "active"],
    Query(description="All messages, or those that the model still sees after compactions."),
]
Thread = Annotated[
    str | None,
    Query(
        max_length=200,
        description="Only messages of the subagent that this call began, its text and thoughts "
        "among them.",
    ),
]
RunStatuses = Annotated[list[RunStatus] | None, Query(description='Repeat it for "or".')]
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


METADATA_PARAMETER = {
    "parameters": [
        {
            "name": "metadata",
            "in": "query",
            "style": "deepObject",
            "explode": True,
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
            "description": "Names and values that must all be there: `metadata[ticket]=A-1`.",
        }
    ]
}
"""What routes that take a `MetadataFilter` add to their OpenAPI."""


async def _metadata_filter(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if not name.startswith("metadata"):
            continue
        if not (name.startswith("metadata[") and name.endswith("]")) or name in found:
            why = "must be given as metadata[name]=value, each name once"
            raise ValidationFailed(
                f"The filter {name[:100]!r} {why}.",
                errors=[{"pointer": "metadata", "code": "malformed", "message": why}],
            )
        found[name] = value
    return {name[len("metadata[") : -1]: value for name, value in found.items()}


MetadataFilter = Annotated[dict[str, str], Depends(_metadata_filter)]
