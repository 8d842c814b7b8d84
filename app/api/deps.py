"""What handlers ask for: the service, the caller, pages."""

import base64
from datetime import datetime
from typing import Annotated

import orjson
from fastapi import Depends, Header, Query, Request
from fastapi.security import APIKeyHeader, HTTPBearer

from app.errors import CursorInvalid, InvalidRequest, Unauthenticated
from app.runs.callers import Caller
from app.runs.service import Service

_BEARER = HTTPBearer(auto_error=False, description="An API key.")
_HEADER = APIKeyHeader(name="x-api-key", auto_error=False, description="An API key.")
_LONGEST_KEY = 512


def service(request: Request) -> Service:
    """Give the running service."""
    found = request.app.state.service
    if not isinstance(found, Service):
        raise TypeError("the application was built without a service")
    return found


ServiceDep = Annotated[Service, Depends(service)]


async def caller(
    request: Request,
    service: ServiceDep,
    _bearer: Annotated[object, Depends(_BEARER)],
    _header: Annotated[object, Depends(_HEADER)],
) -> Caller:
    """Give who calls. Raises `Unauthenticated`: there is no open door, on loopback neither."""
    key = _key(request)
    found = await service.callers.of(key) if key else None
    if found is None:
        raise Unauthenticated(
            "Send a valid API key as `Authorization: Bearer KEY` or `x-api-key: KEY`. "
            "The operator makes one with `treadle keys create --name NAME`."
        )
    return found


CallerDep = Annotated[Caller, Depends(caller)]


def _key(request: Request) -> str | None:
    bearers = request.headers.getlist("authorization")
    keys = request.headers.getlist("x-api-key")
    if len(bearers) > 1 or len(keys) > 1:
        raise InvalidRequest("Send one key.")
    given = keys[0] if keys else ""
    if bearers:
        scheme, _, token = bearers[0].partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else given
    is_sane = given.isascii() and given.isprintable() and len(given) <= _LONGEST_KEY
    return given if given and is_sane else None


Limit = Annotated[int, Query(ge=1, le=200, description="Most items of a page.")]
LogLimit = Annotated[int, Query(ge=1, le=1000, description="Most entries of a page.")]
Seq = Annotated[int, Query(ge=0, le=2**63 - 1, description="Entries beyond this seq.")]
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="The id of the last frame read; wins over `after`."),
]


def encode_cursor(at: datetime, item_id: str, *, order: str, filters: str) -> str:
    """Give the opaque cursor of a list position."""
    raw = orjson.dumps([at.isoformat(), item_id, order, filters])
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_cursor(cursor: str | None, *, order: str, filters: str) -> tuple[datetime, str] | None:
    """Read a cursor. Raises `CursorInvalid` for one of another order or filter, or no cursor."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, item_id, its_order, its_filters = orjson.loads(base64.urlsafe_b64decode(padded))
        position = (datetime.fromisoformat(at), str(item_id))
    except (ValueError, TypeError):
        raise CursorInvalid("The cursor is not one of ours.") from None
    if (its_order, its_filters) != (order, filters):
        raise CursorInvalid("The cursor belongs to another order or filter.")
    return position


def stream_start(last_event_id: str | None, after: str | None) -> int | None:
    """Give the cursor that a stream begins at: -1 means "live only", None "not said"."""
    given = last_event_id if last_event_id is not None else after
    if given is None or given == "":
        return None
    if given == "latest" and last_event_id is None:
        return -1
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise CursorInvalid("The cursor must be a number: the id of a frame.")
    return int(given)
