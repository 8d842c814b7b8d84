"""Sessions: create, read, prompt, fork, and their log."""

from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response

from app.api.body import StrictRoute
from app.api.deps import (
    CallerDep,
    LastEventId,
    Limit,
    LogLimit,
    Seq,
    ServiceDep,
    decode_cursor,
    encode_cursor,
    list_tag,
    stream_start,
)
from app.api.routes.runs import STARTED, STREAM, begin
from app.api.schemas import (
    CreatedSession,
    EventPage,
    ForkBody,
    MessagePage,
    RunBody,
    RunObject,
    RunPage,
    SessionBodyWithRun,
    SessionObject,
    SessionPage,
    Started,
)
from app.api.sse import stream_response
from app.domain.messages import wire_time
from app.runs.listing import list_runs, list_sessions
from app.runs.live import Row, service_json

router = APIRouter(tags=["sessions"], route_class=StrictRoute)

SessionPreviews = Annotated[
    Literal["none", "text", "all"], Query(description="Partial messages of all runs.")
]


@router.post(
    "/v1/sessions",
    status_code=201,
    response_model=CreatedSession,
    operation_id="session_create",
    summary="Create a session",
)
async def create(body: SessionBodyWithRun, service: ServiceDep, caller: CallerDep) -> Response:
    """Create a session; with `run`, its first run too, in the same transaction."""
    run = None
    if body.run is None:
        session = await service.commands.create_session(caller, body.wish())
    else:
        run, session = await service.commands.start(caller, body.wish(), body.run.wish())
    shown = CreatedSession(
        **SessionObject.of(session).model_dump(), run=RunObject.of(run) if run else None
    )
    headers = {"Location": f"/v1/sessions/{session.id}"}
    return Response(shown.model_dump_json(), 201, headers, "application/json")


@router.get("/v1/sessions", operation_id="session_list", summary="List sessions")
async def list_all(
    service: ServiceDep,
    caller: CallerDep,
    limit: Limit = 50,
    cursor: str | None = None,
    order: Literal["asc", "desc"] = "desc",
    status: Literal["idle", "running"] | None = None,
    parent_id: str | None = None,
) -> SessionPage:
    """Give sessions by creation time."""
    tag = list_tag(caller, order, "sessions", status, parent_id)
    rows = await list_sessions(
        service.database,
        caller.tenant_id,
        after=decode_cursor(cursor, tag),
        limit=limit + 1,
        descending=order == "desc",
        is_running=None if status is None else status == "running",
        parent_id=parent_id,
    )
    page, has_more = rows[:limit], len(rows) > limit
    following = encode_cursor(page[-1].created_at, page[-1].id, tag) if has_more else None
    return SessionPage(
        data=[SessionObject.of(row) for row in page], has_more=has_more, next_cursor=following
    )


@router.get("/v1/sessions/{session_id}", operation_id="session_get", summary="Read a session")
async def get(session_id: str, service: ServiceDep, caller: CallerDep) -> SessionObject:
    """Give the session."""
    return SessionObject.of(await service.queries.session(caller.tenant_id, session_id))


@router.post(
    "/v1/sessions/{session_id}/runs",
    status_code=202,
    response_model=Started,
    responses=STARTED,
    operation_id="session_prompt",
    summary="Send a prompt to a session",
)
async def prompt(
    session_id: str, request: Request, body: RunBody, service: ServiceDep, caller: CallerDep
) -> Response:
    """Resume the session with a new prompt; works on any host. Waits its turn when it is busy."""
    return await begin(request, service, caller, session_id, body)


@router.get(
    "/v1/sessions/{session_id}/runs", operation_id="session_runs", summary="List a session's runs"
)
async def runs(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    limit: Limit = 50,
    cursor: str | None = None,
    order: Literal["asc", "desc"] = "desc",
) -> RunPage:
    """Give the session's runs by creation time."""
    await service.queries.session(caller.tenant_id, session_id)
    tag = list_tag(caller, order, "session_runs", session_id)
    rows = await list_runs(
        service.database,
        caller.tenant_id,
        session_id=session_id,
        after=decode_cursor(cursor, tag),
        limit=limit + 1,
        descending=order == "desc",
    )
    page, has_more = rows[:limit], len(rows) > limit
    following = encode_cursor(page[-1].created_at, page[-1].id, tag) if has_more else None
    return RunPage(
        data=[RunObject.of(row) for row in page], has_more=has_more, next_cursor=following
    )


@router.post(
    "/v1/sessions/{session_id}/fork",
    status_code=201,
    operation_id="session_fork",
    summary="Branch a session",
)
async def fork(
    session_id: str, service: ServiceDep, caller: CallerDep, body: ForkBody | None = None
) -> SessionObject:
    """Make a new session with this one's messages; this one is not touched."""
    body = body or ForkBody()
    forked = await service.commands.fork(
        caller, session_id, at_message=body.at_message, title=body.title, new_id=body.id
    )
    return SessionObject.of(forked)


@router.get(
    "/v1/sessions/{session_id}/events",
    operation_id="session_events",
    summary="Read a session's log",
    response_model=EventPage,
)
async def events(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    after: Seq = 0,
    before: Seq | None = None,
    limit: LogLimit = 100,
    order: Literal["asc", "desc"] = "asc",
    run_id: str | None = None,
    types: Annotated[list[str] | None, Query()] = None,
) -> Response:
    """Give every durable entry, messages and service events, by seq."""
    rows, has_more = await service.queries.rows(
        caller.tenant_id,
        session_id,
        after=after,
        before=before,
        limit=limit,
        is_descending=order == "desc",
        run_id=run_id,
        types=types,
    )
    return _page([_entry(row) for row in rows], rows, has_more=has_more)


@router.get(
    "/v1/sessions/{session_id}/messages",
    operation_id="session_messages",
    summary="Read a session's transcript",
    response_model=MessagePage,
)
async def messages(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    after: Seq = 0,
    before: Seq | None = None,
    limit: LogLimit = 100,
    order: Literal["asc", "desc"] = "asc",
) -> Response:
    """Give the SDK messages alone, verbatim."""
    rows, has_more = await service.queries.rows(
        caller.tenant_id,
        session_id,
        after=after,
        before=before,
        limit=limit,
        is_descending=order == "desc",
        kind="message",
    )
    return _page([row.body for row in rows], rows, has_more=has_more)


@router.get(
    "/v1/sessions/{session_id}/stream",
    operation_id="session_stream",
    summary="Follow a session",
    responses=STREAM,
    response_class=Response,
)
async def stream(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    after: str | None = None,
    last_event_id: LastEventId = None,
    previews: SessionPreviews = "none",
) -> Response:
    """Give the session's events beyond the cursor, then live ones, across runs."""
    cursor = stream_start(last_event_id, after)
    session = await service.queries.check_cursor(caller.tenant_id, session_id, cursor or 0)
    start_at = session.last_seq if cursor == -1 else cursor or 0
    return stream_response(
        service.queries.follow_session(
            caller.tenant_id, session_id, after=start_at, previews=previews
        ),
        session_id=session_id,
        run_id=None,
        after=start_at,
        heartbeat_s=service.stream_heartbeat_s,
        send_timeout_s=service.stream_send_timeout_s,
    )


def _entry(row: Row) -> str:
    """Wrap a row; its data stays the exact JSON that readers got."""
    at = wire_time(row.at) if row.at else None
    head = orjson.dumps({"seq": row.seq, "at": at, "run_id": row.run_id, "kind": row.kind})
    data = row.body if row.kind == "message" else service_json(row)
    return f'{head.decode()[:-1]},"data":{data}}}'


def _page(items: list[str], rows: list[Row], *, has_more: bool) -> Response:
    following = rows[-1].seq if has_more else "null"
    more = "true" if has_more else "false"
    body = f'{{"data":[{",".join(items)}],"has_more":{more},"next_after":{following}}}'
    return Response(body, media_type="application/json")
