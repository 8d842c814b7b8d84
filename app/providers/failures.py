"""What went wrong with a model request, as one of our errors.

One table for HTTP answers and for `error` events inside a stream: the loop cannot tell them
apart and need not.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from app.domain.usage import Usage
from app.errors import (
    ContextTooLong,
    ModelError,
    ModelOverloaded,
    ModelRejected,
    ModelThrottled,
    ModelUnauthorized,
)
from app.providers.repair import loads_repaired, repaired_text

_MAX_MESSAGE_CHARS = 2_000
_MAX_REQUEST_ID_CHARS = 200
_MAX_RETRY_AFTER_S = 86_400.0
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_OF_STATUS: dict[int, tuple[type[ModelError], str]] = {
    401: (ModelUnauthorized, "authentication_failed"),
    402: (ModelRejected, "billing_error"),
    403: (ModelUnauthorized, "authentication_failed"),
    404: (ModelRejected, "model_not_found"),
    408: (ModelOverloaded, "server_error"),
    409: (ModelOverloaded, "server_error"),
    413: (ModelRejected, "invalid_request"),
    429: (ModelThrottled, "rate_limit"),
    529: (ModelOverloaded, "overloaded"),
}
_TOO_LONG = re.compile(
    r"prompt is too long|exceeds? (the )?(maximum )?context|maximum context length", re.IGNORECASE
)
_NO_CREDIT = re.compile(r"credit balance", re.IGNORECASE)
_WORDS = {"true": True, "false": False}
_KEY = re.compile(r"sk-[A-Za-z0-9_-]{8,}")


def failure_of_answer(
    status: int, headers: Mapping[str, str], body: bytes, secrets: tuple[str, ...]
) -> ModelError:
    """Build the error that an HTTP answer other than an event stream stands for."""
    error_type, message = _parse(body)
    if error_type is None and not message:
        message = f"HTTP {status} {_phrase(status)}".rstrip()
    failure = _failure(status, error_type, _clean(message, secrets))
    failure.request_id = request_id_of(headers)
    failure.retry_after_s = _retry_after_s(headers)
    failure.should_retry = _WORDS.get(headers.get("x-should-retry", ""))
    return failure


def failure_of_event(
    event: Mapping[str, Any], secrets: tuple[str, ...], request_id: str | None, usage: Usage | None
) -> ModelError:
    """Build the error that an `error` event inside a stream stands for."""
    error_type, message = _fields(event)
    status = _STATUS_OF_TYPE.get(error_type or "", 500)
    failure = _failure(status, error_type, _clean(message, secrets))
    failure.request_id, failure.usage = request_id, usage
    return failure


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """Give the provider's id of the request, of a length that can be stored."""
    value = headers.get("request-id")
    return None if value is None else value[:_MAX_REQUEST_ID_CHARS]


def _failure(status: int, error_type: str | None, message: str) -> ModelError:
    kind, category = _kind(status, message)
    text = message or error_type or _phrase(status)
    return kind(text, category=category, status=status, error_type=error_type)


def _kind(status: int, message: str) -> tuple[type[ModelError], str]:
    if status in _OF_STATUS:
        return _OF_STATUS[status]
    if status >= 500:
        return ModelOverloaded, "server_error"
    if status == 400 and _TOO_LONG.search(message):
        return ContextTooLong, "invalid_request"
    if status == 400 and _NO_CREDIT.search(message):
        return ModelRejected, "billing_error"
    return ModelRejected, "unknown"


def _parse(body: bytes) -> tuple[str | None, str]:
    try:
        value = loads_repaired(body)
    except ValueError:
        return None, ""
    return _fields(value) if isinstance(value, dict) else (None, "")


def _fields(value: Mapping[str, Any]) -> tuple[str | None, str]:
    error = value.get("error")
    if not isinstance(error, dict):
        return None, error if isinstance(error, str) else ""
    error_type, message = error.get("type"), error.get("message")
    return (
        error_type[:100] if isinstance(error_type, str) else None,
        message if isinstance(message, str) else "",
    )


def _clean(message: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        message = message.replace(secret, "[redacted]")
    return repaired_text(_KEY.sub("[redacted]", message))[:_MAX_MESSAGE_CHARS]


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return _bounded(millis / 1_000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if value is None or seconds is not None:
        return None if seconds is None else _bounded(seconds)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return _bounded((at - datetime.now(UTC)).total_seconds())


def _number(value: str | None) -> float | None:
    return float(value) if value and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_S)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "the model's server is overloaded" if status == 529 else ""
