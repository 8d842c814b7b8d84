"""Answers that did not come, or not whole, as errors: each says what the lost part has cost."""

import ssl

import aiohttp

from app.errors import ModelRejected, ModelUnreachable
from app.providers.response import ResponseBuilder


def broken(what: str, request_id: str | None, builder: ResponseBuilder) -> ModelUnreachable:
    """A stream that does not follow the protocol, or ends too soon."""
    return ModelUnreachable(what, category="unknown", request_id=request_id, usage=builder.billed())


def too_large(request_id: str | None, builder: ResponseBuilder) -> ModelRejected:
    """A response beyond our bounds: asking again would not make it smaller."""
    return ModelRejected(
        "The model's response is too large.",
        category="unknown",
        request_id=request_id,
        usage=builder.billed(),
    )


def timed_out(
    what: str,
    wait_s: float,
    request_id: str | None = None,
    builder: ResponseBuilder | None = None,
) -> ModelUnreachable:
    """Silence where something had to come."""
    return ModelUnreachable(
        f"The model's server timed out: {what} for {wait_s:.3g} s.",
        category="unknown",
        request_id=request_id,
        usage=builder.billed() if builder else None,
    )


def unreachable(
    error: BaseException, request_id: str | None, builder: ResponseBuilder | None
) -> ModelUnreachable:
    """A network failure: before the stream, or in the middle of it."""
    if builder is not None and builder.message_id is not None:
        return broken("The connection to the model broke off in mid-stream.", request_id, builder)
    return ModelUnreachable(
        f"The model's server cannot be reached: {_cause(error)}.",
        category="unknown",
        request_id=request_id,
    )


def _cause(error: BaseException) -> str:
    """Name a network failure in our words: texts of libraries may hold addresses."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError | aiohttp.ClientSSLError):
            return "TLS failed"
        if isinstance(seen, aiohttp.ClientConnectorDNSError):
            return "its name does not resolve"
        if isinstance(seen, aiohttp.ServerTimeoutError):
            return "connecting took too long"
        if isinstance(seen, ConnectionRefusedError):
            return "connection refused"
        seen = seen.__cause__ or seen.__context__
    return "connection lost"
