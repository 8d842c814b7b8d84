"""Sending a prompt, and the answer in the form that the client asked for."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import orjson
from fastapi import Request, Response

from app.api.disconnects import TiedStream
from app.api.following import FRAMES, stream_run
from app.api.forms import wants_stream
from app.api.repeats import REPLAYED, Write, response
from app.api.schemas.run_bodies import RunBody
from app.api.schemas.sessions import Started
from app.runs.callers import Caller
from app.runs.listing import Row, RunRow, SessionRow
from app.runs.once import Answer, Once, Replayed
from app.runs.service import Service
from app.runs.telling import Accepted
from app.runs.wishes import SessionWish

STARTED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Started,
        "content": FRAMES,
        "description": "With `wait`: the run has ended. With `stream`: its events.",
    }
}
"""What starting a run answers beside 202."""


async def begin(
    request: Request,
    service: Service,
    caller: Caller,
    session: SessionWish | str,
    body: RunBody,
    write: Write,
) -> Response:
    """Send a prompt and answer in the form that the client asked for.

    A repeated request is answered in that form too, about the run of the first one.
    """
    session_id = session if isinstance(session, str) else None
    return await begin_by(
        lambda once: service.starts.start(caller, session, body.wish(), once=once),
        request,
        service,
        caller,
        session_id,
        body,
        write,
    )


class Form(Protocol):
    """The form in which a client wants to hear of its run."""

    @property
    def stream(self) -> bool: ...

    @property
    def wait(self) -> int: ...

    @property
    def on_disconnect(self) -> str: ...


async def begin_by(
    command: Callable[[Once | None], Awaitable[Accepted]],
    request: Request,
    service: Service,
    caller: Caller,
    session_id: str | None,
    body: Form,
    write: Write,
) -> Response:
    """Begin a run by a command and answer as `begin` does. `session_id` is None for a new one."""
    is_stream = body.stream or wants_stream(request)
    if is_stream:  # before anything is written
        service.stream_slots.check(caller, session_id)
    run: RunRow | None = None
    known: Sequence[Row] = ()
    try:
        accepted = await command(write.once(_accepted))
        run, run_id, steered_into = accepted.run, accepted.run.id, accepted.steered_into
        known = accepted.known
        answer = None if is_stream or body.wait else _accepted(accepted)
    except Replayed as replayed:
        answer = replayed.answer
        run_id, steered_into = answer.run_id or "", orjson.loads(answer.body)["steered_into"]
    is_replay = run is None
    if is_stream:
        run = run or await service.queries.run(caller.tenant_id, run_id)
        stream = stream_run(
            service,
            caller,
            run,
            after=run.first_seq - 1,
            previews=None,
            request=request,
            known=known,
        )
        if is_replay:
            stream.headers[REPLAYED] = "true"
        is_tied = body.on_disconnect == "cancel" and steered_into is None
        return _tied(stream, service, caller, run_id) if is_tied else stream
    if answer is None or body.wait:
        answer = await _waited(service, caller, run_id, steered_into, body.wait)
    return response(answer, is_replay=is_replay)


def _accepted(accepted: Accepted) -> Answer:
    return _started(accepted.run, accepted.session, accepted.steered_into, 202)


def _started(run: RunRow, session: SessionRow, steered_into: str | None, status: int) -> Answer:
    shown = Started.of(run, session, steered_into)
    return Answer(status, shown.model_dump_json(), run.id, shown.links.run)


async def _waited(
    service: Service, caller: Caller, run_id: str, steered_into: str | None, wait_s: float
) -> Answer:
    run = await service.queries.finished_run(caller.tenant_id, run_id, wait_s)
    session = await service.queries.session(caller.tenant_id, run.session_id)
    return _started(run, session, steered_into, 200 if run.status == "finished" else 202)


def _tied(stream: Response, service: Service, caller: Caller, run_id: str) -> Response:
    async def cancel() -> None:
        if not service.is_draining:  # then it is the host that goes, not the client
            await service.commands.cancel(caller, run_id, reason="The client hung up.")

    return TiedStream(stream, cancel)
