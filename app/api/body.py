"""Bodies: JSON that can be stored faithfully, or a 400 that says where it is not."""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.domain.text import MAX_JSON_DEPTH, is_too_deep
from app.errors import InvalidRequest, UnsupportedMediaType


class StrictRequest(Request):
    """A request whose body is JSON without NaN, NUL or lone surrogates, at a bounded depth."""

    async def json(self) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the body. Raises `InvalidRequest`."""
        body = await self.body()
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise InvalidRequest(f"The body is not valid JSON ({where}): {error.msg}.") from None
        if is_too_deep(value):
            raise InvalidRequest(f"The body nests deeper than {MAX_JSON_DEPTH} levels.")
        if b"\\u0000" in body and (pointer := _nul(value, "")) is not None:
            raise InvalidRequest(
                f"The text at {pointer or 'the top'} holds a NUL, which cannot be stored.",
                errors=[{"pointer": pointer, "code": "nul", "message": "must not hold a NUL"}],
            )
        return value


class StrictRoute(APIRoute):
    """A route that reads its body strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler so that it sees a `StrictRequest`."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if self.body_field is not None:
                kind = request.headers.get("content-type", "application/json")
                if kind.split(";")[0].strip().lower() != "application/json":
                    raise UnsupportedMediaType("Send the body as application/json.")
            request = StrictRequest(request.scope, request.receive)
            return await handler(request)

        return strict


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
