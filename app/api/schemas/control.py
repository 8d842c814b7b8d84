"""Control requests, in the SDK's form."""

from typing import Annotated, Any, Literal

from pydantic import Field

from app.api.schemas.common import In, Out, example
from app.domain.permissions import PermissionMode


class InterruptBody(In):
    """End the turn that is going on; commands in the background go on."""

    model_config = example(subtype="interrupt")

    subtype: Literal["interrupt"]


class SetModeBody(In):
    """Decide calls by another mode from now on."""

    model_config = example(subtype="set_permission_mode", mode="acceptEdits")

    subtype: Literal["set_permission_mode"]
    mode: PermissionMode


class SetModelBody(In):
    """Ask another model from now on."""

    model_config = example(subtype="set_model", model="claude-haiku-5-5")

    subtype: Literal["set_model"]
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A model id or an alias of the operator's; null: the service's default."""


class StopTaskBody(In):
    """Stop a command or a subagent in the background. One that its run waits for ends with the turn."""

    model_config = example(subtype="stop_task", task_id="b3k9x2m7q")

    subtype: Literal["stop_task"]
    task_id: Annotated[str, Field(min_length=1, max_length=100)]


class ContextUsageBody(In):
    """Say what fills the model's window."""

    model_config = example(subtype="get_context_usage")

    subtype: Literal["get_context_usage"]


class McpStatusBody(In):
    """Say how the session's MCP servers stand."""

    model_config = example(subtype="mcp_status")

    subtype: Literal["mcp_status"]


class _ServerBody(In):
    serverName: Annotated[str, Field(min_length=1, max_length=64)]  # noqa: N815 - the SDK's name


class McpReconnectBody(_ServerBody):
    """Connect an MCP server of the run that goes on anew."""

    model_config = example(subtype="mcp_reconnect", serverName="time")

    subtype: Literal["mcp_reconnect"]


class McpToggleBody(_ServerBody):
    """Switch an MCP server on or off from now on."""

    model_config = example(subtype="mcp_toggle", serverName="time", enabled=False)

    subtype: Literal["mcp_toggle"]
    enabled: bool


ControlBody = Annotated[
    InterruptBody
    | SetModeBody
    | SetModelBody
    | StopTaskBody
    | ContextUsageBody
    | McpStatusBody
    | McpReconnectBody
    | McpToggleBody,
    Field(discriminator="subtype"),
]


class ControlAnswer(Out):
    """What came of a control request."""

    subtype: Literal["success"] = "success"
    response: dict[str, Any]
    """`interrupt`: `still_queued`, the runs that wait. `set_permission_mode`: `mode`. `set_model`:
    `model`, as it is asked. `get_context_usage`: as `GET …/context` gives it. `mcp_status`: `mcpServers`, as the event
    `mcp.status` told them last."""
