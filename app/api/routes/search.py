"""Full-text search."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.paging import decode_cursor, encode_cursor, list_tag, place_of
from app.api.params import SearchText
from app.api.schemas.search import SearchHit, SearchPage
from app.runs.searching import search

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


@router.get("/v1/search", operation_id="session_search", summary="Search what was said")
async def find(
    service: ServiceDep,
    caller: CallerDep,
    q: SearchText,
    limit: Annotated[int, Query(ge=1, le=50, description="Most items of a page.")] = 20,
    cursor: str | None = None,
) -> SearchPage:
    """Give messages of all sessions that hold the words, the newest first.

    Prompts, answers, calls and results are found a moment after their run has ended.
    """
    tag = list_tag(caller, "desc", "search", q)
    key = decode_cursor(cursor, tag)
    found = await search(
        service.database,
        caller.tenant_id,
        q,
        after=None if key is None else (key[0], *place_of(key[1])),
        limit=limit + 1,
    )
    page, has_more = found[:limit], len(found) > limit
    last = page[-1].hit if has_more else None
    following = encode_cursor(last.at, f"{last.session_id}/{last.seq}", tag) if last else None
    return SearchPage(
        data=[SearchHit.of(each) for each in page], has_more=has_more, next_cursor=following
    )
