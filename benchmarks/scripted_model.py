"""A Messages API that follows the plan in the prompt: `python -m benchmarks.scripted_model PORT`.

It must cost far less than what it measures: no framework, no JSON decoding, no uvloop (whose
writes leave later than the call, which would spoil the times). Requests are told apart by the
id in the newest plan of their body and counted, so an answer needs no look at the history.

    POST /v1/messages       streams an answer
    GET  /log               {id: [[arrived_ns, answered_ns], ...]} by the system's monotonic clock;
                            the log is empty afterwards
    GET  /arrived/ID/N      answers when the N-th request of that plan has arrived
    GET  /release           lets all held answers go on

A request arrives with its last byte; an answer is over with the last byte written.
"""

import asyncio
import sys
import time
from dataclasses import dataclass, field

import orjson

from app.compaction.summary import TASK
from benchmarks.plan import Plan, file_name, newest_plan

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"request-id: req_bench\r\n\r\n"
)
SUMMARY_ASKED = TASK[-40:].encode()
"""How a request ends in which a summary is asked for."""
_ASKED_WITHIN_BYTES = 500
_WRITE_EVENTS = 16
"""Events of a long answer in one write: what a network card would hand over together."""


def summaries_id(plan: Plan) -> str:
    """Under which a plan's summaries stand in the log."""
    return f"{plan.id}-summaries"


@dataclass(slots=True)
class Asked:
    """All requests of one plan."""

    times: list[list[int]] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)


@dataclass(slots=True)
class Book:
    """What was asked so far, and whether held answers may go on."""

    asked: dict[str, Asked] = field(default_factory=dict)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, plan_id: str) -> Asked:
        return self.asked.setdefault(plan_id, Asked())

    def taken_log(self) -> dict[str, list[list[int]]]:
        log = {key: asked.times for key, asked in self.asked.items() if asked.times}
        self.asked = {}
        return log


def _chunk(kind: str, data: dict[str, object]) -> bytes:
    event = b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **data}))
    return b"%x\r\n%b\r\n" % (len(event), event)


def _block(index: int, start: dict[str, object], deltas: list[dict[str, str]]) -> list[bytes]:
    return [
        _chunk("content_block_start", {"index": index, "content_block": start}),
        *(_chunk("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        _chunk("content_block_stop", {"index": index}),
    ]


def _call(plan: Plan, step: int, index: int) -> list[bytes]:
    name = file_name(step * plan.parallel + index, is_small=plan.long)
    start: dict[str, object] = {
        "type": "tool_use",
        "id": f"toolu_{plan.id}_{step}_{index}",
        "name": "Read",
        "input": {},
    }
    pieces = ("", '{"file_path": "/work', f'space/{name}"', "}")
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return _block(index, start, deltas)


def _agent_call(plan: Plan) -> list[bytes]:
    start: dict[str, object] = {
        "type": "tool_use",
        "id": f"toolu_{plan.id}",
        "name": "Agent",
        "input": {},
    }
    given = orjson.dumps({"description": "reads files", "prompt": plan.of_agent.prompt}).decode()
    return _block(0, start, [{"type": "input_json_delta", "partial_json": given}])


def _text(*pieces: str) -> list[bytes]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return _block(0, {"type": "text", "text": ""}, deltas)


def answer_to(plan: Plan, step: int, input_tokens: int = 100) -> list[bytes]:
    """The chunks of one answer: message_start first, the end of the HTTP body last.

    Of a plan for a subagent the first one begins it; what comes after that is the subagent's plan.
    """
    if plan.agent:
        return _answer(f"msg_{plan.id}_{step}", [_agent_call(plan)], input_tokens, calls=True)
    calls = step < plan.turns
    texts = _text(*(f"word {n:04} " for n in range(plan.deltas)))
    content = [_call(plan, step, n) for n in range(plan.parallel)] if calls else [texts]
    return _answer(f"msg_{plan.id}_{step}", content, input_tokens, calls=calls)


def summary_of(plan: Plan, number: int, input_tokens: int) -> list[bytes]:
    """The chunks of a summary. It holds the plan, which is taken away with the prompt."""
    text = _text(f"<summary>{plan.prompt}</summary>")
    return _answer(f"msg_{plan.id}_s{number}", [text], input_tokens, calls=False)


def _answer(
    message_id: str, content: list[list[bytes]], input_tokens: int, *, calls: bool
) -> list[bytes]:
    usage: dict[str, object] = {
        "input_tokens": input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
    }
    message: dict[str, object] = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return [
        _chunk("message_start", {"message": message}),
        *(chunk for block in content for chunk in block),
        _chunk("message_delta", {"delta": end, "usage": {"output_tokens": 10}}),
        _chunk("message_stop", {}) + b"0\r\n\r\n",
    ]


class ScriptedModel(asyncio.Protocol):
    """One connection; requests on it come one after the other."""

    def __init__(self, book: Book, tasks: asyncio.TaskGroup) -> None:
        self._book = book
        self._tasks = tasks
        self._head = b""
        self._parts: list[bytes] = []
        self._missing = 0
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, _: Exception | None) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._missing == 0:
            self._head += data
            head, found, data = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            self._head = head
            self._missing = _content_length(head)
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing == 0:
            arrived_ns = time.monotonic_ns()
            target, body = self._head.split(b" ", 2)[1].decode(), b"".join(self._parts)
            self._head, self._parts = b"", []
            self._tasks.create_task(self._reply(target, body, arrived_ns))

    async def _reply(self, target: str, body: bytes, arrived_ns: int) -> None:
        if target.startswith("/v1/messages"):
            plan = newest_plan(body) or Plan(id="none")
            is_summary = SUMMARY_ASKED in body[-_ASKED_WITHIN_BYTES:]
            await self._answer(plan, arrived_ns, len(body), is_summary=is_summary)
            return
        if target.startswith("/v1/models/"):
            self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        reply: object = {}
        if target == "/log":
            reply = self._book.taken_log()
        elif target == "/release":
            self._book.released.set()
            self._book.released = asyncio.Event()
        else:
            _, _, plan_id, number = target.split("/")
            asked = self._book.of(plan_id)
            async with asked.arrived:
                await asked.arrived.wait_for(lambda: len(asked.times) >= int(number))
        content = orjson.dumps(reply)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(content) + content)

    async def _answer(
        self, plan: Plan, arrived_ns: int, body_bytes: int, *, is_summary: bool
    ) -> None:
        asked = self._book.of(summaries_id(plan) if is_summary else plan.id)
        released = self._book.released
        step = len(asked.times)
        times = [arrived_ns, 0]
        asked.times.append(times)
        async with asked.arrived:
            asked.arrived.notify_all()
        if plan.delay_ms:
            await asyncio.sleep(plan.delay_ms / 1000)
        tokens = body_bytes // 4 if plan.long else 100
        chunks = summary_of if is_summary else answer_to
        first, *rest = chunks(plan, step, tokens)
        if plan.hold and step == plan.turns and not is_summary:
            self._transport.write(_HEAD + first)
            await released.wait()
        else:
            rest.insert(0, _HEAD + first)
        for start in range(0, len(rest), _WRITE_EVENTS):
            await self._writable.wait()
            self._transport.write(b"".join(rest[start : start + _WRITE_EVENTS]))
        times[1] = time.monotonic_ns()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def serve(port: int) -> None:
    """Serve on loopback until cancelled. Prints the port when it listens."""
    book = Book()
    async with asyncio.TaskGroup() as tasks:
        server = await asyncio.get_running_loop().create_server(
            lambda: ScriptedModel(book, tasks), "127.0.0.1", port, backlog=1024
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
