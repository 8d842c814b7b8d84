"""A single message of a session's log, and all of an output that it holds a part of."""

from fastapi import APIRouter, Response

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.downloads import Download
from app.api.entries import entry_json
from app.api.schemas.log import LogMessage, StoredOutputLink
from app.runs.stored_outputs import FoundMessage

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


@router.get(
    "/v1/sessions/{session_id}/messages/{uuid}",
    operation_id="session_message",
    summary="Read a message",
    response_model=LogMessage,
)
async def message(session_id: str, uuid: str, service: ServiceDep, caller: CallerDep) -> Response:
    """Give one message of the log by its uuid.

    A tool's output that was too long for a message is stored: `stored_output.url` gives all of it.
    """
    found = await service.outputs.message(caller.tenant_id, session_id, uuid)
    link = _link(session_id, uuid, found)
    told = b"null" if link is None else link.model_dump_json().encode()
    return Response(entry_json(found.row, stored_output=told), media_type="application/json")


@router.get(
    "/v1/sessions/{session_id}/messages/{uuid}/output",
    operation_id="session_output",
    summary="Read all of a tool's output",
    response_class=Response,
    responses={
        200: {
            "description": "The output. One that was cut has no proper end.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def output(session_id: str, uuid: str, service: ServiceDep, caller: CallerDep) -> Response:
    """Give the whole text of which the message holds a part, as its file has it now."""
    pieces = await service.outputs.output(caller.tenant_id, session_id, uuid)
    service.stream_slots.check(caller, session_id)
    return Download(
        pieces(),
        f"{uuid}.txt",
        "text/plain; charset=utf-8",
        send_timeout_s=service.stream_send_timeout_s,
        slot=lambda: service.stream_slots.hold(caller, session_id, is_promised=True),
    )


def _link(session_id: str, uuid: str, found: FoundMessage) -> StoredOutputLink | None:
    if found.stored is None:
        return None
    url = f"/v1/sessions/{session_id}/messages/{uuid}/output"
    return StoredOutputLink(size_bytes=found.stored.size_bytes, path=found.stored.path, url=url)
