"""Streams: what readers of a run or a session are sent.

The first bytes go out before anything is looked up. Rows carry their `seq` as id, previews none,
so that a browser's last id always names a row. After the first byte there is no status left:
trouble is a `problem` frame, and a stream that ends without an `end` frame is broken.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent

from app.api.problems import problem_json
from app.errors import RequestError
from app.runs.live import End, Framed, Item
from app.runs.outages import GONE, gone

HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Vary": "Authorization",
}
RETRY_MS = 2000


def stream_response(
    lists: AsyncGenerator[list[Item]],
    *,
    session_id: str,
    run_id: str | None,
    after: int,
    heartbeat_s: float,
    send_timeout_s: float,
) -> EventSourceResponse:
    """Give the response that sends `lists` as frames."""
    headers = HEADERS | ({"X-Run-Id": run_id} if run_id else {})
    return EventSourceResponse(
        _frames(lists, session_id=session_id, run_id=run_id, after=after),
        headers=headers,
        media_type="text/event-stream; charset=utf-8",
        ping=heartbeat_s,
        ping_message_factory=lambda: ServerSentEvent(comment="hb", sep="\n"),
        send_timeout=send_timeout_s,
        sep="\n",
    )


async def _frames(
    lists: AsyncGenerator[list[Item]], *, session_id: str, run_id: str | None, after: int
) -> AsyncIterator[bytes]:
    run = f" run={run_id}" if run_id else ""
    yield f"retry: {RETRY_MS}\n: stream open session={session_id}{run} from={after}\n\n".encode()
    last_seq = after
    try:
        async with aclosing(lists):
            async for items in lists:
                for item in items:
                    if isinstance(item, Framed):
                        last_seq = item.row.seq
                yield b"".join(_bytes(item, run_id, last_seq) for item in items)
    except RequestError as error:
        yield _problem(error, session_id)
    except GONE as error:
        yield _problem(gone(error), session_id)


def _problem(error: RequestError, session_id: str) -> bytes:
    body = problem_json(error, instance=f"/v1/sessions/{session_id}", request_id="")
    return b"event: problem\ndata: " + body + b"\n\n"


def _bytes(item: Item, run_id: str | None, last_seq: int) -> bytes:
    if not isinstance(item, End):
        return item.frame
    body: dict[str, object] = {"reason": item.reason, "last_seq": last_seq}
    if run_id is not None:
        body["run_id"] = run_id
    return b"event: end\ndata: " + orjson.dumps(body) + b"\n\n"
