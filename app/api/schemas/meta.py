"""What this service is."""

from typing import Any, Literal

from app.api.schemas.common import Out


class WireVersions(Out):
    claude_code_version: str
    claude_agent_sdk: str
    """The SDK version whose message parser reads our messages (tested)."""


class Meta(Out):
    version: str
    api: Literal["v1"] = "v1"
    wire: WireVersions
    features: list[str]
    sandbox: str
    models: dict[str, Any]
    limits: dict[str, Any]
    retention: dict[str, Any]
