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
from app.api.forms import form_of
from app.api.repeats import WriteDep
from app.api.routes.runs import STARTED, STREAM, Envelope, begin, pace
from app.api.schemas.common import LONGEST_WAIT_S
from app.api.schemas.log import EventPage, MessagePage
from app.api.schemas.run_bodies import RunBody
from app.api.schemas.runs import RunObject, RunPage, RunStatus
from app.api.schemas.session_bodies import ForkBody, SessionBodyWithRun
from app.api.schemas.sessions import CreatedSession, SessionObject, SessionPage, Started
from app.api.streaming import StreamResponse, Subject
from app.domain.messages import wire_time
from app.runs.listing import RunRow, SessionRow, list_runs, list_sessions
from app.runs.live import Row, service_json
from app.runs.once import Answer

router = APIRouter(tags=["sessions"], route_class=StrictRoute)

SessionPreviews = Annotated[
    Literal["none", "text", "all"], Query(description="Partial messages of all runs.")
]
EventWait = Annotated[
    int,
    Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for an entry if there is none."),
]


@router.post(
    "/v1/sessions",
    status_code=201,
    response_model=CreatedSession,
    operation_id="session_create",
    summary="Create a session",
)
async def create(
    body: SessionBodyWithRun, service: ServiceDep, caller: CallerDep, write: WriteDep
) -> Response:
    """Create a session; with `run`, its first run too, in the same transaction."""
    commands, first = service.commands, body.run
    if first is None:
        return await write.answer(
            lambda once: commands.create_session(caller, body.wish(), once=once), _created
        )
    return await write.answer(
        lambda once: commands.start(caller, body.wish(), first.wish(), once=once),
        lambda accepted: _created(accepted.session, accepted.run),
    )


def _created(session: SessionRow, run: RunRow | None = None) -> Answer:
    shown = CreatedSession(
        **SessionObject.of(session).model_dump(), run=RunObject.of(run) if run else None
    )
    return Answer(
        201, shown.model_dump_json(), run.id if run else None, f"/v1/sessions/{session.id}"
    )


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
    session_id: str,
    request: Request,
    body: RunBody,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
) -> Response:
    """Resume the session with a new prompt; works on any host. `on_busy` says what a busy one does."""
    return await begin(request, service, caller, session_id, body, write)


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
    status: Annotated[list[RunStatus] | None, Query()] = None,
) -> RunPage:
    """Give the session's runs by creation time; `status=queued` shows what waits, and where."""
    await service.queries.session(caller.tenant_id, session_id)
    tag = list_tag(caller, order, "session_runs", session_id, sorted(status or ()))
    rows = await list_runs(
        service.database,
        caller.tenant_id,
        session_id=session_id,
        after=decode_cursor(cursor, tag),
        limit=limit + 1,
        descending=order == "desc",
        statuses=status or (),
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
    response_model=SessionObject,
)
async def fork(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: ForkBody | None = None,
) -> Response:
    """Make a new session with this one's messages; this one is not touched."""
    wish = body or ForkBody()
    return await write.answer(
        lambda once: service.commands.fork(
            caller,
            session_id,
            at_message=wish.at_message,
            title=wish.title,
            new_id=wish.id,
            once=once,
        ),
        lambda forked: Answer(201, SessionObject.of(forked).model_dump_json()),
    )


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
    wait: EventWait = 0,
) -> Response:
    """Give every durable entry, messages and service events, by seq.

    With `wait` it is a long poll: an empty page is only given when nothing came in that time.
    """

    async def page() -> tuple[list[Row], bool]:
        return await service.queries.rows(
            caller.tenant_id,
            session_id,
            after=after,
            before=before,
            limit=limit,
            is_descending=order == "desc",
            run_id=run_id,
            types=types,
        )

    rows, has_more = await page()
    if not rows and wait:
        with service.stream_slots.hold(caller, session_id):
            is_there = await service.queries.something_new(
                caller.tenant_id, session_id, after=after, wait_s=wait, run_id=run_id, types=types
            )
        rows, has_more = await page() if is_there else (rows, has_more)
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
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    after: str | None = None,
    last_event_id: LastEventId = None,
    previews: SessionPreviews = "none",
    envelope: Envelope = False,
) -> Response:
    """Give the session's events beyond the cursor, then live ones, across runs."""
    cursor = stream_start(last_event_id, after)
    session = await service.queries.check_cursor(caller.tenant_id, session_id, cursor or 0)
    start_at = session.last_seq if cursor == -1 else cursor or 0
    return StreamResponse(
        service.queries.follow_session(
            caller.tenant_id, session_id, after=start_at, previews=previews
        ),
        Subject(session_id, None, start_at),
        form=form_of(request, is_wrapped=envelope),
        pace=pace(service),
        slot=lambda: service.stream_slots.hold(caller, session_id),
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
