"""The first thing a request meets: bounds that the server itself does not set.

Count and size of headers and address, text in the address that cannot be stored, the body's size by
counting (a Content-Length is only a claim), and a request id. Bodies without a content type, or
with the one that `curl -d` sends, are taken as JSON: this API has no other. It also is the last
resort for errors that nobody foresaw.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from app.api.problems import problem_response, unforeseen
from app.errors import HeadersTooLarge, InvalidRequest, PayloadTooLarge, RequestError

MOST_HEADERS = 100
MOST_HEADER_BYTES = 32 * 1024
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_TAKEN_AS_JSON = (b"", b"application/x-www-form-urlencoded")


class _BodyTooLarge(Exception):
    """More bytes came than the limit allows."""


@dataclass(frozen=True, slots=True)
class Guard:
    """ASGI middleware."""

    app: ASGIApp
    max_body_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what is out of bounds; pass the rest on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        sent = _Sent(send, request_id)
        if refusal := self._refusal(scope):
            await problem_response(Request(scope), refusal)(scope, receive, sent)
            return
        if scope["method"] in {"POST", "PUT", "PATCH"}:
            _take_as_json(scope)
        try:
            await self.app(scope, _counted(receive, self.max_body_bytes), sent)
        except _BodyTooLarge:
            if sent.has_started:
                raise
            await problem_response(Request(scope), self._too_large())(scope, receive, sent)
        except Exception as error:  # the edge: nothing leaves but a problem
            if sent.has_started:
                raise
            problem = unforeseen(error, request_id)
            await problem_response(Request(scope), problem)(scope, receive, sent)

    def _refusal(self, scope: Scope) -> RequestError | None:
        headers = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        size += len(scope["path"]) + len(scope["query_string"])
        if len(headers) > MOST_HEADERS or size > MOST_HEADER_BYTES:
            return HeadersTooLarge("The request has too many or too large headers, or address.")
        path = scope["path"]
        if "\0" in path or "�" in path or not _is_storable(scope["query_string"]):
            return InvalidRequest("The address holds a NUL or bytes that are not UTF-8.")
        lengths = {value for name, value in headers if name == b"content-length"}
        if any(not v.isdigit() for v in lengths) or len(lengths) > 1:
            return InvalidRequest("The Content-Length is not valid.")
        if lengths and int(lengths.pop()) > self.max_body_bytes:
            return self._too_large()
        return None

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"The body may have {self.max_body_bytes} bytes at the most.")


class _Sent:
    """Remembers whether the answer has begun; adds the request id to it."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._header = (b"x-request-id", request_id.encode())
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            message = {**message, "headers": [*message.get("headers", []), self._header]}
        await self._send(message)


def _counted(receive: Receive, limit: int) -> Receive:
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise _BodyTooLarge
        return message

    return counted


def _is_storable(query: bytes) -> bool:
    try:
        return "\0" not in unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        return False


def _request_id(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if _SANE_ID.fullmatch(given) else f"req_{ULID()}"


def _take_as_json(scope: Scope) -> None:
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if kind.split(b";")[0].strip().lower() in _TAKEN_AS_JSON:
        others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]
