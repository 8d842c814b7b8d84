"""Bodies: JSON that can be stored faithfully, or a 400 that says where it is not."""

import json
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from app.api.deps import authenticate
from app.api.params import METADATA_PARAMETER
from app.domain.text import MAX_JSON_DEPTH, is_too_deep
from app.errors import InvalidRequest, UnsupportedMediaType, ValidationFailed


class DecodedRequest(Request):
    """A request whose body has been decoded already."""

    decoded: Any = None

    async def json(self) -> Any:  # noqa: ANN401 - decoded JSON
        """Give the decoded body."""
        return self.decoded


class StrictRoute(APIRoute):
    """A route for known callers that reads its body strictly.

    Both happen before the framework reads anything: nobody's body is taken in before the key is
    known, and what is wrong with a body is said in our words.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler so that it sees a checked request."""
        handler = super().get_route_handler()
        known = _query_names(self.dependant)
        takes_metadata = self.openapi_extra == METADATA_PARAMETER

        async def strict(request: Request) -> Response:
            await authenticate(request)
            check_query(request, known, takes_metadata=takes_metadata)
            if self.body_field is None:
                return await handler(request)
            kind = request.headers.get("content-type", "application/json")
            if kind.split(";")[0].strip().lower() != "application/json":
                raise UnsupportedMediaType("Send the body as application/json.")
            decoded = DecodedRequest(request.scope, request.receive)
            body = await whole_body(decoded)
            decoded.decoded = decode(body) if body else None
            return await handler(decoded)

        return strict


def _query_names(needs: Dependant) -> set[str]:
    """Give the query parameters that a route and what it depends on take."""
    own = {field.alias for field in needs.query_params}
    return own.union(*map(_query_names, needs.dependencies))


def check_query(request: Request, known: Collection[str], *, takes_metadata: bool) -> None:
    """Refuse parameters that there are not: a filter that is misspelt must not show everything.

    Raises `ValidationFailed`.
    """
    unknown = [
        name
        for name in request.query_params
        if name not in known and not (takes_metadata and name.startswith("metadata"))
    ]
    if unknown:
        raise ValidationFailed(
            f"There is no parameter {unknown[0][:100]!r} here.",
            errors=[
                {"pointer": name[:100], "code": "unknown", "message": "there is no such parameter"}
                for name in unknown
            ],
        )


async def whole_body(request: Request) -> bytes:
    """Take a body in.

    Raises `UnsupportedMediaType` for one that is packed, and `InvalidRequest` when the client goes
    before its end.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise UnsupportedMediaType("Send the body as it is, without a Content-Encoding.")
    try:
        return await request.body()
    except ClientDisconnect:
        raise InvalidRequest("The connection ended inside the body.") from None


def decode(body: bytes) -> Any:  # noqa: ANN401 - decoded JSON
    """Decode a body without NaN, NUL, lone surrogates, repeated names or depth without bounds.

    Raises `InvalidRequest`.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _not_json(body, error) from None
    if body.count(b"[") + body.count(b"{") > MAX_JSON_DEPTH and is_too_deep(value):
        raise InvalidRequest(f"The body nests deeper than {MAX_JSON_DEPTH} levels.")
    if b"\\u0000" in body and (pointer := _nul(value, "")) is not None:
        raise InvalidRequest(
            f"The text at {pointer or 'the top'} holds a NUL, which cannot be stored.",
            errors=[{"pointer": pointer, "code": "nul", "message": "must not hold a NUL"}],
        )
    # The fast decoder keeps the last of two equal names and says nothing.
    json.loads(body, object_pairs_hook=_once_each, parse_int=_ignored, parse_float=_ignored)
    return value


def _not_json(body: bytes, error: orjson.JSONDecodeError) -> InvalidRequest:
    line, column, reason = error.lineno, error.colno, error.msg
    if "surrogate" in reason:
        reason = "half of a surrogate pair, which cannot be stored"
    try:
        body.decode()
    except UnicodeDecodeError as broken:  # the decoder names the beginning, not the place
        line = body.count(b"\n", 0, broken.start) + 1
        column = broken.start - body.rfind(b"\n", 0, broken.start)
        reason = "it is not UTF-8"
    return InvalidRequest(f"The body is not valid JSON (line {line}, column {column}): {reason}.")


def _once_each(pairs: list[tuple[str, object]]) -> None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise InvalidRequest(f"The name {name[:100]!r} stands twice in one object.")
        names.add(name)


def _ignored(_digits: str) -> None:
    """Spare the conversion."""


def _nul(value: object, pointer: str) -> str | None:
    """Give the pointer of the first text with a NUL."""
    match value:
        case str():
            return pointer if "\0" in value else None
        case list():
            items = ((f"{pointer}/{i}", item) for i, item in enumerate(value))
        case dict():
            if any("\0" in key for key in value):
                return pointer
            items = ((f"{pointer}/{key}", item) for key, item in value.items())
        case _:
            return None
    return next((found for at, item in items if (found := _nul(item, at)) is not None), None)
