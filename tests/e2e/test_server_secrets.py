"""What clients write into headers and variables of MCP servers: stored, used, and not shown again."""

import json
import logging
from typing import Any

import pytest

from app.domain.mcp_options import MASK
from tests.conftest import MakeSettings
from tests.e2e.test_mcp import PLAIN, call, results
from tests.fakes.mcp_site import mcp_site
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, host
from tests.runs.prompts import finished, scripted, start

Json = dict[str, Any]
SECRET, TOKEN = "quagga-in-a-variable", "quagga-in-a-header"


async def everything(service: Host, session_id: str, run_id: str) -> str:
    """Read all that there is to read of a session."""
    session = f"/v1/sessions/{session_id}"
    paths = (
        *(session, "/v1/sessions", f"/v1/runs/{run_id}", "/v1/runs", f"{session}/mcp_servers"),
        *(
            f"{session}/events?limit=1000",
            f"{session}/messages?limit=1000",
            f"/v1/audit?session_id={session_id}",
        ),
        *(f"{session}/context", f"/v1/runs/{run_id}/result", f"{session}/runs"),
    )
    said = [await service.client.get(path) for path in paths]
    assert {answer.status_code for answer in said} == {200}
    return "\n".join(answer.text for answer in said)


@pytest.mark.requirement("mcp:masked")
async def test_literal_values_are_used_on_every_host_and_shown_on_none(
    make_settings: MakeSettings,
    messages_api: MessagesApi,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    del messages_api, database_url
    caplog.set_level(logging.DEBUG)
    settings = make_settings(egress={"private_hosts": ["127.0.0.1"]})
    async with mcp_site() as site, host(settings) as a:
        web = {"type": "http", "url": site.url(), "headers": {"Authorization": f"Bearer {TOKEN}"}}
        late = "import os, sys; sys.exit(os.environ['TOKEN'])"
        servers: Json = {
            "p": {**PLAIN, "env": {"TOKEN": SECRET, "EMPTY": ""}},
            "s": web,
            "tells": {"command": "python3", "args": ["-c", late], "env": {"TOKEN": SECRET}},
        }
        steps = scripted(call("mcp__s__who"), {"text": "ok"})
        run = await start(a.client, steps, mcp_servers=servers, allowed_tools=["mcp__s"])
        await finished(a.client, run["id"])
        session_id = run["session_id"]
        assert site.headers[-1]["authorization"] == f"Bearer {TOKEN}"
        shown = run["options"]["mcp_servers"]
        assert shown["p"] == {**PLAIN, "env": {"TOKEN": MASK, "EMPTY": ""}}
        assert shown["s"]["headers"] == {"Authorization": MASK}
        read = await everything(a, session_id, run["id"])
        assert f"exit code 1: {MASK}" in read  # what a program says of itself, as it ends
        assert SECRET not in json.dumps(run) + read + caplog.text
        assert TOKEN not in json.dumps(run) + read + caplog.text
    async with mcp_site(port=site.port) as site, host(settings) as b:
        # Another host, and a client that sends back what it read.
        steps = scripted(call("mcp__p__env"), call("mcp__s__who"), {"text": "ok"})
        allowed = ["mcp__s", "mcp__p"]
        again = await start(
            b.client, steps, session_id=session_id, mcp_servers=shown, allowed_tools=allowed
        )
        await finished(b.client, again["id"])
        env, who = [text for text, _ in await results(b, session_id)][-2:]
        assert json.loads(env)["TOKEN"] == SECRET
        assert who
        assert site.headers[-1]["authorization"] == f"Bearer {TOKEN}"
        # Sent back for another place, or by a stranger to the session, a mask is refused.
        moved = {"s": {**shown["s"], "url": site.url() + "?elsewhere"}}
        for path, body, pointer in (
            (f"/v1/sessions/{session_id}/runs", {"mcp_servers": moved}, "s/headers/Authorization"),
            ("/v1/runs", {"mcp_servers": {"p": shown["p"]}}, "p/env/TOKEN"),
        ):
            refused = await b.client.post(path, json={"prompt": "hi", "options": body})
            assert refused.status_code == 422, refused.text
            (error,) = refused.json()["errors"]
            assert error["pointer"] == f"/options/mcp_servers/{pointer}"


async def test_a_session_is_changed_by_what_was_read_of_it(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    async with host(make_settings()) as a:
        args = [*PLAIN["args"], "--token", "quagga-in-an-argument"]
        servers: Json = {"p": {**PLAIN, "args": args, "env": {"TOKEN": SECRET}}}
        made = await a.client.post("/v1/sessions", json={"options": {"mcp_servers": servers}})
        path = f"/v1/sessions/{made.json()['id']}"
        shown = (await a.client.get(path)).json()["options"]["mcp_servers"]
        assert (shown["p"]["env"], shown["p"]["args"][-1]) == ({"TOKEN": MASK}, MASK)
        edited = {"p": {**shown["p"], "timeout_seconds": 7.0}}
        changed = await a.client.patch(path, json={"options": {"mcp_servers": edited}})
        assert changed.status_code == 200, changed.text
        assert changed.json()["options"]["mcp_servers"] == edited
        run = await start(
            a.client,
            scripted(call("mcp__p__env"), {"text": "ok"}),
            session_id=made.json()["id"],
            allowed_tools=["mcp__p"],
        )
        await finished(a.client, run["id"])
        ((env, _),) = await results(a, made.json()["id"])
        assert json.loads(env)["TOKEN"] == SECRET
        # For another server the mask stands for nothing.
        moved = {"p": {**shown["p"], "args": ["-c", "pass"]}}
        refused = await a.client.patch(path, json={"options": {"mcp_servers": moved}})
        assert refused.status_code == 422, refused.text
