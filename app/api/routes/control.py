"""Control of what a session is at, on whatever host it is."""

from typing import Any, assert_never

from fastapi import APIRouter, Response

from app.api.body import StrictRoute
from app.api.deps import CallerDep, ServiceDep
from app.api.repeats import WriteDep
from app.api.schemas.control import (
    ContextUsageBody,
    ControlAnswer,
    ControlBody,
    InterruptBody,
    McpReconnectBody,
    McpStatusBody,
    McpToggleBody,
    SetModeBody,
    SetModelBody,
    StopTaskBody,
)
from app.api.schemas.servers import ServerList, ServerObject
from app.runs.changing import Changed
from app.runs.once import Answer, Once

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


@router.post(
    "/v1/sessions/{session_id}/control",
    operation_id="session_control",
    summary="Control a session",
    response_model=ControlAnswer,
)
async def control(  # noqa: C901 - a table
    session_id: str, body: ControlBody, service: ServiceDep, caller: CallerDep, write: WriteDep
) -> Response:
    """Interrupt, or change mode or model of what is going on, of what waits and of what comes later.

    Takes the SDK's control requests `interrupt`, `set_permission_mode`, `set_model`, `stop_task`,
    `get_context_usage`, `mcp_status`, `mcp_reconnect` and `mcp_toggle`.
    """
    controls = service.controls
    match body:
        case InterruptBody():

            async def interrupt(_: Once | None) -> dict[str, Any]:
                return {"still_queued": list(await controls.interrupt(caller, session_id))}

            return await write.answer(interrupt, _answer)
        case SetModeBody(mode=mode):
            return await write.answer(
                lambda once: controls.set_mode(caller, session_id, mode, once=once),
                lambda _: _answer({"mode": mode}),
            )
        case SetModelBody(model=model):

            def shown(changed: Changed) -> Answer:
                return _answer({"model": changed.model})

            return await write.answer(
                lambda once: controls.set_model(caller, session_id, model, once=once), shown
            )
        case StopTaskBody(task_id=task_id):

            async def stop(_: Once | None) -> dict[str, Any]:
                await controls.stop_task(caller, session_id, task_id)
                return {}

            return await write.answer(stop, _answer)
        case ContextUsageBody():

            async def usage(_: Once | None) -> dict[str, Any]:
                used = await service.window.usage(caller.tenant_id, session_id)
                return used.model_dump(mode="json")

            return await write.answer(usage, _answer)
        case McpStatusBody() | McpReconnectBody() | McpToggleBody():
            return await _of_servers(body, session_id, service, caller, write)
        case _:
            assert_never(body)


async def _of_servers(
    body: McpStatusBody | McpReconnectBody | McpToggleBody,
    session_id: str,
    service: ServiceDep,
    caller: CallerDep,
    write: WriteDep,
) -> Response:
    servers = service.servers
    match body:
        case McpStatusBody():

            async def statuses(_: Once | None) -> dict[str, Any]:
                return {"mcpServers": list(await servers.statuses(caller, session_id))}

            return await write.answer(statuses, _answer)
        case McpReconnectBody(serverName=name):

            async def reconnect(_: Once | None) -> dict[str, Any]:
                await servers.reconnect(caller, session_id, name)
                return {}

            return await write.answer(reconnect, _answer)
        case McpToggleBody(serverName=name, enabled=is_enabled):
            return await write.answer(
                lambda once: servers.set_enabled(
                    caller, session_id, name, is_enabled=is_enabled, once=once
                ),
                lambda _: _answer({"enabled": is_enabled}),
            )
        case _:
            assert_never(body)


@router.get(
    "/v1/sessions/{session_id}/mcp_servers",
    operation_id="session_servers",
    summary="See how a session's MCP servers stand",
)
async def mcp_servers(session_id: str, service: ServiceDep, caller: CallerDep) -> ServerList:
    """Give what the event `mcp.status` told last; servers that no run has used yet are pending."""
    told = await service.servers.statuses(caller, session_id)
    return ServerList(data=[ServerObject.model_validate(server) for server in told])


def _answer(response: dict[str, Any]) -> Answer:
    return Answer(200, ControlAnswer(response=response).model_dump_json())
