"""The window of a session's model: how full it is, and making room in it."""

from fastapi import APIRouter, Request, Response

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.repeats import WriteDep
from app.api.schemas.compaction import CompactBody
from app.api.schemas.sessions import Started
from app.api.starting import STARTED, begin
from app.domain.context_usage import ContextUsage

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


@router.post(
    "/v1/sessions/{session_id}/compact",
    status_code=202,
    response_model=Started,
    responses=STARTED,
    operation_id="session_compact",
    summary="Compact a session's conversation",
)
async def compact(
    session_id: str,
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: CompactBody | None = None,
) -> Response:
    """Put a summary in place of older messages, for the model: a run, as the prompt `/compact` is.

    The log keeps every message. The run waits its turn in a busy session.
    """
    wish = body or CompactBody()
    return await begin(request, service, caller, session_id, wish.run(), write)


@router.get(
    "/v1/sessions/{session_id}/context",
    operation_id="session_context",
    summary="See what fills a session's window",
)
async def context(session_id: str, service: ServiceDep, caller: CallerDep) -> ContextUsage:
    """Give the size of the session's next request, by source."""
    return await service.window.usage(caller.tenant_id, session_id)
