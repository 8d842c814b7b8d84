"""Writes that may be sent twice: the Idempotency-Key, and the answer that was kept (ADR 10)."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Depends, Header, Request, Response

from app.api.body import DecodedRequest, whole_body
from app.api.deps import authenticate
from app.errors import InvalidRequest
from app.runs.once import Answer, Once, Replayed

REPLAYED = "Idempotency-Replayed"
_LONGEST_KEY = 255

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Write:
    """One write as it was asked for."""

    tenant_id: str
    key: str | None
    sha256: bytes
    """Of method, address and body."""

    def once(self, render: Callable[[Any], Answer]) -> Once | None:
        """Give the guard of this write, when the client sent a key."""
        if self.key is None:
            return None
        return Once(self.tenant_id, self.key, self.sha256, render)

    async def answer(
        self, write: Callable[[Once | None], Awaitable[T]], render: Callable[[T], Answer]
    ) -> Response:
        """Make the write and answer it; when it was made before, give the answer of then."""
        try:
            outcome = await write(self.once(render))
        except Replayed as replayed:
            return response(replayed.answer, is_replay=True)
        return response(render(outcome))


def response(answer: Answer, *, is_replay: bool = False) -> Response:
    """Give an answer as it goes out."""
    headers = {REPLAYED: "true"} if is_replay else {}
    if answer.location is not None:
        headers["Location"] = answer.location
    return Response(
        answer.body, answer.status, headers, "application/json" if answer.body else None
    )


async def _write(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="1 to 255 visible characters of your choice. The same request with the "
            "same key, within a day, has its effect once and is answered alike.",
        ),
    ] = None,
) -> Write:
    caller = await authenticate(request)  # known by then: a dependency would be solved again
    if idempotency_key is None:
        return Write(caller.tenant_id, None, b"")
    given = request.headers.getlist("idempotency-key")
    if len(given) > 1 or not _is_sane(idempotency_key):
        raise InvalidRequest(
            f"The Idempotency-Key must be 1 to {_LONGEST_KEY} visible ASCII characters."
        )
    return Write(caller.tenant_id, idempotency_key, await _sha256(request))


WriteDep = Annotated[Write, Depends(_write)]


def _is_sane(key: str) -> bool:
    return 0 < len(key) <= _LONGEST_KEY and all("!" <= character <= "~" for character in key)


async def _sha256(request: Request) -> bytes:
    if isinstance(request, DecodedRequest):
        body = await request.json()
    else:  # a file, or nothing
        raw = await whole_body(request)
        body = hashlib.sha256(raw).hexdigest() if raw else None
    asked = [request.method, request.url.path, request.url.query, body]
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).digest()
