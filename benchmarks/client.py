"""Posts runs and follows them, against the floor and against the service alike."""

import time
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from benchmarks.plan import Plan

RUN_LIMIT_S = 120
LONG_RUN_LIMIT_S = 900
_LIMITS = {"max_turns": 500, "max_budget_usd": "50"}
_LONG_LIMITS = {"max_turns": 10_000, "max_budget_usd": "1000"}


class RunFailed(Exception):
    """A run did not do what its plan says, so its figures mean nothing."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One of the two that are measured."""

    name: str
    url: str
    key: str
    workspace: str


@dataclass(slots=True)
class Followed:
    """What a reader saw of a run; times by the system's monotonic clock, in ns."""

    posted_ns: int
    session_id: str = ""
    accepted_ns: int = 0
    """The response's head has come: the run is stored."""
    first_message_ns: int = 0
    first_assistant_ns: int = 0
    tool_results: int = 0
    result: dict[str, Any] | None = None  # wire JSON


async def follow_run(
    http: aiohttp.ClientSession, peer: Peer, plan: Plan, *, session_id: str | None = None
) -> Followed:
    """Post a run (in a new session unless one is given) and read its stream to the end.

    Raises:
        RunFailed: the result is missing or an error, or a tool failed.
    """
    path = f"/v1/sessions/{session_id}/runs" if session_id else "/v1/runs"
    options = (_LONG_LIMITS if plan.long else _LIMITS) | {"include_partial_messages": plan.previews}
    body: dict[str, Any] = {"prompt": plan.prompt, "stream": True, "options": options}
    if session_id is None:
        body["workspace"] = {"source": "directory", "path": peer.workspace}
    seen = Followed(time.monotonic_ns())
    async with http.post(
        peer.url + path,
        data=orjson.dumps(body),
        headers={
            "content-type": "application/json",
            "accept": "text/event-stream",
            "authorization": f"Bearer {peer.key}",
        },
        timeout=aiohttp.ClientTimeout(total=LONG_RUN_LIMIT_S if plan.long else RUN_LIMIT_S),
    ) as answer:
        if answer.status != 200:
            raise RunFailed(f"{peer.name}: {answer.status} {await answer.text()}")
        seen.accepted_ns = time.monotonic_ns()
        rest = b""
        async for data in answer.content.iter_any():
            *frames, rest = (rest + data).split(b"\n\n")
            for frame in frames:
                _take(seen, frame)
    _check(seen, peer, plan)
    return seen


def _take(seen: Followed, frame: bytes) -> None:
    head, _, data = frame.partition(b"data: ")
    if b"event: message" not in head:
        return
    seen.first_message_ns = seen.first_message_ns or time.monotonic_ns()
    message = orjson.loads(data)
    seen.session_id = message["session_id"]
    if message["type"] == "assistant":
        seen.first_assistant_ns = seen.first_assistant_ns or time.monotonic_ns()
    elif message["type"] == "result":
        seen.result = message
    elif message["type"] == "user" and isinstance(message["message"]["content"], list):
        for block in message["message"]["content"]:
            if block["type"] == "tool_result":
                seen.tool_results += 1
                if block.get("is_error"):
                    raise RunFailed(f"a tool failed: {block['content']}")


def _check(seen: Followed, peer: Peer, plan: Plan) -> None:
    if seen.result is None or seen.result["subtype"] != "success" or seen.result["is_error"]:
        raise RunFailed(f"{peer.name}: result {seen.result}")
    if seen.tool_results != plan.turns * plan.parallel:
        raise RunFailed(f"{peer.name}: {seen.tool_results} tool results for {plan}")
