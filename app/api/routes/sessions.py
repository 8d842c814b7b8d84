"""Sessions: create, read, list, change, archive, prompt, fork, rewind."""

from dataclasses import astuple, replace
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.paging import Listing
from app.api.params import (
    METADATA_PARAMETER,
    CreatedAfter,
    CreatedBefore,
    Cursor,
    Limit,
    MetadataFilter,
    OfUser,
    Order,
    RunStatuses,
    SearchText,
)
from app.api.repeats import Write, WriteDep
from app.api.schemas.run_bodies import PromptBody
from app.api.schemas.runs import RunObject, RunPage
from app.api.schemas.session_bodies import (
    ForkBody,
    RewindBody,
    SessionBodyWithRun,
    SessionChangeBody,
)
from app.api.schemas.sessions import (
    CreatedSession,
    SessionObject,
    SessionPage,
    SessionStatus,
    Started,
)
from app.api.starting import STARTED, begin
from app.api.versions import ExpectedDep
from app.runs.callers import Caller
from app.runs.listing import RunFilter, RunRow, SessionFilter, SessionRow, list_runs, list_sessions
from app.runs.once import Answer
from app.runs.service import Service
from app.runs.wishes import SessionChange

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
    first = body.run
    if first is None:
        return await write.answer(
            lambda once: service.sessions.create(caller, body.wish(), once=once), _created
        )
    return await write.answer(
        lambda once: service.starts.start(caller, body.wish(), first.wish(), once=once),
        lambda accepted: _created(accepted.session, accepted.run),
    )


def _created(session: SessionRow, run: RunRow | None = None) -> Answer:
    shown = CreatedSession(
        **SessionObject.of(session).model_dump(), run=RunObject.of(run) if run else None
    )
    return Answer(
        201, shown.model_dump_json(), run.id if run else None, f"/v1/sessions/{session.id}"
    )


@router.get(
    "/v1/sessions",
    operation_id="session_list",
    summary="List sessions",
    openapi_extra=METADATA_PARAMETER,
)
async def list_all(
    service: ServiceDep,
    caller: CallerDep,
    metadata: MetadataFilter,
    limit: Limit = 50,
    cursor: Cursor = None,
    order: Order = "desc",
    status: Annotated[list[SessionStatus] | None, Query(description='Repeat it for "or".')] = None,
    parent_id: Annotated[str | None, Query(description="Only forks of this session.")] = None,
    user: OfUser = None,
    tag: Annotated[list[str] | None, Query(description='Repeat it for "or".')] = None,
    q: Annotated[
        SearchText | None, Query(description="Words of titles and first prompts, as in a search.")
    ] = None,
    archived: Annotated[
        bool | None, Query(description="Default: those that are not, unless `status` says so.")
    ] = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
) -> SessionPage:
    """Give sessions by creation time. `q` looks into titles and first prompts."""
    if archived is None and "archived" not in (status or ()):
        archived = False
    wanted = SessionFilter(
        sorted(status or ()),
        parent_id,
        user,
        sorted(tag or ()),
        metadata,
        archived,
        q,
        created_after,
        created_before,
    )
    listing = Listing(caller, ("sessions", *astuple(wanted)), limit, cursor, order)
    rows = await list_sessions(service.database, caller.tenant_id, listing.keyset, wanted)
    page, following = listing.page(rows)
    return SessionPage(
        data=[SessionObject.of(row) for row in page],
        has_more=following is not None,
        next_cursor=following,
    )


@router.get("/v1/sessions/{session_id}", operation_id="session_get", summary="Read a session")
async def get(
    session_id: str, service: ServiceDep, caller: CallerDep, response: Response
) -> SessionObject:
    """Give the session."""
    shown = SessionObject.of(await service.queries.session(caller.tenant_id, session_id))
    response.headers["ETag"] = shown.etag
    return shown


@router.patch(
    "/v1/sessions/{session_id}",
    operation_id="session_change",
    summary="Change a session",
    response_model=SessionObject,
)
async def change(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    expects: ExpectedDep,
    body: SessionChangeBody | None = None,
) -> Response:
    """Change title, tags, metadata, or the options of later runs; archive it, or take that back.

    Later runs are also those that follow by themselves, when something in the background has ended.

    With `If-Match` only if nobody has edited it since you read it.
    """
    wish = (body or SessionChangeBody()).change()
    return await _changed(service, caller, write, session_id, wish, expects)


@router.post(
    "/v1/sessions/{session_id}/archive",
    operation_id="session_archive",
    summary="Archive a session",
    response_model=SessionObject,
)
async def archive(
    session_id: str, service: ServiceDep, caller: CallerDep, write: WriteDep
) -> Response:
    """Let the session only be read from now on, and leave it out of lists. Safe to repeat."""
    return await _changed(service, caller, write, session_id, SessionChange(is_archived=True))


@router.post(
    "/v1/sessions/{session_id}/unarchive",
    operation_id="session_unarchive",
    summary="Take a session out of the archive",
    response_model=SessionObject,
)
async def unarchive(
    session_id: str, service: ServiceDep, caller: CallerDep, write: WriteDep
) -> Response:
    """Let the session be prompted and edited again. Safe to repeat."""
    return await _changed(service, caller, write, session_id, SessionChange(is_archived=False))


async def _changed(
    service: Service,
    caller: Caller,
    write: Write,
    session_id: str,
    wish: SessionChange,
    expects: int | None = None,
) -> Response:
    answer = await write.answer(
        lambda once: service.sessions.change(caller, session_id, wish, expects=expects, once=once),
        _shown,
    )
    answer.headers["ETag"] = orjson.loads(answer.body)["etag"]
    return answer


def _shown(session: SessionRow, status: int = 200) -> Answer:
    return Answer(status, SessionObject.of(session).model_dump_json())


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
    body: PromptBody,
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
    cursor: Cursor = None,
    order: Order = "desc",
    status: RunStatuses = None,
) -> RunPage:
    """Give the session's runs by creation time; `status=queued` shows what waits, and where."""
    await service.queries.session(caller.tenant_id, session_id)
    name = ("session_runs", session_id, sorted(status or ()))
    listing = Listing(caller, name, limit, cursor, order)
    wanted = RunFilter(session_id, status or ())
    rows = await list_runs(service.database, caller.tenant_id, listing.keyset, wanted)
    return RunPage.of(*listing.page(rows))


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
    """Make a new session with this one's conversation; this one is not touched.

    It may be at work: then name the message to branch at.
    """
    wish = (body or ForkBody()).wish()
    return await write.answer(
        lambda once: service.sessions.fork(caller, session_id, wish, once=once),
        lambda forked: replace(_shown(forked, 201), location=f"/v1/sessions/{forked.id}"),
    )


@router.post(
    "/v1/sessions/{session_id}/rewind",
    operation_id="session_rewind",
    summary="Rewind the conversation",
    response_model=SessionObject,
)
async def rewind(
    session_id: str, body: RewindBody, service: ServiceDep, caller: CallerDep, write: WriteDep
) -> Response:
    """Take what came after a message out of the conversation. The log keeps it, files stay.

    409 while the session has unfinished runs.
    """
    return await write.answer(
        lambda once: service.sessions.rewind(caller, session_id, body.at_message, once=once), _shown
    )
