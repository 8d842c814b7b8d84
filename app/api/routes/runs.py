"""Runs: start, read, wait, stream, change, remove, cancel."""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.following import STREAM, stream_run
from app.api.paging import Listing
from app.api.params import (
    CancelWait,
    CreatedAfter,
    CreatedBefore,
    Cursor,
    Envelope,
    LastEventId,
    Limit,
    OfSession,
    OfUser,
    Order,
    Previews,
    RunStatuses,
    StreamAfter,
    Wait,
    stream_start,
)
from app.api.repeats import Write, WriteDep, response
from app.api.schemas.cancels import CancelBody, CancelManyBody, CancelReceipt, CancelReceipts
from app.api.schemas.run_bodies import RetryBody, RunChangeBody
from app.api.schemas.runs import RunObject, RunPage
from app.api.schemas.session_bodies import StartBody
from app.api.schemas.sessions import Started
from app.api.starting import STARTED, begin, begin_by
from app.domain.results import Result, ResultSubtype
from app.domain.runs import EndReason
from app.errors import NotRunning
from app.runs.callers import Caller
from app.runs.cancelling import Cancelled, ManyCancelled
from app.runs.listing import RunFilter, RunRow, list_runs
from app.runs.once import Answer, Once, Replayed
from app.runs.receipts import Settled, settle
from app.runs.service import Service

router = APIRouter(tags=["runs"], route_class=StrictRoute)


@router.post(
    "/v1/runs",
    status_code=202,
    response_model=Started,
    responses=STARTED,
    operation_id="run_start",
    summary="Create a session and start its first run",
)
async def start(
    request: Request, body: StartBody, service: ServiceDep, caller: CallerDep, write: WriteDep
) -> Response:
    """Create the session and the run in one transaction; 202 means that both are durable."""
    return await begin(request, service, caller, body.session_wish(), body, write)


@router.get("/v1/runs", operation_id="run_list", summary="List runs")
async def list_all(
    service: ServiceDep,
    caller: CallerDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    order: Order = "desc",
    session_id: OfSession = None,
    status: RunStatuses = None,
    result_subtype: Annotated[
        list[ResultSubtype] | None, Query(description='Repeat it for "or".')
    ] = None,
    end_reason: Annotated[list[EndReason] | None, Query(description='Repeat it for "or".')] = None,
    user: OfUser = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
) -> RunPage:
    """Give runs by creation time. Repeat a filter for "or"."""
    wanted = RunFilter(
        session_id,
        sorted(status or ()),
        sorted(result_subtype or ()),
        sorted(end_reason or ()),
        user,
        created_after,
        created_before,
    )
    listing = Listing(caller, ("runs", *astuple(wanted)), limit, cursor, order)
    rows = await list_runs(service.database, caller.tenant_id, listing.keyset, wanted)
    return RunPage.of(*listing.page(rows))


@router.get("/v1/runs/{run_id}", operation_id="run_get", summary="Read a run, or wait for its end")
async def get(run_id: str, service: ServiceDep, caller: CallerDep, wait: Wait = 0) -> RunObject:
    """Give the run; with `wait`, when it has ended or the seconds are over: look at `status`."""
    return RunObject.of(await service.queries.finished_run(caller.tenant_id, run_id, wait))


@router.get(
    "/v1/runs/{run_id}/result",
    operation_id="run_result",
    summary="Read the result message",
    response_model=Result,
    responses={202: {"description": "The run is not finished yet."}},
)
async def result(run_id: str, service: ServiceDep, caller: CallerDep) -> Response:
    """Give the run's `result` message alone, exactly as it was streamed."""
    run = await service.queries.run(caller.tenant_id, run_id)
    body = await service.queries.result(caller.tenant_id, run)
    if body is None:
        return JSONResponse({"status": run.status}, 202, {"Retry-After": "1"})
    return Response(body, media_type="application/json")


@router.get(
    "/v1/runs/{run_id}/stream",
    operation_id="run_stream",
    summary="Follow a run",
    responses={**STREAM, 204: {"description": "Finished, and read to its end."}},
    response_class=Response,
)
async def stream(
    run_id: str,
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    after: StreamAfter = None,
    last_event_id: LastEventId = None,
    previews: Previews = None,
    envelope: Envelope = False,
) -> Response:
    """Give the run's events beyond the cursor, then live ones, until its end."""
    run = await service.queries.run(caller.tenant_id, run_id)
    cursor = stream_start(last_event_id, after)
    session = await service.queries.check_cursor(caller.tenant_id, run.session_id, cursor or 0)
    if cursor == -1:
        cursor = session.last_seq
    if run.status == "finished" and cursor is not None and cursor >= (run.last_seq or 0):
        return Response(status_code=204)
    start_at = run.first_seq - 1 if cursor is None else cursor
    return stream_run(
        service,
        caller,
        run,
        after=start_at,
        previews=previews,
        request=request,
        is_wrapped=envelope,
        is_promised=False,
    )


@router.post(
    "/v1/runs/{run_id}/retry",
    status_code=202,
    response_model=Started,
    responses=STARTED,
    operation_id="run_retry",
    summary="Try a failed run again",
)
async def retry(
    run_id: str,
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: RetryBody | None = None,
) -> Response:
    """Make a new run of the newest run of a session, which failed.

    Its prompts are sent again; with `resume` it goes on where it stopped, under new limits. 409 for
    a run that succeeded, is not over, or is not the newest.
    """
    wish = body or RetryBody()
    run = await service.queries.run(caller.tenant_id, run_id)
    return await begin_by(
        lambda once: service.starts.retry(caller, run_id, wish.wish(), once=once),
        request,
        service,
        caller,
        run.session_id,
        wish,
        write,
    )


@router.patch(
    "/v1/runs/{run_id}",
    operation_id="run_change",
    summary="Change a run that waits",
    response_model=RunObject,
)
async def change(
    run_id: str,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: RunChangeBody | None = None,
) -> Response:
    """Change prompt, options, priority or metadata of a queued run; 409 once it has begun."""
    wish = (body or RunChangeBody()).change()
    return await write.answer(
        lambda once: service.commands.change(caller, run_id, wish, once=once), _shown
    )


@router.delete(
    "/v1/runs/{run_id}",
    operation_id="run_remove",
    summary="Remove a run that waits",
    response_model=RunObject,
)
async def remove(run_id: str, service: ServiceDep, caller: CallerDep, write: WriteDep) -> Response:
    """Take a queued run out of the queue: it ends as cancelled; 409 once it has begun."""
    return await write.answer(
        lambda once: service.commands.remove(caller, run_id, once=once), _shown
    )


def _shown(run: RunRow) -> Answer:
    return Answer(200, RunObject.of(run).model_dump_json(), run.id)


@router.post(
    "/v1/runs/cancel",
    operation_id="run_cancelmany",
    summary="Cancel several runs",
    response_model=CancelReceipts,
    responses={202: {"description": "Some are being stopped.", "model": CancelReceipts}},
)
async def cancel_many(
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: CancelManyBody,
    wait: CancelWait = 2,
) -> Response:
    """Stop up to 100 runs, wherever they are, with a receipt for each. Safe to repeat."""
    is_replay = False
    try:
        done = await service.commands.cancel_many(
            caller,
            body.choice(),
            reason=body.reason,
            spares_tasks=body.spares_tasks,
            once=write.once(_many_cancelled),
        )
    except Replayed as replayed:
        is_replay = True
        kept = CancelReceipts.model_validate_json(replayed.answer.body)
        runs = [await _kept(service, caller, receipt) for receipt in kept.data]
        done = ManyCancelled(runs, kept.missing, kept.has_more)
    settled = await settle(service.queries, caller.tenant_id, done.runs, wait_s=wait)
    return response(_receipts(settled, done), is_replay=is_replay)


async def _kept(service: Service, caller: Caller, receipt: CancelReceipt) -> Cancelled:
    """Give a cancel that was made before: what is known of it now is more than what was kept."""
    run = await service.queries.run(caller.tenant_id, receipt.run_id)
    return Cancelled(run, receipt.already_finished)


def _many_cancelled(done: ManyCancelled) -> Answer:
    return _receipts([_at_once(cancelled) for cancelled in done.runs], done)


def _receipts(settled: Sequence[Settled], done: ManyCancelled) -> Answer:
    data = [CancelReceipt.of(one) for one in settled]
    shown = CancelReceipts(data=data, missing=list(done.missing), has_more=done.has_more)
    is_over = all(receipt.status == "finished" for receipt in data)
    return Answer(200 if is_over else 202, shown.model_dump_json())


@router.post(
    "/v1/runs/{run_id}/cancel",
    operation_id="run_cancel",
    summary="Cancel a run",
    response_model=CancelReceipt,
    responses={202: {"description": "The run is being stopped.", "model": CancelReceipt}},
)
async def cancel(
    run_id: str,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    body: CancelBody | None = None,
    wait: CancelWait = 2,
) -> Response:
    """Stop a run on whatever host it is, or one task in its background. Safe to repeat."""
    wish = body or CancelBody()
    if wish.task_id is not None:
        return await _stop_task(service, caller, run_id, wish.task_id, write)
    is_replay = False
    try:
        cancelled = await service.commands.cancel(
            caller,
            run_id,
            reason=wish.reason,
            spares_tasks=wish.spares_tasks,
            once=write.once(_cancelled),
        )
    except Replayed as replayed:
        is_replay = True
        kept = CancelReceipt.model_validate_json(replayed.answer.body)
        cancelled = await _kept(service, caller, kept)
    (settled,) = await settle(service.queries, caller.tenant_id, [cancelled], wait_s=wait)
    return response(_receipt(settled), is_replay=is_replay)


async def _stop_task(
    service: Service, caller: Caller, run_id: str, task_id: str, write: Write
) -> Response:
    async def stop(_: Once | None) -> CancelReceipt:
        run = await service.queries.run(caller.tenant_id, run_id)
        try:
            await service.controls.stop_task(caller, run.session_id, task_id)
        except NotRunning:
            return CancelReceipt.of_task(run)
        return CancelReceipt.of_task(run, task_id)

    return await write.answer(
        stop, lambda receipt: Answer(200, receipt.model_dump_json(), receipt.run_id)
    )


def _cancelled(cancelled: Cancelled) -> Answer:
    return _receipt(_at_once(cancelled))


def _at_once(cancelled: Cancelled) -> Settled:
    return Settled(cancelled.run, cancelled.is_already_finished)


def _receipt(settled: Settled) -> Answer:
    shown = CancelReceipt.of(settled)
    status = 200 if shown.status == "finished" else 202
    return Answer(status, shown.model_dump_json(), settled.run.id)
