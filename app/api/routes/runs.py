"""Runs: start, read, wait, stream, change, remove, cancel."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from app.api.body import StrictRoute
from app.api.deps import (
    CallerDep,
    LastEventId,
    Limit,
    ServiceDep,
    decode_cursor,
    encode_cursor,
    list_tag,
    stream_start,
)
from app.api.disconnects import TiedStream
from app.api.forms import form_of, wants_stream
from app.api.repeats import REPLAYED, Write, WriteDep, response
from app.api.schemas.cancels import CancelBody, CancelManyBody, CancelReceipt, CancelReceipts
from app.api.schemas.common import LONGEST_WAIT_S
from app.api.schemas.run_bodies import RunBody, RunChangeBody
from app.api.schemas.runs import RunObject, RunPage, RunStatus
from app.api.schemas.session_bodies import StartBody
from app.api.schemas.sessions import Started
from app.api.streaming import Pace, StreamResponse, Subject
from app.domain.messages import ResultMessage, ResultSubtype
from app.runs.callers import Caller
from app.runs.cancelling import Cancelled, ManyCancelled
from app.runs.listing import Row, RunRow, SessionRow, list_runs
from app.runs.once import Answer, Replayed
from app.runs.receipts import Settled, settle
from app.runs.service import Service
from app.runs.telling import Accepted
from app.runs.wishes import SessionWish

router = APIRouter(tags=["runs"], route_class=StrictRoute)

Previews = Annotated[
    Literal["none", "text", "all"] | None,
    Query(description="Partial messages. Default: all if the run includes them, else none."),
]
Wait = Annotated[
    int, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for the run's end.")
]
Envelope = Annotated[
    bool,
    Query(description="Wrap messages: frames `entry`, `{seq, run_id, message}` instead of it."),
]
_FRAMES = {
    "text/event-stream": {"schema": {"type": "string"}},
    "application/x-ndjson": {"schema": {"type": "string"}},
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": _FRAMES,
        "description": (
            "Frames: `message` (an SDK message), `service`, `preview`, `problem` (of this "
            "connection), `end` (with `reason`: `run_finished`, or, to come back with the "
            "cursor, `server_shutdown`, `slow_reader`, `max_age`). A stream without an `end` "
            "was cut. Comments are heartbeats. A preview is a piece of a message that is on its "
            "way; a reader that comes in its middle first gets what came before it, after the "
            "comment `snapshot`. The whole message follows: drop the pieces then. "
            "`Accept: application/x-ndjson` gives a line `{event, id, data}` for each frame, and "
            "empty lines as heartbeats."
        ),
    }
}
STARTED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Started,
        "content": _FRAMES,
        "description": "With `wait`: the run has ended. With `stream`: its events.",
    }
}
"""What starting a run answers beside 202."""


@router.post(
    "/v1/runs",
    status_code=202,
    response_model=Started,
    responses=STARTED,
    operation_id="run_start",
    summary="Create a session and start its first run",
)
async def start(
    request: Request, body: StartBody, service: ServiceDep, caller: CallerDep, write: WriteDep
) -> Response:
    """Create the session and the run in one transaction; 202 means that both are durable."""
    return await begin(request, service, caller, body.session_wish(), body, write)


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
    is_stream = body.stream or wants_stream(request)
    if is_stream:  # before anything is written
        service.stream_slots.check(caller, session if isinstance(session, str) else None)
    run: RunRow | None = None
    known: Sequence[Row] = ()
    try:
        accepted = await service.commands.start(
            caller, session, body.wish(), once=write.once(_accepted)
        )
        run, run_id, steered_into = accepted.run, accepted.run.id, accepted.steered_into
        known = accepted.known
        answer = None if is_stream or body.wait else _accepted(accepted)
    except Replayed as replayed:
        answer = replayed.answer
        run_id, steered_into = answer.run_id or "", orjson.loads(answer.body)["steered_into"]
    is_replay = run is None
    if is_stream:
        run = run or await service.queries.run(caller.tenant_id, run_id)
        stream = _stream(
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


@router.get("/v1/runs", operation_id="run_list", summary="List runs")
async def list_all(
    service: ServiceDep,
    caller: CallerDep,
    limit: Limit = 50,
    cursor: str | None = None,
    order: Literal["asc", "desc"] = "desc",
    session_id: str | None = None,
    status: Annotated[list[RunStatus] | None, Query()] = None,
    result_subtype: Annotated[list[ResultSubtype] | None, Query()] = None,
) -> RunPage:
    """Give runs by creation time. Repeat a filter for "or"."""
    tag = list_tag(
        caller, order, "runs", session_id, sorted(status or ()), sorted(result_subtype or ())
    )
    rows = await list_runs(
        service.database,
        caller.tenant_id,
        session_id=session_id,
        after=decode_cursor(cursor, tag),
        limit=limit + 1,
        descending=order == "desc",
        statuses=status or (),
        result_subtypes=result_subtype or (),
    )
    page, has_more = rows[:limit], len(rows) > limit
    following = encode_cursor(page[-1].created_at, page[-1].id, tag) if has_more else None
    return RunPage(
        data=[RunObject.of(row) for row in page], has_more=has_more, next_cursor=following
    )


@router.get("/v1/runs/{run_id}", operation_id="run_get", summary="Read a run, or wait for its end")
async def get(run_id: str, service: ServiceDep, caller: CallerDep, wait: Wait = 0) -> RunObject:
    """Give the run; with `wait`, when it has ended or the seconds are over: look at `status`."""
    return RunObject.of(await service.queries.finished_run(caller.tenant_id, run_id, wait))


@router.get(
    "/v1/runs/{run_id}/result",
    operation_id="run_result",
    summary="Read the result message",
    response_model=ResultMessage,
    responses={202: {"description": "The run is not finished yet."}},
)
async def result(run_id: str, service: ServiceDep, caller: CallerDep) -> Response:
    """Give the run's `result` message alone, exactly as it was streamed."""
    run = await service.queries.run(caller.tenant_id, run_id)
    body = await service.queries.result(caller.tenant_id, run)
    if body is None:
        return JSONResponse({"status": run.status}, 202, {"Retry-After": "1"})
    return Response(body, media_type="application/json")


@router.get(
    "/v1/runs/{run_id}/stream",
    operation_id="run_stream",
    summary="Follow a run",
    responses={**STREAM, 204: {"description": "Finished, and read to its end."}},
    response_class=Response,
)
async def stream(
    run_id: str,
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    after: str | None = None,
    last_event_id: LastEventId = None,
    previews: Previews = None,
    envelope: Envelope = False,
) -> Response:
    """Give the run's events beyond the cursor, then live ones, until its end."""
    run = await service.queries.run(caller.tenant_id, run_id)
    cursor = stream_start(last_event_id, after)
    session = await service.queries.check_cursor(caller.tenant_id, run.session_id, cursor or 0)
    if cursor == -1:
        cursor = session.last_seq
    if run.status == "finished" and cursor is not None and cursor >= (run.last_seq or 0):
        return Response(status_code=204)
    start_at = run.first_seq - 1 if cursor is None else cursor
    return _stream(
        service,
        caller,
        run,
        after=start_at,
        previews=previews,
        request=request,
        is_wrapped=envelope,
        is_promised=False,
    )


@router.patch(
    "/v1/runs/{run_id}",
    operation_id="run_change",
    summary="Change a run that waits",
    response_model=RunObject,
)
async def change(
    run_id: str,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: RunChangeBody | None = None,
) -> Response:
    """Change prompt, options, priority or metadata of a queued run; 409 once it has begun."""
    wish = (body or RunChangeBody()).change()
    return await write.answer(
        lambda once: service.commands.change(caller, run_id, wish, once=once), _shown
    )


@router.delete(
    "/v1/runs/{run_id}",
    operation_id="run_remove",
    summary="Remove a run that waits",
    response_model=RunObject,
)
async def remove(run_id: str, service: ServiceDep, caller: CallerDep, write: WriteDep) -> Response:
    """Take a queued run out of the queue: it ends as cancelled; 409 once it has begun."""
    return await write.answer(
        lambda once: service.commands.remove(caller, run_id, once=once), _shown
    )


def _shown(run: RunRow) -> Answer:
    return Answer(200, RunObject.of(run).model_dump_json(), run.id)


CancelWait = Annotated[
    int, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait until it has stopped.")
]


@router.post(
    "/v1/runs/cancel",
    operation_id="run_cancelmany",
    summary="Cancel several runs",
    response_model=CancelReceipts,
    responses={202: {"description": "Some are being stopped.", "model": CancelReceipts}},
)
async def cancel_many(
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: CancelManyBody,
    wait: CancelWait = 2,
) -> Response:
    """Stop up to 100 runs, wherever they are, with a receipt for each. Safe to repeat."""
    is_replay = False
    try:
        done = await service.commands.cancel_many(
            caller, body.choice(), reason=body.reason, once=write.once(_many_cancelled)
        )
    except Replayed as replayed:
        is_replay = True
        kept = CancelReceipts.model_validate_json(replayed.answer.body)
        runs = [await _kept(service, caller, receipt) for receipt in kept.data]
        done = ManyCancelled(runs, kept.missing, kept.has_more)
    settled = await settle(service.queries, caller.tenant_id, done.runs, wait_s=wait)
    return response(_receipts(settled, done), is_replay=is_replay)


async def _kept(service: Service, caller: Caller, receipt: CancelReceipt) -> Cancelled:
    """Give a cancel that was made before: what is known of it now is more than what was kept."""
    run = await service.queries.run(caller.tenant_id, receipt.run_id)
    return Cancelled(run, receipt.already_finished)


def _many_cancelled(done: ManyCancelled) -> Answer:
    return _receipts([_at_once(cancelled) for cancelled in done.runs], done)


def _receipts(settled: Sequence[Settled], done: ManyCancelled) -> Answer:
    data = [CancelReceipt.of(one) for one in settled]
    shown = CancelReceipts(data=data, missing=list(done.missing), has_more=done.has_more)
    is_over = all(receipt.status == "finished" for receipt in data)
    return Answer(200 if is_over else 202, shown.model_dump_json())


@router.post(
    "/v1/runs/{run_id}/cancel",
    operation_id="run_cancel",
    summary="Cancel a run",
    response_model=CancelReceipt,
    responses={202: {"description": "The run is being stopped.", "model": CancelReceipt}},
)
async def cancel(
    run_id: str,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: CancelBody | None = None,
    wait: CancelWait = 2,
) -> Response:
    """Stop a run on whatever host it is. Safe to repeat."""
    reason = body.reason if body else None
    is_replay = False
    try:
        cancelled = await service.commands.cancel(
            caller, run_id, reason=reason, once=write.once(_cancelled)
        )
    except Replayed as replayed:
        is_replay = True
        kept = CancelReceipt.model_validate_json(replayed.answer.body)
        cancelled = await _kept(service, caller, kept)
    (settled,) = await settle(service.queries, caller.tenant_id, [cancelled], wait_s=wait)
    return response(_receipt(settled), is_replay=is_replay)


def _cancelled(cancelled: Cancelled) -> Answer:
    return _receipt(_at_once(cancelled))


def _at_once(cancelled: Cancelled) -> Settled:
    return Settled(cancelled.run, cancelled.is_already_finished)


def _receipt(settled: Settled) -> Answer:
    shown = CancelReceipt.of(settled)
    status = 200 if shown.status == "finished" else 202
    return Answer(status, shown.model_dump_json(), settled.run.id)


def _stream(
    service: Service,
    caller: Caller,
    run: RunRow,
    *,
    after: int,
    previews: str | None,
    request: Request,
    is_wrapped: bool = False,
    is_promised: bool = True,
    known: Sequence[Row] = (),
) -> Response:
    """Stream a run. The stream of a run that was just started is promised: its slot is not refused."""
    if previews is None:
        previews = "all" if run.options.get("include_partial_messages") else "none"
    return StreamResponse(
        service.queries.follow_run(
            caller.tenant_id, run, after=after, previews=previews, known=known
        ),
        Subject(run.session_id, run.id, after),
        form=form_of(request, is_wrapped=is_wrapped),
        pace=pace(service),
        slot=lambda: service.stream_slots.hold(caller, run.session_id, is_promised=is_promised),
    )


def pace(service: Service) -> Pace:
    """Give the limits of a stream's connection."""
    return Pace(service.stream_heartbeat_s, service.stream_send_timeout_s, service.stream_max_age_s)
