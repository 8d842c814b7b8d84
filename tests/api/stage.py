"""A host of its own with a scripted model and a database, and what one says to it."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from app.settings.settings import Settings
from app.store.keys import create_key, ensure_tenant
from tests.fakes.messages_api import MessagesApi
from tests.hosts import KEY, Host, host
from tests.runs.prompts import scripted as scripted

RANDOM_SESSION = "00000000-0000-4000-8000-000000000000"
RANDOM_RUN = "run_00000000000000000000000000"


@dataclass(frozen=True, slots=True)
class Stage:
    """A host, its model, and a folder that lies beneath an allowed root."""

    host: Host
    model: MessagesApi
    root: Path

    @property
    def client(self) -> httpx.AsyncClient:
        """Speaks with the key of the default tenant."""
        return self.host.client

    @property
    def base_url(self) -> str:
        return self.host.base_url

    async def tenant(self, name: str) -> tuple[str, str]:
        """Make another tenant; give the id of its key and the key."""
        async with self.host.service.database.begin() as connection:
            await ensure_tenant(connection, name, allow_bypass=False)
            return await create_key(connection, name, "test")

    async def run(self, prompt: str = "hello", **body: Any) -> dict[str, Any]:
        """Start a run and give it when it has finished."""
        answer = await self.client.post("/v1/runs", json={"prompt": prompt, "wait": 20, **body})
        assert answer.status_code == 200, answer.text
        run: dict[str, Any] = answer.json()["run"]
        return run

    async def session(self, **body: Any) -> dict[str, Any]:
        """Create a session."""
        answer = await self.client.post("/v1/sessions", json=body)
        assert answer.status_code == 201, answer.text
        session: dict[str, Any] = answer.json()
        return session


@asynccontextmanager
async def open_stage(
    scratch: Path,
    dsn: str,
    *,
    role: Any = "serve",
    api: MessagesApi | None = None,
    **groups: Mapping[str, Any],
) -> AsyncIterator[Stage]:
    """Serve with these settings laid over ones that suit tests, with a model of its own."""
    folder, root = _folders(scratch)
    async with api or MessagesApi() as model:
        defaults: dict[str, dict[str, Any]] = {
            "database": {"url": SecretStr(dsn), "pool_size": 5},
            "model": {"api_key": SecretStr("sk-test"), "base_url": model.base_url},
            "engine": {"lease_s": 3.0, "heartbeat_s": 0.5, "poll_s": 0.2, "drain_s": 1.0},
            "auth": {"bootstrap_key": SecretStr(KEY)},
            "workspace": {"allowed_roots": [root], "allow_root_owned": True},
        }
        merged = {
            name: {**defaults.get(name, {}), **groups.get(name, {})}
            for name in {*defaults, *groups}
        }
        settings = Settings.model_validate({"data_dir": folder / "data", **merged})
        async with host(settings, role) as running:
            yield Stage(running, model, root)
    shutil.rmtree(folder, ignore_errors=True)


def _folders(scratch: Path) -> tuple[Path, Path]:
    folder = Path(tempfile.mkdtemp(prefix="a-", dir=scratch))
    folder.chmod(0o755)
    root = folder / "roots"
    root.mkdir(mode=0o755)
    return folder, root


def spoken(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what the service reminds the model of."""
    return [b for b in blocks if not b.get("text", "").startswith("<system-reminder>")]


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is a whole problem; give its body."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert list(body) == [
        *("type", "title", "status", "detail", "instance"),
        *("code", "request_id", "retryable", "errors", "context"),
    ]
    assert (body["status"], body["code"]) == (status, code), body
    assert body["type"] == f"/problems/{code.replace('_', '-')}"
    assert body["title"]
    assert body["detail"]
    assert body["instance"] == answer.request.url.path
    assert body["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["x-should-retry"] == str(body["retryable"]).lower()
    return body


def pointers(body: Mapping[str, Any]) -> list[str]:
    """Give where a problem's errors are."""
    return [error["pointer"] for error in body["errors"]]


async def raw(base_url: str, request: bytes, *, within_s: float = 10) -> tuple[int, bytes]:
    """Send bytes as they are; give the status (0 if none came) and all that came."""
    where = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        async with asyncio.timeout(within_s):
            writer.write(request)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, b""
    finally:
        writer.close()
    return int(head.split(b" ")[1]), head + body


async def until(condition: Callable[[], bool], *, within_s: float = 30) -> None:
    """Wait for what no event tells of."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - the other side has no event
            await asyncio.sleep(0.01)


def get(path: bytes, *headers: bytes) -> bytes:
    """Give a GET request with a valid key, byte by byte."""
    lines = [b"GET " + path + b" HTTP/1.1", b"host: x", b"x-api-key: " + KEY.encode(), *headers]
    return b"\r\n".join([*lines, b"", b""])


@dataclass(frozen=True, slots=True)
class Frame:
    """One SSE frame. Comments are frames of their own."""

    event: str | None = None
    id: str | None = None
    data: str = ""
    comment: str | None = None

    def json(self) -> Any:
        """Decode its data."""
        return json.loads(self.data)


async def frames(answer: httpx.Response) -> AsyncIterator[Frame]:
    """Read a stream as the SSE standard says: lines end with CR, LF or both."""
    pending = ""
    async for text in answer.aiter_text():
        pending = (pending + text).replace("\r\n", "\n").replace("\r", "\n")
        while "\n\n" in pending:
            block, pending = pending.split("\n\n", 1)
            for frame in _frames_of(block.split("\n")):
                yield frame


def _frames_of(lines: Sequence[str]) -> list[Frame]:
    fields: dict[str, str] = {}
    found: list[Frame] = []
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            found.append(Frame(comment=value))
        elif name == "data" and "data" in fields:
            fields["data"] += "\n" + value
        else:
            fields[name] = value
    if "data" in fields:
        found.append(Frame(fields.get("event"), fields.get("id"), fields["data"]))
    return found


async def read_stream(client: httpx.AsyncClient, path: str, **more: Any) -> list[Frame]:
    """Read a stream to its end."""
    async with client.stream("GET", path, **more) as answer:
        assert answer.status_code == 200, await answer.aread()
        return [frame async for frame in frames(answer)]
