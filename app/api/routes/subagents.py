"""The subagents of a session, and what each of them said and did."""

from fastapi import APIRouter, Response

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.entries import message_page
from app.api.params import (
    Before,
    LogLimit,
    Order,
    Seq,
)
from app.api.schemas.log import MessagePage
from app.api.schemas.subagents import Subagent, SubagentPage
from app.runs.listing import LogRange

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


@router.get(
    "/v1/sessions/{session_id}/subagents",
    operation_id="session_subagents",
    summary="List a session's subagents",
)
async def subagents(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    after: Seq = 0,
    limit: LogLimit = 100,
) -> SubagentPage:
    """Give the subagents of all runs, in the order in which they began."""
    rows, has_more = await service.queries.subagents(
        caller.tenant_id, session_id, after=after, limit=limit
    )
    return SubagentPage(
        data=[Subagent.of(row) for row in rows],
        has_more=has_more,
        next_after=rows[-1].seq if has_more else None,
    )


@router.get(
    "/v1/sessions/{session_id}/subagents/{tool_use_id}/messages",
    operation_id="session_subagent",
    summary="Read a subagent's transcript",
    response_model=MessagePage,
)
async def subagent_messages(
    session_id: str,
    tool_use_id: str,
    service: ServiceDep,
    caller: CallerDep,
    after: Seq = 0,
    before: Before = None,
    limit: LogLimit = 100,
    order: Order = "asc",
) -> Response:
    """Give all messages of a subagent, its text and thoughts among them.

    What the subagents did that it began itself is in transcripts of their own.
    """
    rows, has_more = await service.queries.subagent_rows(
        caller.tenant_id,
        session_id,
        tool_use_id,
        LogRange(after, before, limit, is_descending=order == "desc"),
    )
    return message_page([row.body for row in rows], rows, has_more=has_more)
