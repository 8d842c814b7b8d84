"""The ASGI application of a host."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI

from app.api.app import create_api
from app.settings.settings import Settings
from app.tools.tool import Tool
from app.wiring.rules import version
from app.wiring.service import Role, open_service


def create_app(
    settings: Settings, role: Role = "serve", *, extra_tools: Sequence[Tool[Any]] = ()
) -> FastAPI:
    """Build the application; starting it starts the host."""
    return create_api(
        version=version(),
        max_body_bytes=settings.limits.max_body_bytes,
        open_service=lambda: open_service(settings, role, extra_tools=extra_tools),
    )


def openapi_document() -> dict[str, Any]:
    """Give the OpenAPI document, without starting anything."""
    return create_api(version=version(), max_body_bytes=10_000_000).openapi()
