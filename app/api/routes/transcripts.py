"""Sessions as files: export and import."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.api.body import StrictRoute, whole_body
from app.api.deps import CallerDep, ServiceDep
from app.api.downloads import Download
from app.api.lines import decode_lines
from app.api.repeats import WriteDep
from app.api.schemas.common import User, Uuid
from app.api.schemas.sessions import Imported, ImportedSession, SessionObject
from app.errors import InvalidRequest, UnsupportedMediaType
from app.runs.listing import SessionRow
from app.runs.once import Answer
from app.runs.transcripts.exporting import Exporter
from app.runs.transcripts.formats import Format
from app.runs.transcripts.reading import Transcript, read_transcript
from app.runs.wishes import SessionWish

router = APIRouter(tags=["sessions"], route_class=StrictRoute)

_KINDS: dict[Format, tuple[str, str]] = {
    "stream-json": ("application/x-ndjson", "jsonl"),
    "claude-jsonl": ("application/x-ndjson", "jsonl"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
}
_TAKEN = {
    *("application/x-ndjson", "application/jsonl", "application/json", "text/plain"),
    "application/octet-stream",
}
_READING = asyncio.Semaphore(1)
"""Transcripts are read one at a time: each takes a few times its size."""
_EXAMPLE = (
    '{"type":"user","uuid":"5b0e4a52-7c1f-4d7a-9d0e-6f3f0c1b2a3d","parentUuid":null,'
    '"sessionId":"0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f","timestamp":"2026-11-30T12:00:00.000Z",'
    '"message":{"role":"user","content":"What is here?"}}\n'
)
_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": _EXAMPLE}},
    }
}


@router.get(
    "/v1/sessions/{session_id}/export",
    operation_id="session_export",
    summary="Export a session",
    response_class=Response,
    responses={
        200: {
            "description": "The file. One that was cut has no proper end.",
            "content": {
                "application/x-ndjson": {"schema": {"type": "string"}, "example": _EXAMPLE},
                "text/markdown": {"schema": {"type": "string"}},
            },
        }
    },
)
async def export(
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    format: Annotated[  # noqa: A002 - the parameter's public name
        Format,
        Query(
            description="`stream-json`: the SDK messages that clients saw, one a line. "
            "`claude-jsonl`: the conversation as it stands, as a transcript that Claude Code reads "
            "and the import takes. `markdown`: the same for people."
        ),
    ] = "stream-json",
) -> Response:
    """Give the session as it is now, as a file. It is made while it is sent."""
    session = await service.queries.session(caller.tenant_id, session_id)
    service.stream_slots.check(caller, session.id)
    media_type, ending = _KINDS[format]
    exporter = Exporter(service.database, caller.tenant_id, session, format)
    return Download(
        exporter.chunks(),
        f"{session.id}.{ending}",
        media_type,
        send_timeout_s=service.stream_send_timeout_s,
        slot=lambda: service.stream_slots.hold(caller, session.id, is_promised=True),
    )


@router.post(
    "/v1/sessions/import",
    status_code=201,
    operation_id="session_import",
    summary="Import a session",
    response_model=ImportedSession,
    openapi_extra=_FILE,
)
async def import_(
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    id: Annotated[  # noqa: A002 - the parameter's public name
        Uuid | None, Query(description="Of the new session. Default: the file's, unless taken.")
    ] = None,
    title: Annotated[str | None, Query(max_length=500, description="Default: the file's.")] = None,
    user: Annotated[User | None, Query(description="Your id of the person it is for.")] = None,
) -> Response:
    """Make a session of a transcript of Claude Code (`claude-jsonl`).

    Its conversation is the branch that ends with the newest entry. What is wrong is told with its
    line, and then nothing is stored.
    """
    transcript = await _read(request)
    wish = SessionWish(id, title, user=user)

    def shown(session: SessionRow) -> Answer:
        counts = Imported(messages=len(transcript.messages), skipped_lines=transcript.skipped)
        body = ImportedSession(**SessionObject.of(session).model_dump(), imported=counts)
        return Answer(201, body.model_dump_json(), location=f"/v1/sessions/{session.id}")

    return await write.answer(
        lambda once: service.sessions.import_(caller, transcript, wish, once=once), shown
    )


async def _read(request: Request) -> Transcript:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in _TAKEN:
        raise UnsupportedMediaType("Send the transcript as application/x-ndjson.")
    body = await whole_body(request)
    if not body.strip():
        raise InvalidRequest("Send the transcript as the body.")
    async with _READING:
        return await asyncio.to_thread(lambda: read_transcript(decode_lines(body)))
