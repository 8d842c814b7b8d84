"""What handlers ask for: the service and the caller."""

from typing import Annotated

from fastapi import Depends, Request

from app.errors import InvalidRequest, Unauthenticated
from app.runs.callers import Caller
from app.runs.service import Service

_LONGEST_KEY = 512


def running_service(request: Request) -> Service:
    """Give the running service."""
    found = request.app.state.service
    if not isinstance(found, Service):
        raise TypeError("the application was built without a service")
    return found


async def service(request: Request) -> Service:
    """Give the running service to a handler. Async, or each request would go through a thread."""
    return running_service(request)


ServiceDep = Annotated[Service, Depends(service)]


async def authenticate(request: Request) -> Caller:
    """Give who calls. Raises `Unauthenticated`: there is no open door, on loopback neither."""
    known = getattr(request.state, "caller", None)
    if isinstance(known, Caller):
        return known
    key = _key(request)
    found = await running_service(request).callers.of(key) if key else None
    if found is None:
        raise Unauthenticated(
            "Send a valid API key as `Authorization: Bearer KEY` or `x-api-key: KEY`. "
            "The operator makes one with `treadle keys create --name NAME`."
        )
    request.state.caller = found
    return found


CallerDep = Annotated[Caller, Depends(authenticate)]


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
