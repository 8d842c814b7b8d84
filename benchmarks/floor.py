"""The floor: the least that can serve an agent run, to measure the service against.

`python -m benchmarks.floor PORT DSN MODEL_URL` serves, on starlette with a plain httpx client
and asyncpg, the three routes that the benchmark uses, in the service's own wire form. One commit a
message and nothing else: no permissions, limits, recovery, checks, replay, or second reader.
"""

import asyncio
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

_SCHEMA = """
CREATE TABLE IF NOT EXISTS floor_sessions (id uuid PRIMARY KEY, folder text NOT NULL);
CREATE TABLE IF NOT EXISTS floor_messages (
    session_id uuid, seq int, body text NOT NULL, PRIMARY KEY (session_id, seq)
);
"""
_PREFIX = orjson.dumps(
    {
        "model": "claude-sonnet-5",
        "max_tokens": 8192,
        "stream": True,
        "system": "You work in a folder with the tools given.",
        "tools": [
            {
                "name": "Read",
                "description": "Reads a text file.",
                "input_schema": {
                    "type": "object",
                    "properties": {"file_path": {"type": "string"}},
                    "required": ["file_path"],
                },
            },
            {
                "name": "Bash",
                "description": "Runs a command.",
                "input_schema": {
                    "type": "object",
                    "properties": {"command": {"type": "string"}},
                    "required": ["command"],
                },
            },
        ],
        "messages": [],
    }
).removesuffix(b"]}")


@dataclass(slots=True)
class Floor:
    """What the process holds."""

    db: "asyncpg.Pool[asyncpg.Record]"
    model: httpx.AsyncClient
    tasks: asyncio.TaskGroup


@dataclass(slots=True)
class Session:
    """A conversation; its messages stay encoded, so that a request body is only joined."""

    id: uuid.UUID
    folder: Path
    previews: bool
    messages: list[bytes] = field(default_factory=list)
    frames: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    """For the one reader; None ends the stream."""

    def frame(self, kind: bytes, data: bytes) -> None:
        self.frames.put_nowait(b"event: %b\ndata: %b\n\n" % (kind, data))

    def show(self, wire: dict[str, object]) -> None:
        self.frame(b"message", orjson.dumps({**wire, "session_id": str(self.id)}))


async def store(floor: Floor, session: Session, message: dict[str, object]) -> None:
    """Commit, then show."""
    body = orjson.dumps(message)
    session.messages.append(body)
    await floor.db.execute(
        "INSERT INTO floor_messages VALUES ($1, $2, $3)",
        session.id,
        len(session.messages),
        body.decode(),
    )
    session.show({"type": message["role"], "message": message})


async def ask(floor: Floor, session: Session) -> dict[str, object]:
    """One streamed answer, deltas passed on as they come."""
    content: list[dict[str, object]] = []
    pieces: list[str] = []
    rest = b""
    body = _PREFIX + b",".join(session.messages) + b"]}"
    headers = {"content-type": "application/json", "x-api-key": "x"}
    async with floor.model.stream("POST", "/v1/messages", content=body, headers=headers) as answer:
        answer.raise_for_status()
        async for chunk in answer.aiter_raw():
            *frames, rest = (rest + chunk).split(b"\n\n")
            for frame in frames:
                data = frame.partition(b"data: ")[2]
                event = orjson.loads(data)
                if event["type"] == "content_block_start":
                    content.append(event["content_block"])
                    pieces = []
                elif event["type"] == "content_block_delta":
                    delta = event["delta"]
                    pieces.append(delta.get("text") or delta.get("partial_json", ""))
                    if session.previews:
                        session.frame(b"preview", b'{"type":"stream_event","event":%b}' % data)
                elif event["type"] == "content_block_stop":
                    whole = "".join(pieces)
                    if content[-1]["type"] == "text":
                        content[-1]["text"] = whole
                    else:
                        content[-1]["input"] = orjson.loads(whole)
    return {"role": "assistant", "content": content}


async def call(session: Session, block: dict[str, object]) -> dict[str, object]:
    given = block["input"]
    assert isinstance(given, dict)
    if block["name"] == "Read":
        path = session.folder / str(given["file_path"]).removeprefix("/workspace/")
        # In the loop: a small file costs less than a thread.
        text = path.read_text()
    else:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", str(given["command"]), cwd=session.folder, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        text = output.decode()
    return {"type": "tool_result", "tool_use_id": block["id"], "content": text}


async def run(floor: Floor, session: Session, prompt: str) -> None:
    await store(floor, session, {"role": "user", "content": prompt})
    while True:
        answer = await ask(floor, session)
        await store(floor, session, answer)
        blocks = answer["content"]
        assert isinstance(blocks, list)
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            break
        results = await asyncio.gather(*(call(session, block) for block in calls))
        await store(floor, session, {"role": "user", "content": results})
    session.show({"type": "result", "subtype": "success", "is_error": False})
    session.frame(b"end", b'{"reason":"run_finished"}')
    session.frames.put_nowait(None)


async def stream(session: Session) -> AsyncGenerator[bytes]:
    """What is ready goes out in one write."""
    ended = False
    while not ended:
        ready = [await session.frames.get()]
        while not session.frames.empty():
            ready.append(session.frames.get_nowait())
        ended = ready[-1] is None
        yield b"".join(frame for frame in ready if frame is not None)


async def begin(request: Request) -> Response:
    floor: Floor = request.app.state.floor
    given = await request.json()
    previews = bool(given["options"]["include_partial_messages"])
    if "sid" in request.path_params:
        session_id = uuid.UUID(request.path_params["sid"])
        folder = await floor.db.fetchval(
            "SELECT folder FROM floor_sessions WHERE id = $1", session_id
        )
        rows = await floor.db.fetch(
            "SELECT body FROM floor_messages WHERE session_id = $1 ORDER BY seq", session_id
        )
        session = Session(
            session_id, Path(folder), previews, [row["body"].encode() for row in rows]
        )
    else:
        session = Session(uuid.uuid4(), Path(given["workspace"]["path"]), previews)
        await floor.db.execute(
            "INSERT INTO floor_sessions VALUES ($1, $2)", session.id, str(session.folder)
        )
    floor.tasks.create_task(run(floor, session, given["prompt"]))
    return StreamingResponse(stream(session), media_type="text/event-stream")


async def ready(_: Request) -> Response:
    return Response("ok")


def make_app(dsn: str, model_url: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with (
            asyncpg.create_pool(dsn, min_size=1, max_size=10) as db,
            httpx.AsyncClient(base_url=model_url, timeout=None, limits=limits) as model,  # noqa: S113 - the harness bounds each run
            asyncio.TaskGroup() as tasks,
        ):
            await db.execute(_SCHEMA)
            app.state.floor = Floor(db, model, tasks)
            yield

    routes = [
        Route("/v1/runs", begin, methods=["POST"]),
        Route("/v1/sessions/{sid}/runs", begin, methods=["POST"]),
        Route("/readyz", ready),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    port, dsn, model_url = sys.argv[1:]
    uvicorn.run(
        make_app(dsn, model_url),
        host="127.0.0.1",
        port=int(port),
        log_level="warning",
        access_log=False,
        loop="uvloop",
        http="httptools",
    )
