"""The audit."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.paging import Listing
from app.api.params import Cursor, OfRun, OfSession
from app.api.schemas.audit import AuditEntry, AuditPage

router = APIRouter(tags=["actions"], route_class=StrictRoute)


@router.get("/v1/audit", operation_id="action_audit", summary="Read who decided what")
async def listed(
    service: ServiceDep,
    caller: CallerDep,
    session_id: OfSession = None,
    run_id: OfRun = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Most items of a page.")] = 50,
    cursor: Cursor = None,
) -> AuditPage:
    """Give each decision about a call of the tenant's agents, the newest first.

    An entry commits with the call's result: a call that has one was decided, and by whom stands here.
    """
    listing = Listing(caller, ("audit", session_id, run_id), limit, cursor)
    rows = await service.queries.decisions(
        caller.tenant_id,
        session_id=session_id,
        run_id=run_id,
        before=listing.after_row,
        limit=listing.most,
    )
    page, following = listing.page_of_log(rows, lambda row: row)
    return AuditPage(
        data=[AuditEntry.of(row) for row in page],
        has_more=following is not None,
        next_cursor=following,
    )
