"""The service over HTTP, for the commands that are clients of it."""

import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx

from app.cli.failure import Away, CliFailure, Status

_CALL = httpx.Timeout(70, connect=5)
"""Beyond the longest `wait` that the service knows."""
_STREAM = httpx.Timeout(60, connect=5)
"""The service sends something at least every 25 s; longer silence is a dead connection."""
_PAGE = 200
_LISTED = frozenset({"sessions", "runs", "actions", "skills"})
"""Resources that a command of the same name lists."""
JsonObject = Mapping[str, Any]  # Any: what the service's JSON holds is read field by field


@dataclass(frozen=True, slots=True)
class Frame:
    """An event of a stream."""

    event: str
    data: str
    id: int | None
    """Its place in the session's log; None on what is not durable."""


def address(*parts: str) -> str:
    """Give the path of a resource; ids from the command line cannot leave it."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Client:
    """Speaks with one server under one key. Close it, or use it as a context manager.

    Every method raises `Away` when no answer comes, and `CliFailure` for a refusal, with what to do.
    """

    def __init__(self, url: str, key: str) -> None:
        _check(url, key)
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}", "User-Agent": "treadle-cli"},
            timeout=_CALL,
            trust_env=not _is_loopback(url),  # a proxy cannot reach this machine's loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def get(self, path: str, **query: str | int | list[str] | None) -> JsonObject:
        """Read a resource."""
        return self._json(self._send("GET", path, query))

    def post(
        self, path: str, body: JsonObject | None = None, **query: str | int | None
    ) -> JsonObject:
        """Have something done."""
        return self._json(self._send("POST", path, query, body or {}))

    def patch(self, path: str, body: JsonObject) -> JsonObject:
        """Have something changed."""
        return self._json(self._send("PATCH", path, {}, body))

    def delete(self, path: str) -> None:
        """Remove a resource."""
        self._send("DELETE", path, {})

    def upload(
        self, path: str, data: bytes, *, kind: str = "application/x-ndjson", **query: str | None
    ) -> JsonObject:
        """Send a file; JSON lines, unless its `kind` says otherwise."""
        params = {name: value for name, value in query.items() if value is not None}
        headers = {"Content-Type": kind}
        try:
            response = self._http.post(path, params=params, content=data, headers=headers)
        except httpx.TransportError as error:
            raise self._away(error, is_write=True) from None
        if not response.is_success:
            raise self._refusal(response)
        return self._json(response)

    def download(self, path: str, **query: str) -> Iterator[bytes]:
        """Read a file piece by piece. One that is cut raises `Away`."""
        try:
            with self._http.stream("GET", path, params=query, timeout=_STREAM) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise self._away(error) from None

    def text(self, path: str) -> str | None:
        """Read a resource's exact JSON; None while it is not there yet (202)."""
        response = self._send("GET", path, {})
        return None if response.status_code == httpx.codes.ACCEPTED else response.text

    def items(
        self, path: str, most: int | None, **query: str | int | list[str] | None
    ) -> Iterator[JsonObject]:
        """Read a list, page by page, up to `most` items."""
        left, cursor = most, None
        while left is None or left > 0:
            limit = _PAGE if left is None else min(left, _PAGE)
            page = self.get(path, limit=limit, cursor=cursor, **query)
            yield from page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                return
            left = None if left is None else left - len(page["data"])

    @contextmanager
    def stream(
        self, path: str, *, after: int | None, previews: str
    ) -> Iterator[Iterator[Frame] | None]:
        """Open an event stream beyond `after`; None when there is nothing more, ever."""
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        query = {"previews": previews}
        try:
            with self._http.stream(
                "GET", path, params=query, headers=headers, timeout=_STREAM
            ) as response:
                if response.status_code == httpx.codes.NO_CONTENT:
                    yield None
                    return
                if response.status_code != httpx.codes.OK:
                    response.read()
                    raise self._refusal(response)
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise self._stranger(response)
                yield frames(response.iter_bytes())
        except httpx.TransportError as error:
            raise self._away(error) from None

    def _send(
        self, method: str, path: str, query: Mapping[str, Any], body: JsonObject | None = None
    ) -> httpx.Response:
        params = {name: value for name, value in query.items() if value is not None}
        try:
            response = self._http.request(method, path, params=params, json=body)
        except httpx.TransportError as error:
            raise self._away(error, is_write=method != "GET") from None
        if response.is_success:
            return response
        raise self._refusal(response)

    def _json(self, response: httpx.Response) -> JsonObject:
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise self._stranger(response)
        return body

    def _away(self, error: httpx.TransportError, *, is_write: bool = False) -> Away:
        reason = str(error) or type(error).__name__
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return Away(
                f"No server answers at {self.url} ({reason}).\n"
                "Start one with `treadle serve`, or name another with --url or TREADLE_URL."
            )
        done = " Whether it was done is not known: look at `treadle runs`." if is_write else ""
        return Away(f"The connection to {self.url} broke ({reason}).{done}")

    def _refusal(self, response: httpx.Response) -> CliFailure:
        if response.status_code == httpx.codes.UNAUTHORIZED:
            return CliFailure(
                f"{self.url} does not know this key.\nMake one on the server's machine, under the "
                "server's DATABASE_URL or TREADLE_DATA_DIR, with `treadle keys create --name NAME`, "
                "and pass it as TREADLE_KEY (or --key)."
            )
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "code" not in problem:
            return self._stranger(response)
        detail = "\n".join([str(problem.get("detail")), *_field_errors(problem)])
        text = f"{detail} ({response.status_code} {problem['code']})"
        if response.is_server_error or problem.get("retryable"):
            return Away(text)
        kind = response.request.url.path.split("/")[2:3]
        if response.status_code == httpx.codes.NOT_FOUND and kind and kind[0] in _LISTED:
            text += f"\n`treadle {kind[0]}` lists those there are."
        return CliFailure(text)

    def _stranger(self, response: httpx.Response) -> CliFailure:
        text = (
            f"{self.url} answered {response.status_code}, but not as a Treadle server does. "
            "Check --url or TREADLE_URL, and what proxies stand between."
        )
        return Away(text) if response.is_server_error else CliFailure(text)


def frames(chunks: Iterable[bytes]) -> Iterator[Frame]:
    r"""Read the frames of an event stream. One without its blank line at the end is dropped.

    Only `\n` ends a line: JSON may hold the other characters that Python takes for line ends.
    """
    rest = b""
    for chunk in chunks:
        *blocks, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for block in blocks:
            if (frame := _frame(block)) is not None:
                yield frame


def _frame(block: bytes) -> Frame | None:
    event, data, number = "message", None, None
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode(errors="replace")
        if name == b"event":
            event = text
        elif name == b"data":
            data = text if data is None else f"{data}\n{text}"
        elif name == b"id" and text.isdigit():
            number = int(text)
    return None if data is None else Frame(event, data, number)


def decode(frame: Frame) -> JsonObject:
    """Read a frame's JSON object. Raises `CliFailure` for anything else."""
    try:
        body = json.loads(frame.data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise CliFailure("The stream holds what is no JSON object.", Status.FAILED)
    return body


def _field_errors(problem: JsonObject) -> Iterator[str]:
    for error in problem.get("errors") or ():
        if str(error.get("message")) not in str(problem.get("detail")):
            yield f"  {error.get('pointer')}: {error.get('message')}"


def _check(url: str, key: str) -> None:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise CliFailure(f"{url!r} is no address of a server, such as http://127.0.0.1:8700.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise CliFailure("The key holds characters that no key has: copy it anew.")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
