"""The HTTP application: routes, errors, bounds."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI

from app.api.examples.document import add_examples
from app.api.guard import Guard
from app.api.problems import MEDIA_TYPE, Problem, install_problems
from app.api.routes import (
    actions,
    audit,
    control,
    log,
    messages,
    meta,
    runs,
    search,
    sessions,
    skills,
    subagents,
    transcripts,
    window,
)
from app.runs.service import Service

DESCRIPTION = (
    "Agent loops as a service: start or resume a session with a prompt, follow it by SSE from any "
    "host, read its result and its cost. Messages are the Claude Agent SDK's stream-json messages."
)
_PROBLEM: dict[str, Any] = {"model": Problem, "description": "A problem (RFC 9457)."}
_KEYS: dict[str, Any] = {
    "HTTPBearer": {"type": "http", "description": "An API key.", "scheme": "bearer"},
    "APIKeyHeader": {
        "type": "apiKey",
        "description": "An API key.",
        "in": "header",
        "name": "x-api-key",
    },
}


class _Api(FastAPI):
    """Says in its document that errors are problems, and what answers look like."""

    def openapi(self) -> dict[str, Any]:
        """Give the OpenAPI document."""
        if self.openapi_schema is None:
            document = super().openapi()
            for operation in (o for path in document["paths"].values() for o in path.values()):
                for kind in ("4XX", "5XX"):
                    answer = operation["responses"][kind]
                    answer["content"] = {MEDIA_TYPE: next(iter(answer["content"].values()))}
            _add_keys(document)
            add_examples(document)
        return super().openapi()


def _add_keys(document: dict[str, Any]) -> None:
    """Say which operations want a key, and how one is given.

    Not by dependencies: each request would solve them, and nobody looks at what they find.
    """
    document["components"]["securitySchemes"] = _KEYS
    for path, operations in document["paths"].items():
        for operation in operations.values() if path.startswith("/v1/") else ():
            later = ("parameters", "requestBody", "responses")
            rest = {name: operation.pop(name) for name in list(operation) if name in later}
            operation |= {"security": [{name: []} for name in _KEYS], **rest}


def create_api(
    *,
    version: str,
    max_body_bytes: int,
    open_service: Callable[[], AbstractAsyncContextManager[Service]] | None = None,
) -> FastAPI:
    """Build the application. Without `open_service` it can only describe itself."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if open_service is None:
            yield
            return
        async with open_service() as service:
            app.state.service = service
            yield

    app = _Api(
        title="Treadle",
        version=version,
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        responses={"4XX": _PROBLEM, "5XX": _PROBLEM},
    )
    install_problems(app)
    for module in (
        runs,
        actions,
        transcripts,
        sessions,
        control,
        log,
        subagents,
        messages,
        window,
        search,
        audit,
        skills,
        meta,
    ):
        app.include_router(module.router)
    app.add_middleware(Guard, max_body_bytes=max_body_bytes)
    return app
