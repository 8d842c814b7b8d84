"""Where requests go and with which headers: checked once, when a model is set up."""

import re
from collections.abc import Mapping

import httpx

from app.domain.model import ModelRequest
from app.errors import ConfigError

TASK_BUDGET_BETA = "task-budgets-2026-03-13"
"""The beta feature that task budgets need."""
_BETA = "anthropic-beta"
_API_VERSION = "2023-06-01"
_OWN_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
)
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie")


def messages_url(base_url: str) -> httpx.URL:
    """Give the address of the Messages API. Raises `ConfigError`."""
    wanted = "The model's base URL must be http(s)://host[:port][/path], without a password."
    try:
        url = httpx.URL(base_url.rstrip("/") + "/v1/messages")
    except httpx.InvalidURL as error:
        raise ConfigError(wanted) from error
    is_port = url.port is None or 0 < url.port < 65_536
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or not is_port:
        raise ConfigError(wanted)
    return url


def request_headers(
    api_key: str | None, auth_token: str | None, extra_headers: Mapping[str, str]
) -> httpx.Headers:
    """Give the headers of every request. Raises `ConfigError` for what no header can carry."""
    headers = httpx.Headers(
        {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "anthropic-version": _API_VERSION,
            "content-type": "application/json",
            "user-agent": "treadle",
        }
    )
    if api_key:
        headers["x-api-key"] = _header_value("API key", api_key.strip())
    if auth_token:
        headers["authorization"] = _header_value("auth token", f"Bearer {auth_token.strip()}")
    for name, value in extra_headers.items():
        if (
            name.lower() in _OWN_HEADERS
            or not name.isascii()
            or not name.replace("-", "").isalnum()
        ):
            raise ConfigError(f"The extra model header {name!r} cannot be set.")
        headers[name] = _header_value(name, value)
    return headers


def headers_for(request: ModelRequest, headers: httpx.Headers) -> Mapping[str, str]:
    """Add the beta features that a request needs to those that the operator asks for."""
    if not request.betas and request.task_budget_tokens is None:
        return headers
    names = [name.strip() for name in headers.get(_BETA, "").split(",")]
    names += request.betas
    if request.task_budget_tokens is not None:
        names.append(TASK_BUDGET_BETA)
    return {**headers, _BETA: ",".join(dict.fromkeys(name for name in names if name))}


def secrets_of(headers: httpx.Headers) -> tuple[str, ...]:
    """Give the values that no error text may repeat: those of headers named like credentials."""
    values = (value for name, value in headers.items() if _SECRET_NAME.search(name))
    return tuple(value.removeprefix("Bearer ") for value in values if value)


def _header_value(name: str, value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"The model's {name} holds characters that no header can carry.")
    return value
