"""Errors as problem+json (RFC 9457): the only place that knows them.

Every answer names what to do, and none holds a stack trace, a secret or a host path.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.api.pointers import body_pointer
from app.errors import (
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    RequestError,
    UnsupportedMediaType,
    UnsupportedOption,
    ValidationFailed,
)
from app.runs.outages import GONE, gone

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_BY_STATUS: Mapping[int, type[RequestError]] = {
    400: InvalidRequest,
    404: NotFound,
    405: MethodNotAllowed,
    413: PayloadTooLarge,
    415: UnsupportedMediaType,
}


class FieldError(BaseModel):
    """What is wrong with one field."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    pointer: str
    """JSON pointer into the body, or the name of a parameter."""
    code: str
    message: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {
                    "type": "/problems/not-found",
                    "title": "No such resource",
                    "status": 404,
                    "detail": "There is no such run.",
                    "instance": "/v1/runs/run_01J0000000000000000000000",
                    "code": "not_found",
                    "request_id": "req_01J0000000000000000000000",
                    "retryable": False,
                    "errors": [],
                    "context": {},
                }
            ]
        },
    )

    type: str
    """Where the problem is explained, on this service."""
    title: str
    status: int
    detail: str
    instance: str
    """Path of the request."""
    code: str
    """The stable word for machines."""
    request_id: str
    retryable: bool
    """Whether the same request may work later."""
    errors: list[FieldError] = []
    context: dict[str, Any] = {}


def problem_response(
    request: Request, error: RequestError, further_headers: Mapping[str, str] | None = None
) -> Response:
    """Give the answer for an error."""
    headers = {**(further_headers or {}), "x-should-retry": "true" if error.retryable else "false"}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = problem_json(
        error, instance=request.url.path, request_id=getattr(request.state, "request_id", "")
    )
    return Response(body, error.status, headers, MEDIA_TYPE)


def problem_json(error: RequestError, *, instance: str, request_id: str) -> bytes:
    """Give the JSON of a problem, on one line."""
    return orjson.dumps(
        {
            "type": f"/problems/{error.code.replace('_', '-')}",
            "title": error.title,
            "status": error.status,
            "detail": error.detail,
            "instance": instance,
            "code": error.code,
            "request_id": request_id,
            "retryable": error.retryable,
            "errors": error.errors,
            "context": error.context,
        }
    )


def unforeseen(error: Exception, request_id: str) -> RequestError:
    """Log an error that nobody foresaw; give what the client may know of it."""
    log.error(
        "A request failed",
        exc_info=error,
        extra={"action": "request_failed", "request_id": request_id},
    )
    return RequestError("The service failed. Quote the request_id to the operator.")


def install_problems(app: FastAPI) -> None:
    """Answer every error in problem form; those that nobody foresaw are left to the guard."""

    async def known(request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestError):
            raise error
        return problem_response(request, error)

    async def invalid(request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestValidationError):
            raise error
        return problem_response(request, _invalid(error.errors(), error.body))

    async def http(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        kind = _BY_STATUS.get(error.status_code, InvalidRequest)
        detail = _NO_PATH if kind is NotFound else str(error.detail)
        headers = {"Allow": _allowed(request)} if kind is MethodNotAllowed else {}
        return problem_response(request, kind(detail), headers)

    async def database_gone(request: Request, error: Exception) -> Response:
        return problem_response(request, gone(error))

    app.add_exception_handler(RequestError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    for kind in GONE:
        app.add_exception_handler(kind, database_gone)


_NO_PATH = "There is no such path. Those there are stand in /openapi.json, and readable at /docs."


def _allowed(request: Request) -> str:
    """Give the methods of all routes of a path; the framework only knows the first one's."""

    def is_known(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return ", ".join(method for method in ("DELETE", "GET", "PATCH", "POST") if is_known(method))


def _invalid(found: Sequence[Mapping[str, Any]], body: object) -> RequestError:
    errors = [_field_error(error, body) for error in found]
    first = errors[0]
    detail = f"{first['pointer'] or 'The body'}: {first['message']}"
    if any(error["code"] == "unsupported_option" for error in errors):
        return UnsupportedOption(detail, errors=errors)
    return ValidationFailed(detail, errors=errors)


_MISSING = frozenset({"missing", "union_tag_not_found"})


def _field_error(error: Mapping[str, Any], body: object) -> dict[str, str]:
    place, *path = error["loc"]
    if option := error.get("ctx", {}).get("option"):
        path.append(option)
    tag = str(error.get("ctx", {}).get("discriminator", ""))
    if tag.startswith("'"):  # the field that says which form a body has
        path.append(tag.strip("'"))
    pointer = ".".join(map(str, path))
    if place == "body":
        pointer = body_pointer(path, body, is_missing=error["type"] in _MISSING)
    return {"pointer": pointer, "code": str(error["type"]), "message": _message(error, pointer)}


def _message(error: Mapping[str, Any], pointer: str) -> str:
    match error["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing" if not pointer:
            return "a JSON object is needed"
        case "union_tag_not_found":
            return "Field required"
        case "union_tag_invalid":
            return f"must be one of {error['ctx']['expected_tags']}"
        case "model_attributes_type" | "model_type" | "dict_type":
            return "must be a JSON object"
        case _:
            return str(error["msg"]).removeprefix("Value error, ")
