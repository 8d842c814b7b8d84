"""Actions: list what is asked, read it, answer it."""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.paging import Listing
from app.api.params import (
    Cursor,
    Limit,
    OfRun,
    OfSession,
    OfUser,
    Order,
)
from app.api.problems import Problem, problem_json
from app.api.repeats import WriteDep
from app.api.schemas.actions import (
    ActionObject,
    ActionPage,
    ResolveBody,
    ResolvedItem,
    ResolvedItems,
    ResolveManyBody,
)
from app.domain.actions import ActionStatus, ActionType
from app.runs.actions import ActionFilter, ActionRow, Resolved
from app.runs.callers import Caller
from app.runs.once import Answer
from app.runs.service import Service

router = APIRouter(tags=["actions"], route_class=StrictRoute)

Statuses = Annotated[list[ActionStatus] | None, Query(description='Repeat it for "or".')]
Types = Annotated[list[ActionType] | None, Query(description='Repeat it for "or".')]


@router.get("/v1/actions", operation_id="action_list", summary="List actions")
async def list_all(
    service: ServiceDep,
    caller: CallerDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    order: Order = "asc",
    status: Statuses = None,
    type: Types = None,  # noqa: A002 - the parameter's name
    session_id: OfSession = None,
    run_id: OfRun = None,
    user: OfUser = None,
) -> ActionPage:
    """Give what is, or was, asked in all sessions, the oldest first. Repeat a filter for "or"."""
    wanted = ActionFilter(sorted(status or ()), sorted(type or ()), session_id, run_id, user)
    return await _page(service, caller, wanted, limit, cursor, order)


@router.get(
    "/v1/sessions/{session_id}/actions",
    operation_id="session_actions",
    summary="List a session's actions",
)
async def of_session(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    order: Order = "asc",
    status: Statuses = None,
    type: Types = None,  # noqa: A002 - as above
) -> ActionPage:
    """Give what the session asks, or asked, the oldest first."""
    session = await service.queries.session(caller.tenant_id, session_id)
    wanted = ActionFilter(sorted(status or ()), sorted(type or ()), session_id)
    page = await _page(service, caller, wanted, limit, cursor, order)
    # Read before the list: nothing that the list lacks was asked before it.
    return page.model_copy(update={"as_of_seq": {session_id: session.last_seq} | page.as_of_seq})


async def _page(
    service: Service,
    caller: Caller,
    wanted: ActionFilter,
    limit: int,
    cursor: str | None,
    order: Order,
) -> ActionPage:
    listing = Listing(caller, ("actions", *astuple(wanted)), limit, cursor, order)
    rows = await service.actions.page(caller.tenant_id, listing.keyset, wanted)
    page, following = listing.page(rows)
    return ActionPage(
        data=[ActionObject.of(row) for row in page],
        as_of_seq={row.session_id: row.last_seq for row in page},
        has_more=following is not None,
        next_cursor=following,
    )


@router.get("/v1/actions/{action_id}", operation_id="action_get", summary="Read an action")
async def get(action_id: str, service: ServiceDep, caller: CallerDep) -> ActionObject:
    """Give the action."""
    return ActionObject.of(await service.actions.get(caller.tenant_id, action_id))


@router.post(
    "/v1/actions/resolve",
    operation_id="action_resolvemany",
    summary="Answer several actions",
    response_model=ResolvedItems,
)
async def resolve_many(
    body: ResolveManyBody,
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
) -> Response:
    """Answer up to 100 actions; one that is refused does not hold up the others."""
    answers = [(each.id, each.answer.wish()) for each in body.resolutions]

    def shown(done: Sequence[Resolved]) -> Answer:
        items = [_item(resolved, request) for resolved in done]
        return Answer(200, ResolvedItems(data=items).model_dump_json())

    return await write.answer(
        lambda once: service.actions.resolve_many(caller, answers, once=once), shown
    )


def _item(resolved: Resolved, request: Request) -> ResolvedItem:
    if resolved.action is not None:
        action = ActionObject.of(resolved.action)
        return ResolvedItem(id=resolved.action_id, action=action, problem=None)
    if resolved.refusal is None:
        raise TypeError("an answer was neither taken nor refused")
    problem = problem_json(
        resolved.refusal,
        instance=f"/v1/actions/{resolved.action_id}",
        request_id=getattr(request.state, "request_id", ""),
    )
    return ResolvedItem(
        id=resolved.action_id,
        action=None,
        problem=Problem.model_validate(orjson.loads(problem)),
    )


@router.post(
    "/v1/actions/{action_id}/resolve",
    operation_id="action_resolve",
    summary="Answer an action",
    response_model=ActionObject,
)
async def resolve(
    action_id: str, body: ResolveBody, service: ServiceDep, caller: CallerDep, write: WriteDep
) -> Response:
    """Answer what is asked. The same answer again is fine; another one is refused with the first.

    410 when nobody answered in time, or the run does not ask it any more.
    """
    wish = body.wish()
    return await write.answer(
        lambda once: service.actions.resolve(caller, action_id, wish, once=once), _shown
    )


def _shown(row: ActionRow) -> Answer:
    return Answer(200, ActionObject.of(row).model_dump_json())
