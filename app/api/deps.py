"""What handlers ask for: the service, the caller, pages."""

import base64
import hashlib
from datetime import UTC, datetime
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


async def authenticate(request: Request) -> Caller:
    """Give who calls. Raises `Unauthenticated`: there is no open door, on loopback neither."""
    known = getattr(request.state, "caller", None)
    if isinstance(known, Caller):
        return known
    key = _key(request)
    found = await service(request).callers.of(key) if key else None
    if found is None:
        raise Unauthenticated(
            "Send a valid API key as `Authorization: Bearer KEY` or `x-api-key: KEY`. "
            "The operator makes one with `treadle keys create --name NAME`."
        )
    request.state.caller = found
    return found


async def caller(
    request: Request,
    _bearer: Annotated[object, Depends(_BEARER)],
    _header: Annotated[object, Depends(_HEADER)],
) -> Caller:
    """Give who calls; the parameters only show in the OpenAPI document how."""
    return await authenticate(request)


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


def list_tag(caller: Caller, order: str, *filters: object) -> str:
    """Name a list as one caller sees it, for its cursors: they are of no use anywhere else."""
    named = orjson.dumps([caller.tenant_id, order, *filters], default=str)
    return hashlib.blake2b(named, digest_size=9).hexdigest()


def encode_cursor(at: datetime, item_id: str, tag: str) -> str:
    """Give the opaque cursor of a list position."""
    raw = orjson.dumps([at.isoformat(), item_id, tag])
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_cursor(cursor: str | None, tag: str) -> tuple[datetime, str] | None:
    """Read a cursor. Raises `CursorInvalid` for one of another list, order or filter."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, item_id, its_tag = orjson.loads(base64.urlsafe_b64decode(padded))
        position = datetime.fromisoformat(at).astimezone(UTC), str(item_id)
        is_sane = position[1].isascii() and position[1].isprintable()
    except (ValueError, TypeError, OverflowError):
        raise CursorInvalid("The cursor is not one of ours.") from None
    if its_tag != tag or not is_sane:
        raise CursorInvalid("The cursor belongs to another list, order or filter.")
    return position


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
