"""Runs with MCP servers, over HTTP."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_actions import answer, asked
from tests.conftest import MakeSettings
from tests.fakes import mcp_plain
from tests.fakes.mcp_site import mcp_site
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, environment, host, host_process
from tests.runs.prompts import finished, messages, scripted, start
from tests.sandbox.rooms import processes, until

Json = dict[str, Any]
SCRIPT = Path(mcp_plain.__file__).read_text()
MARK = "plain Python: it needs no package"
"""Stands in the command line of the server."""
PLAIN: Json = {"command": "python3", "args": ["-c", SCRIPT]}
"""A server that needs nothing but the sandbox."""


def call(tool: str, **given: object) -> Json:
    return {"tool": tool, "input": given}


async def log(service: Host, session_id: str, kind: str) -> list[Json]:
    answer = await service.client.get(f"/v1/sessions/{session_id}/events", params={"types": kind})
    found: list[Json] = [entry["data"] for entry in answer.json()["data"]]
    return found


async def results(service: Host, session_id: str) -> list[tuple[str, bool]]:
    found = []
    for message in await messages(service.client, session_id):
        content = message["message"]["content"] if message["type"] == "user" else ""
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_result":
                said = block["content"]
                text = said if isinstance(said, str) else said[0].get("text", "")
                found.append((text, bool(block.get("is_error"))))
    return found


@pytest.mark.requirement("permissions:rules")
async def test_a_tool_whose_server_wants_a_person_is_asked_in_every_mode_and_whatever_allows_it(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del database_url, messages_api
    tools = [
        {
            "name": "echo",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
            "_meta": {"anthropic/requiresUserInteraction": True},
        }
    ]
    args = [*PLAIN["args"], "--list", json.dumps(tools)]
    rules: Any = {
        "mcp_servers": {"p": {**PLAIN, "args": args}},
        "allowed_tools": ["mcp__p__echo"],
    }
    prompt = scripted(call("mcp__p__echo", n=1), {"text": "done"})
    async with host(make_settings(policy={"allow_bypass": True})) as service:
        for mode in ("default", "bypassPermissions", "dontAsk"):
            run = await start(service.client, prompt, permission_mode=mode, **rules)
            await finished(service.client, run["id"])
            ((said, is_error),) = await results(service, run["session_id"])
            assert is_error, mode
            assert ("dontAsk" in said) == (mode == "dontAsk")
        run = await start(
            service.client,
            prompt,
            permission_mode="bypassPermissions",
            actions={"permissions": "ask"},
            **rules,
        )
        action = await asked(service.client, run)
        assert (action["type"], action["permission"]["suggestions"]) == ("permission", [])
        assert (await answer(service.client, action, behavior="allow")).status_code == 200
        await finished(service.client, run["id"])
        assert await results(service, run["session_id"]) == [('{"n": 1}', False)]


@pytest.mark.requirement("mcp:run")
async def test_a_run_uses_a_server_and_leaves_nothing_of_it(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del database_url
    async with host(make_settings()) as service:
        run = await start(
            service.client,
            scripted(
                call("mcp__p__echo", n=1), call("mcp__p__touch"), call("Read", file_path="touched")
            ),
            mcp_servers={"p": PLAIN, "off": {"command": "no-such-program"}},
            allowed_tools=["mcp__p__touch"],
        )
        ended = await finished(service.client, run["id"])
        session_id = run["session_id"]
        assert ended["result_subtype"] == "success"
        init, *_ = await messages(service.client, session_id)
        assert init["mcp_servers"] == [
            {"name": "off", "status": "failed", "source": "options"},
            {"name": "p", "status": "connected", "source": "options"},
        ]
        assert {"mcp__p__echo", "Read"} < set(init["tools"])
        (told,) = await log(service, session_id, "mcp.status")
        shown = (await service.client.get(f"/v1/sessions/{session_id}/mcp_servers")).json()["data"]
        assert [
            {name: s[name] for name in t} for s, t in zip(shown, told["servers"], strict=True)
        ] == (told["servers"])
        off, plain = told["servers"]
        assert off["status"] == "failed"
        assert "exit code 127" in off["error"]
        assert plain["tools_hash"].startswith("sha256:")
        metas: list[Any] = [
            m.get("tool_use_meta")
            for m in await messages(service.client, session_id)
            if m["type"] == "assistant" and m["message"]["content"][0]["type"] == "tool_use"
        ]
        assert [(m["display_name"], m["tool_name"]) for (m,) in metas[:2]] == [
            ("Echo back", "echo"),
            ("touch", "touch"),
        ]
        assert metas[0][0]["server_display_name"] == "p"
        assert metas[2] is None  # a tool of the service's own
        echo, touch, read = await results(service, session_id)
        assert echo[1]  # a server's word that it only reads permits nothing
        assert "approval" in echo[0]
        assert touch == ("done", False)
        assert "x" in read[0]
        offered = {tool["name"] for tool in messages_api.requests[0].body["tools"]}
        assert "Read" in offered
        assert "mcp__p__touch" not in offered  # it can be found, and called without
        assert "mcp__p__touch" in str(messages_api.requests[0].body["messages"][0])
    await until(lambda: not processes(MARK))


@pytest.mark.requirement("mcp:required")
async def test_a_required_server_that_fails_ends_the_run_before_any_request(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del database_url
    async with host(make_settings(mcp={"start_s": 0.5})) as service:
        slow = {**PLAIN, "args": [*PLAIN["args"], "--slow", "30"], "required": True}
        run = await start(service.client, scripted({"text": "hi"}), mcp_servers={"p": slow})
        ended = await finished(service.client, run["id"])
        assert (ended["end_reason"], ended["result_subtype"]) == (
            "mcp_required",
            "error_during_execution",
        )
        init, *_, result = await messages(service.client, run["session_id"])
        assert init["mcp_servers"][0]["status"] == "failed"
        assert result["errors"] == [
            "The MCP server 'p' is required and is not there: it was not ready within 0.5 s."
        ]
        assert not messages_api.requests


@pytest.mark.requirement("mcp:required")
async def test_a_required_server_is_required_of_subagents_in_the_background_that_have_its_tools(
    service: Host, messages_api: MessagesApi
) -> None:
    once = "import os\nos.mkdir('/workspace/came_up')\n"  # and never again
    server = {"command": "python3", "args": ["-c", once + SCRIPT], "required": True}
    kinds = {
        "asks": {"description": "d", "prompt": "You are ASKS.", "tools": ["mcp__p__echo"]},
        "reads": {"description": "d", "prompt": "You are READS.", "tools": ["Read"]},
    }
    given = {"description": "job", "prompt": "Begin.", "run_in_background": True}
    steps = [call("Agent", **given, subagent_type=kind) for kind in kinds]
    run = await start(
        service.client,
        scripted(steps, {"text": "begun"}),
        mcp_servers={"p": server},
        agents=kinds,
        wait_for_subagents=True,
    )
    ended = await finished(service.client, run["id"])
    assert ended["result_subtype"] == "success"
    path = f"/v1/sessions/{run['session_id']}/subagents"
    children = (await service.client.get(path)).json()["data"]
    assert [child["status"] for child in children] == ["failed", "completed"]
    own = (await service.client.get(f"/v1/runs/{children[0]['own_run_id']}")).json()
    assert (own["end_reason"], own["num_turns"]) == ("mcp_required", 0)
    (told,) = [
        message["summary"]
        for message in await messages(service.client, run["session_id"])
        if message.get("subtype") == "task_notification"
        and message["task_id"] == children[0]["agent_id"]
    ]
    assert told.startswith("The MCP server 'p' is required and is not there")
    assert not [r for r in messages_api.requests if "You are ASKS." in str(r.body.get("system"))]


@pytest.mark.requirement("mcp:pinned")
async def test_the_session_remembers_tools_until_a_change_is_accepted(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    allowed = ["mcp__p__env", "mcp__p__evolve"]
    async with host(make_settings()) as a, host(make_settings()) as b:
        first = await start(
            a.client,
            scripted(call("mcp__p__evolve")),
            mcp_servers={"p": PLAIN},
            allowed_tools=allowed,
        )
        await finished(a.client, first["id"])
        session_id = first["session_id"]

        async def again(service: Host, **given: Any) -> tuple[str, bool]:
            run = await start(
                service.client,
                scripted(call("mcp__p__env")),
                session_id=session_id,
                mcp_servers={"p": {**PLAIN, **given}},
                allowed_tools=allowed,
            )
            assert (await finished(service.client, run["id"]))["result_subtype"] == "success"
            return (await results(service, session_id))[-1]

        text, is_error = await again(b)
        assert is_error
        assert "mcp__p__env is withheld: it is not as it was" in text
        newest = (await log(b, session_id, "mcp.status"))[-1]["servers"][0]
        assert [tool["name"] for tool in newest["withheld"]] == ["env"]
        assert (await again(a, accept_tools=newest["tools_hash"]))[1] is False
        assert (await again(b))[1] is False  # the consent stays


@pytest.mark.requirement("mcp:options")
async def test_servers_that_may_not_be_reached_are_refused_with_their_field(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    settings = make_settings(mcp={"header_variables": {"TOKEN": ["api.example.com"]}})
    async with host(settings) as service, mcp_site() as site:
        for server, pointer in (
            ({"command": "x", "cwd": "/"}, "cwd"),
            ({"type": "http", "url": site.url()}, "url"),
            ({"type": "sse", "url": "http://10.0.0.1/sse"}, "url"),
            ({"type": "http", "url": "https://[::1"}, "url"),
            (
                {"type": "http", "url": "https://evil.test", "headers": {"A": "${TOKEN}"}},
                "headers/A",
            ),
        ):
            for path in ("/v1/runs", "/v1/sessions"):
                body: Json = {"options": {"mcp_servers": {"a/b": server}}}
                if path == "/v1/runs":
                    body["prompt"] = "hi"
                answer = await service.client.post(path, json=body)
                assert answer.status_code == 422, answer.text
                (error,) = answer.json()["errors"]
                assert error["pointer"] == f"/options/mcp_servers/a~1b/{pointer}"


@pytest.mark.requirement("mcp:prompts")
async def test_prompts_of_a_server_are_commands_and_its_words_reach_the_model(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del database_url
    settings = make_settings(egress={"private_hosts": ["127.0.0.1"]})
    async with mcp_site() as site, host(settings) as service:
        servers = {"s": {"type": "http", "url": site.url()}}
        run = await start(service.client, "/mcp__s__greet Ada Lovelace", mcp_servers=servers)
        await finished(service.client, run["id"])
        session_id = run["session_id"]
        init, prompt, *_ = await messages(service.client, session_id)
        assert "mcp__s__greet" in init["slash_commands"]
        assert prompt["message"]["content"] == "/mcp__s__greet Ada Lovelace"
        said = str(messages_api.requests[-1].body["messages"])
        assert "Please greet Ada Lovelace." in said
        assert "# s\\n\\nAsk nicely." in said
        both = [call("mcp__s__meet"), call("mcp__s__meet")]
        run = await start(
            service.client,
            scripted(both),
            session_id=session_id,
            mcp_servers=servers,
            allowed_tools=["mcp__s"],
        )
        await finished(service.client, run["id"])
        assert site.most_together == 2  # what only reads runs side by side
        again = await start(
            service.client, "/mcp__s__nothing", session_id=session_id, mcp_servers=servers
        )
        await finished(service.client, again["id"])
        said = str(messages_api.requests[-1].body["messages"])
        assert "/mcp__s__nothing, which is no command here" in said
        (known,) = re.findall("The commands here: (.*?)\\.", said)
        assert "/mcp__s__greet" in known.split(", ")
        assert said.count("Ask nicely.") == 1  # nothing is told twice


@pytest.mark.requirement("mcp:window")
async def test_tools_of_servers_take_room_in_the_window_once_they_are_loaded(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    async with host(make_settings(), "worker") as a, host(make_settings(), "api") as b:
        del a
        find = {"tool": "ToolSearch", "input": {"query": "select:mcp__p__echo"}}
        more: Json = {"mcp_servers": {"p": PLAIN}, "disallowed_tools": ["mcp__p__touch"]}
        first = await start(b.client, scripted(find), **more)
        await finished(b.client, first["id"])
        session_id = first["session_id"]
        used = (await b.client.get(f"/v1/sessions/{session_id}/context")).json()
        told = {tool["name"]: tool for tool in used["mcpTools"]}
        assert {tool["serverName"] for tool in told.values()} == {"p"}
        assert [name for name, tool in told.items() if tool["isLoaded"]] == ["mcp__p__echo"]
        assert "mcp__p__env" in told
        assert "mcp__p__touch" not in told  # nor is it offered
        shares = {part["name"]: part["tokens"] for part in used["categories"]}
        assert shares["MCP tools"] == told["mcp__p__echo"]["tokens"] > 10
        assert not [tool for tool in used["systemTools"] if tool["name"].startswith("mcp__")]
        again = await start(b.client, "/context", session_id=session_id, **more)
        await finished(b.client, again["id"])
        said = (await messages(b.client, session_id))[-1]["result"]
        assert f"- MCP tools: {shares['MCP tools']}\n" in said
        await control(b, session_id, subtype="mcp_toggle", serverName="p", enabled=False)
        used = (await b.client.get(f"/v1/sessions/{session_id}/context")).json()
        assert used["mcpTools"] == []


async def control(service: Host, session_id: str, **body: Any) -> Json:
    answer = await service.client.post(f"/v1/sessions/{session_id}/control", json=body)
    assert answer.status_code == 200, answer.text
    response: Json = answer.json()["response"]
    return response


@pytest.mark.requirement("mcp:control")
async def test_servers_are_looked_at_reconnected_and_switched_from_any_host(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    async with host(make_settings(), "worker") as a, host(make_settings(), "api") as b:
        del a
        servers = {"p": {**PLAIN, "timeout_seconds": 20}, "q": PLAIN}
        run = await start(
            b.client,
            scripted(call("mcp__p__hang"), call("mcp__p__echo", n=1)),
            mcp_servers=servers,
            allowed_tools=["mcp__p"],
        )
        session_id = run["session_id"]
        waiting: dict[str, str | int] = {"types": "assistant", "wait": 20}
        await b.client.get(f"/v1/sessions/{session_id}/events", params=waiting)
        told = (await control(b, session_id, subtype="mcp_status"))["mcpServers"]
        assert [(s["name"], s["status"]) for s in told] == [
            ("p", "connected"),
            ("q", "connected"),
        ]
        await control(b, session_id, subtype="mcp_reconnect", serverName="p")
        assert (await finished(b.client, run["id"]))["result_subtype"] == "success"
        (lost, was_error), echo = await results(b, session_id)
        assert was_error
        assert "The connection to the MCP server p was lost during the call" in lost
        assert echo == ('{"n": 1}', False)

        async def states() -> list[tuple[str, str]]:
            shown = (await control(b, session_id, subtype="mcp_status"))["mcpServers"]
            return [(server["name"], server["status"]) for server in shown]

        await control(b, session_id, subtype="mcp_toggle", serverName="q", enabled=False)
        assert await states() == [("p", "connected"), ("q", "disabled")]
        again = await start(b.client, scripted({"text": "ok"}), session_id=session_id)
        await finished(b.client, again["id"])
        init = [m for m in await messages(b.client, session_id) if m.get("subtype") == "init"][-1]
        assert [(s["name"], s["status"]) for s in init["mcp_servers"]] == [
            ("p", "connected"),
            ("q", "disabled"),
        ]
        assert not [tool for tool in init["tools"] if tool.startswith("mcp__q")]
        await control(b, session_id, subtype="mcp_toggle", serverName="q", enabled=True)
        assert await states() == [("p", "connected"), ("q", "pending")]
        for body, status, code in (
            ({"subtype": "mcp_reconnect", "serverName": "p"}, 409, "not_running"),
            (
                {"subtype": "mcp_toggle", "serverName": "x", "enabled": True},
                422,
                "validation_failed",
            ),
        ):
            refused = await b.client.post(f"/v1/sessions/{session_id}/control", json=body)
            assert (refused.status_code, refused.json()["code"]) == (status, code)


@pytest.mark.requirement("mcp:host-death")
async def test_the_death_of_a_host_leaves_no_server_and_another_goes_on(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str, scratch: Path
) -> None:
    del messages_api, database_url
    settings = make_settings(engine={"lease_s": 2, "heartbeat_s": 0.5, "poll_s": 0.2})
    async with host_process(environment(settings), scratch / "mcp-death.log") as running:
        run = await start(
            running.client,
            scripted(call("mcp__p__hang"), call("mcp__p__echo", n=2)),
            mcp_servers={"p": PLAIN},
            allowed_tools=["mcp__p"],
        )
        events = f"/v1/sessions/{run['session_id']}/events"
        await running.client.get(events, params={"types": "assistant", "wait": 20})
        assert processes(MARK)
        await running.kill()
        await until(lambda: not processes(MARK))
    async with host(settings) as service:
        assert (await finished(service.client, run["id"]))["result_subtype"] == "success"
        (lost, was_error), echo = await results(service, run["session_id"])
        assert was_error
        assert "The worker was lost" in lost
        assert echo == ('{"n": 2}', False)
    await until(lambda: not processes(MARK))


@pytest.mark.requirement("mcp:elicitation")
async def test_what_a_server_asks_in_a_call_is_an_action_that_a_client_answers(
    make_settings: MakeSettings, messages_api: MessagesApi, database_url: str
) -> None:
    del messages_api, database_url
    async with host(make_settings()) as service:

        async def asking(**actions: object) -> tuple[Json, Json]:
            run = await start(
                service.client,
                scripted(call("mcp__p__ask")),
                mcp_servers={"p": {**PLAIN, "timeout_seconds": 5}},
                allowed_tools=["mcp__p__ask"],
                actions={"elicitations": "ask", **actions},
            )
            session = f"/v1/sessions/{run['session_id']}"
            await service.client.get(
                f"{session}/events", params={"types": "action.opened", "wait": 20}
            )
            (action,) = (await service.client.get(f"{session}/actions")).json()["data"]
            return run, action

        run, action = await asking()
        assert action["type"] == "elicitation"
        assert action["elicitation"] == {
            "server": "p",
            "message": "Who are you?",
            "mode": "form",
            "requested_schema": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                "required": ["name"],
            },
        }
        resolve = f"/v1/actions/{action['id']}/resolve"
        refused = await service.client.post(resolve, json={"behavior": "allow"})
        assert refused.status_code == 422
        body = {"action": "accept", "content": {"name": "Ada", "age": 36}}
        assert (await service.client.post(resolve, json=body)).status_code == 200
        await finished(service.client, run["id"])
        ((said, _),) = await results(service, run["session_id"])
        assert json.loads(said) == body

        run, action = await asking(hold_seconds=1)
        await finished(service.client, run["id"])
        ((said, _),) = await results(service, run["session_id"])
        assert json.loads(said) == {"action": "cancel"}
        read = (await service.client.get(f"/v1/actions/{action['id']}")).json()
        assert read["status"] == "expired"

        run = await start(
            service.client,
            scripted(call("mcp__p__ask")),
            mcp_servers={"p": PLAIN},
            allowed_tools=["mcp__p__ask"],
        )
        await finished(service.client, run["id"])
        ((said, _),) = await results(service, run["session_id"])
        assert json.loads(said) == -32600  # nobody is asked, and the server knows it
