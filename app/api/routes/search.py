"""Full-text search."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.paging import Listing
from app.api.params import (
    Cursor,
    SearchText,
)
from app.api.schemas.search import SearchHit, SearchPage
from app.runs.searching import search

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


@router.get("/v1/search", operation_id="session_search", summary="Search what was said")
async def find(
    service: ServiceDep,
    caller: CallerDep,
    q: SearchText,
    limit: Annotated[int, Query(ge=1, le=50, description="Most items of a page.")] = 20,
    cursor: Cursor = None,
) -> SearchPage:
    """Give messages of all sessions that hold the words, the newest first.

    Prompts, answers, calls and results are found a moment after their run has ended.
    """
    listing = Listing(caller, ("search", q), limit, cursor)
    found = await search(
        service.database, caller.tenant_id, q, after=listing.after_row, limit=listing.most
    )
    page, following = listing.page_of_log(found, lambda each: each.hit)
    return SearchPage(
        data=[SearchHit.of(each) for each in page],
        has_more=following is not None,
        next_cursor=following,
    )
