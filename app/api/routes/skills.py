"""Skills of a tenant: upload, list, read, delete."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.body import StrictRoute, decode, whole_body
from app.api.deps import CallerDep, ServiceDep
from app.api.repeats import WriteDep
from app.api.schemas.skills import SkillBody, SkillList, SkillObject, SkillSummary
from app.errors import InvalidRequest, UnsupportedMediaType
from app.runs.once import Answer
from app.runs.skills import Bundle, Put, bundle_of_texts, bundle_of_zip

router = APIRouter(tags=["skills"], route_class=StrictRoute)

_ZIP = {"application/zip", "application/x-zip-compressed", "application/octet-stream"}
_ZIP_BEGINS = b"PK"
_READING = asyncio.Semaphore(2)
"""Bundles are unpacked few at a time: each takes a few times its size."""
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": SkillBody.model_json_schema()},
        },
    }
}


@router.post(
    "/v1/skills",
    status_code=201,
    response_model=SkillObject,
    responses={200: {"model": SkillObject, "description": "It was there; now it is this one."}},
    openapi_extra=_BODY,
    operation_id="skill_put",
    summary="Upload a skill",
)
async def put(
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
    name: Annotated[
        str | None,
        Query(max_length=200, description="Of a zip file's skill. Default: its one folder's name."),
    ] = None,
) -> Response:
    """Store a skill for the tenant's runs: a folder with `SKILL.md`, zipped, or its texts as JSON.

    It takes the place of one of the same name; the same content again changes nothing. Runs that
    begin afterwards have it in `/skills/NAME`, by the option `skills`.
    """
    bundle = await _bundle(request, name)
    return await write.answer(
        lambda once: service.skills.put(caller.tenant_id, bundle, once=once), _shown
    )


@router.get("/v1/skills", operation_id="skill_list", summary="List skills")
async def list_all(service: ServiceDep, caller: CallerDep) -> SkillList:
    """Give all skills of the tenant, by name. Those of workspaces are not among them."""
    rows = await service.skills.list_all(caller.tenant_id)
    return SkillList(data=[SkillSummary.of(row) for row in rows])


@router.get("/v1/skills/{name}", operation_id="skill_get", summary="Read a skill")
async def get(name: str, service: ServiceDep, caller: CallerDep) -> SkillObject:
    """Give a skill and the names of its files."""
    return SkillObject.of(await service.skills.get(caller.tenant_id, name))


@router.delete(
    "/v1/skills/{name}",
    status_code=204,
    response_class=Response,
    operation_id="skill_delete",
    summary="Delete a skill",
)
async def delete(name: str, service: ServiceDep, caller: CallerDep, write: WriteDep) -> Response:
    """Remove a skill. Runs that are under way keep it."""
    return await write.answer(
        lambda once: service.skills.delete(caller.tenant_id, name, once=once),
        lambda _: Answer(204, ""),
    )


async def _bundle(request: Request, name: str | None) -> Bundle:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    body = await whole_body(request)
    if not body:
        raise InvalidRequest("Send the skill as the body: a zip file, or JSON.")
    # `curl --data-binary @skill.zip` says that it sends a form, which counts as JSON here.
    if kind in _ZIP or body.startswith(_ZIP_BEGINS):
        async with _READING:
            return await asyncio.to_thread(bundle_of_zip, body, name)
    if kind != "application/json":
        raise UnsupportedMediaType("Send the skill as application/zip or application/json.")
    decoded = decode(body)
    try:
        given = SkillBody.model_validate(decoded)
    except ValidationError as error:
        raise RequestValidationError(
            [{**each, "loc": ("body", *each["loc"])} for each in error.errors()], body=decoded
        ) from None
    return bundle_of_texts(given.name, given.files)


def _shown(put: Put) -> Answer:
    body = SkillObject.of(put.skill).model_dump_json()
    return Answer(201 if put.is_new else 200, body, location=f"/v1/skills/{put.skill.name}")
