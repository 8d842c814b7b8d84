"""A session's log: read in pages, waited for, streamed."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.entries import entry_json, message_page
from app.api.following import STREAM, pace
from app.api.forms import form_of
from app.api.params import (
    Before,
    Envelope,
    EventWait,
    LastEventId,
    LogLimit,
    OfRun,
    Order,
    Seq,
    SessionPreviews,
    StreamAfter,
    Thread,
    View,
    stream_start,
)
from app.api.schemas.log import EventPage, MessagePage
from app.api.schemas.tasks import TaskList
from app.api.streaming import StreamResponse, Subject
from app.runs.listing import LogRange, Row

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


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
    before: Before = None,
    limit: LogLimit = 100,
    order: Order = "asc",
    run_id: OfRun = None,
    types: Annotated[
        list[str] | None,
        Query(description='Types of messages and service events; repeat it for "or".'),
    ] = None,
    parent_tool_use_id: Thread = None,
    wait: EventWait = 0,
) -> Response:
    """Give every durable entry, messages and service events, by seq.

    With `wait` it is a long poll: an empty page is only given when nothing came in that time.
    """

    async def page() -> tuple[list[Row], bool]:
        return await service.queries.rows(
            caller.tenant_id,
            session_id,
            LogRange(after, before, limit, is_descending=order == "desc"),
            run_id=run_id,
            types=types,
            thread=parent_tool_use_id,
        )

    rows, has_more = await page()
    if not rows and wait:
        with service.stream_slots.hold(caller, session_id):
            is_there = await service.queries.something_new(
                caller.tenant_id,
                session_id,
                after=after,
                wait_s=wait,
                run_id=run_id,
                types=types,
                thread=parent_tool_use_id,
            )
        rows, has_more = await page() if is_there else (rows, has_more)
    return message_page([entry_json(row) for row in rows], rows, has_more=has_more)


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
    before: Before = None,
    limit: LogLimit = 100,
    order: Order = "asc",
    view: View = "full",
    parent_tool_use_id: Thread = None,
) -> Response:
    """Give the SDK messages alone, verbatim.

    `view=active` leaves out what compactions took away from the model, and what subagents did.
    """
    queries, key = service.queries, (caller.tenant_id, session_id)
    span = LogRange(after, before, limit, is_descending=order == "desc")
    rows, has_more = await (
        queries.active_messages(*key, span)
        if view == "active" and parent_tool_use_id is None
        else queries.rows(*key, span, kind="message", thread=parent_tool_use_id)
    )
    return message_page([row.body for row in rows], rows, has_more=has_more)


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
    after: StreamAfter = None,
    last_event_id: LastEventId = None,
    previews: SessionPreviews = "none",
    envelope: Envelope = False,
    parent_tool_use_id: Thread = None,
) -> Response:
    """Give the session's events beyond the cursor, then live ones, across runs."""
    cursor = stream_start(last_event_id, after)
    session = await service.queries.check_cursor(caller.tenant_id, session_id, cursor or 0)
    start_at = session.last_seq if cursor == -1 else cursor or 0
    return StreamResponse(
        service.queries.follow_session(
            caller.tenant_id,
            session_id,
            after=start_at,
            previews=previews,
            thread=parent_tool_use_id,
        ),
        Subject(session_id, None, start_at),
        form=form_of(request, is_wrapped=envelope),
        pace=pace(service),
        slot=lambda: service.stream_slots.hold(caller, session_id),
    )


@router.get(
    "/v1/sessions/{session_id}/tasks",
    operation_id="session_tasks",
    summary="Read what a session's agent means to do",
)
async def tasks(session_id: str, service: ServiceDep, caller: CallerDep) -> TaskList:
    """Give the list that the tools TaskCreate and TaskUpdate keep."""
    return TaskList.of(await service.queries.work(caller.tenant_id, session_id))
