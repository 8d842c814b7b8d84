"""MCP servers belong to one run: other tenants have their own, and a session at rest has none."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.api.stage import Stage, scripted
from tests.e2e.test_mcp import MARK, PLAIN, call
from tests.runs.prompts import finished, messages, start
from tests.sandbox.rooms import processes, until


@pytest.mark.requirement("mcp:own")
async def test_tenants_with_the_same_server_have_a_process_each_and_see_nothing_of_another(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    clients = (stage.client, stranger)

    async def begun(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
        server = {**PLAIN, "env": {"WHOSE": name}, "timeout_seconds": 20}
        steps = scripted(call("mcp__p__ask_only"), call("mcp__p__env"), {"text": "ok"})
        more: dict[str, Any] = {"mcp_servers": {"p": server}, "allowed_tools": ["mcp__p"]}
        return await start(client, steps, actions={"elicitations": "ask"}, **more)

    runs = await asyncio.gather(*map(begun, clients, ("first", "second")))
    actions = []
    for client, run in zip(clients, runs, strict=True):
        session = f"/v1/sessions/{run['session_id']}"
        await client.get(f"{session}/events", params={"types": "action.opened", "wait": 20})
        listed = (await client.get("/v1/actions", params={"status": "pending"})).json()["data"]
        actions += [
            action for action in listed if action["run_id"] in {each["id"] for each in runs}
        ]
    assert [action["run_id"] for action in actions] == [run["id"] for run in runs]
    for client, action in zip(clients, actions, strict=True):
        resolve = f"/v1/actions/{action['id']}/resolve"
        assert (await stranger.post(resolve, json={"action": "decline"})).status_code == (
            200 if client is stranger else 404
        )
    declined = f"/v1/actions/{actions[0]['id']}/resolve"
    assert (await stage.client.post(declined, json={"action": "decline"})).status_code == 200
    # Both were in the middle of a call at once; each process has what its own tenant gave it.
    for client, run, name in zip(clients, runs, ("first", "second"), strict=True):
        assert (await finished(client, run["id"]))["result_subtype"] == "success"
        told = json.dumps(await messages(client, run["session_id"]))
        assert f'\\"WHOSE\\": \\"{name}\\"' in told.replace("\\\\", "\\")
        other = await (stranger if client is stage.client else stage.client).get(
            f"/v1/sessions/{run['session_id']}/mcp_servers"
        )
        assert other.status_code == 404
    await until(lambda: not processes(MARK))  # the sessions are at rest
