"""Sessions: create, read, prompt, fork."""

from typing import Literal

from fastapi import APIRouter, Request, Response

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.paging import decode_cursor, list_tag, page_of
from app.api.params import (
    Limit,
    Order,
    RunStatuses,
)
from app.api.repeats import WriteDep
from app.api.schemas.run_bodies import RunBody
from app.api.schemas.runs import RunObject, RunPage
from app.api.schemas.session_bodies import ForkBody, SessionBodyWithRun
from app.api.schemas.sessions import CreatedSession, SessionObject, SessionPage, Started
from app.api.starting import STARTED, begin
from app.runs.listing import RunRow, SessionRow, list_runs, list_sessions
from app.runs.once import Answer

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


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
    order: Order = "desc",
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
    page, following = page_of(rows, limit, tag)
    return SessionPage(
        data=[SessionObject.of(row) for row in page],
        has_more=following is not None,
        next_cursor=following,
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
    order: Order = "desc",
    status: RunStatuses = None,
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
    page, following = page_of(rows, limit, tag)
    return RunPage(
        data=[RunObject.of(row) for row in page],
        has_more=following is not None,
        next_cursor=following,
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
