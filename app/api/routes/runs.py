"""Runs: start, read, wait, stream, cancel."""

from typing import Annotated, Any, Literal

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
from app.api.schemas import (
    LONGEST_WAIT_S,
    CancelBody,
    RunBody,
    RunObject,
    RunPage,
    RunStatus,
    StartBody,
    Started,
    Stopped,
)
from app.api.sse import stream_response
from app.domain.messages import ResultMessage, ResultSubtype
from app.runs.callers import Caller
from app.runs.commands import SessionWish
from app.runs.listing import RunRow, list_runs
from app.runs.service import Service

router = APIRouter(tags=["runs"], route_class=StrictRoute)

Previews = Annotated[
    Literal["none", "text", "all"] | None,
    Query(description="Partial messages. Default: all if the run includes them, else none."),
]
Wait = Annotated[
    int, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for the run's end.")
]
_FRAMES = {"text/event-stream": {"schema": {"type": "string"}}}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": _FRAMES,
        "description": "Frames: `message` (an SDK message), `service`, `preview`, `end`.",
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
    request: Request, body: StartBody, service: ServiceDep, caller: CallerDep
) -> Response:
    """Create the session and the run in one transaction; 202 means that both are durable."""
    return await begin(request, service, caller, body.session_wish(), body)


async def begin(
    request: Request,
    service: Service,
    caller: Caller,
    session: SessionWish | str,
    body: RunBody,
) -> Response:
    """Start a run and answer in the form that the client asked for."""
    run, session_row = await service.commands.start(caller, session, body.wish())
    if body.stream or "text/event-stream" in request.headers.get("accept", ""):
        return _stream(service, caller, run, after=run.first_seq - 1, previews=None)
    status = 202
    if body.wait:
        run = await service.queries.finished_run(caller.tenant_id, run.id, body.wait)
        status = 200 if run.status == "finished" else 202
    answer = Started.of(run, session_row)
    headers = {"Location": answer.links.run}
    return Response(answer.model_dump_json(), status, headers, "application/json")


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
    service: ServiceDep,
    caller: CallerDep,
    after: str | None = None,
    last_event_id: LastEventId = None,
    previews: Previews = None,
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
    return _stream(service, caller, run, after=start_at, previews=previews)


@router.post(
    "/v1/runs/{run_id}/cancel",
    operation_id="run_cancel",
    summary="Cancel a run",
    response_model=Stopped,
    responses={202: {"description": "The run is being stopped.", "model": Stopped}},
)
async def cancel(
    run_id: str,
    service: ServiceDep,
    caller: CallerDep,
    body: CancelBody | None = None,
    wait: Wait = 0,
) -> Response:
    """Stop a run on whatever host it is. Safe to repeat."""
    reason = body.reason if body else None
    cancelled = await service.commands.cancel(caller, run_id, reason=reason)
    run = cancelled.run
    if run.status != "finished" and wait:
        run = await service.queries.finished_run(caller.tenant_id, run_id, wait)
    is_finished = run.status == "finished"
    answer = Stopped(
        run_id=run.id,
        status="finished" if is_finished else "cancelling",
        already_finished=cancelled.is_already_finished,
    )
    return Response(
        answer.model_dump_json(), 200 if is_finished else 202, media_type="application/json"
    )


def _stream(
    service: Service, caller: Caller, run: RunRow, *, after: int, previews: str | None
) -> Response:
    if previews is None:
        previews = "all" if run.options.get("include_partial_messages") else "none"
    return stream_response(
        service.queries.follow_run(caller.tenant_id, run, after=after, previews=previews),
        session_id=run.session_id,
        run_id=run.id,
        after=after,
        heartbeat_s=service.stream_heartbeat_s,
        send_timeout_s=service.stream_send_timeout_s,
    )
