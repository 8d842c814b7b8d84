"""Health, readiness, what this service is, and the pages that problems point to."""

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from app import errors
from app.api.deps import CallerDep, ServiceDep
from app.api.problem_pages import page
from app.api.schemas.meta import Meta
from app.errors import NotFound, RequestError

router = APIRouter(tags=["service"])


@router.get("/healthz", operation_id="service_health", summary="Is the process alive?")
async def healthz() -> dict[str, str]:
    """Answer as long as the process can."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    operation_id="service_readiness",
    summary="Can requests be served?",
    responses={503: {"description": "The database is away, or the host is going."}},
)
async def readyz(service: ServiceDep) -> Response:
    """Answer 200 while the database answers and the host is not shutting down."""
    is_ready = await service.is_ready()
    status = "ready" if is_ready else "draining" if service.is_draining else "unavailable"
    return JSONResponse({"status": status}, 200 if is_ready else 503)


@router.get("/v1/meta", operation_id="service_meta", summary="What this service is")
async def meta(service: ServiceDep, _caller: CallerDep) -> Meta:
    """Give versions, features and limits."""
    return Meta.model_validate(dict(service.meta()))


@router.get(
    "/problems/{name}",
    operation_id="problem_get",
    summary="What a problem means",
    response_class=PlainTextResponse,
)
async def problem(name: str) -> str:
    """Give the short page that a problem's `type` points to."""
    code = name.replace("-", "_")
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, RequestError) and kind.code == code:
            return page(kind)
    raise NotFound("There is no such problem.")
