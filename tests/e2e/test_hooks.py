"""Hooks of all kinds, asked by real hosts: over HTTP, as commands, and never out of a workspace."""

import asyncio
import json
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from app.hooks.signing import tenant_secret
from tests.api.stage import open_stage
from tests.api.test_actions import answer, asked
from tests.conftest import MakeSettings
from tests.databases import fresh_database
from tests.fakes.hook_server import NEVER, HookServer
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, environment, host, host_process
from tests.runs.prompts import finished, messages, scripted, start
from tests.store.seeds import until

SECRET = secrets.token_hex(16)
LOOPBACK = {"private_hosts": ["127.0.0.1"]}
BASH = {"tool": "Bash", "input": {"command": "echo hi > made.txt; echo hi"}}


@pytest.fixture
async def server() -> AsyncIterator[HookServer]:
    async with HookServer() as hooks:
        yield hooks


@pytest.fixture
def commands(scratch: Path) -> Path:
    """A settings file of the operator's."""
    with tempfile.NamedTemporaryFile(dir=scratch, suffix=".json", delete=False) as file:
        name = Path(file.name)

    def of(event: str, command: str) -> dict[str, Any]:
        return {event: [{"hooks": [{"type": "command", "command": command}]}]}

    hooks = {
        **of("SessionStart", "pwd; touch begun.txt"),
        **of("PostToolUse", "echo seen >&2; exit 2"),
    }
    name.write_text(json.dumps({"hooks": hooks}))
    return name


@pytest.fixture
async def hooked(make_settings: MakeSettings, commands: Path) -> AsyncIterator[Host]:
    settings = make_settings(
        hooks={"secret": SECRET, "file": commands},
        egress=LOOPBACK,
        workspace={"allowed_roots": [commands.parent]},
    )
    async with host(settings) as running:
        yield running


def kinds(told: list[dict[str, Any]]) -> list[str]:
    return [message.get("subtype") or message["type"] for message in told]


@pytest.mark.requirement("hooks:http")
@pytest.mark.requirement("hooks:commands")
async def test_hooks_of_options_and_of_the_operator_are_asked_in_a_run(
    hooked: Host, server: HookServer, messages_api: MessagesApi
) -> None:
    server.script["PreToolUse"] = [{"hookSpecificOutput": {"permissionDecision": "allow"}}]
    server.script["Stop"] = [{"decision": "block", "reason": "Say more."}]
    events = ("UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")
    prompt = scripted(BASH, {"text": "one"}, {"text": "two"})
    run = await start(
        hooked.client,
        prompt,
        hooks=[server.hook(event) for event in events],
        include_hook_events=True,
    )
    assert (await finished(hooked.client, run["id"]))["end_reason"] == "completed"
    told = await messages(hooked.client, run["session_id"])
    assert kinds(told)[:4] == ["hook_started", "hook_response", "init", "hook_started"]
    start_response = told[1]
    assert (start_response["hook_name"], start_response["exit_code"]) == ("SessionStart:startup", 0)
    assert start_response["stdout"] == "/workspace\n"
    last = messages_api.requests[-1].body["messages"]
    words = json.dumps(last)
    assert "Stop hook feedback:\\nSay more." in words
    assert "seen" in words
    assert told[-1]["result"] == "two"
    async with asyncio.timeout(30):
        while server.events()[-1] != "SessionEnd":  # noqa: ASYNC110 - it comes after the result
            await asyncio.sleep(0.01)
    assert server.events() == ["UserPromptSubmit", "PreToolUse", "Stop", "Stop", "SessionEnd"]
    verifier = Webhook(tenant_secret(SECRET, "default"))
    for request in server.asked:
        verifier.verify(request.body, dict(request.headers))


@pytest.mark.requirement("hooks:http")
async def test_a_hook_for_a_tool_is_asked_by_whichever_name_it_is_called(
    hooked: Host, server: HookServer
) -> None:
    server.script["PreToolUse"] = [{"decision": "block", "reason": "alone"}]
    older = {"tool": "Task", "input": {"description": "x", "prompt": "x"}}
    hooks = [server.hook("PreToolUse", matcher="Agent")]
    run = await start(hooked.client, scripted(older, {"text": "done"}), hooks=hooks)
    ended = await finished(hooked.client, run["id"])
    assert [told["tool_name"] for told in server.told] == ["Agent"]
    assert [denial["tool_name"] for denial in ended["permission_denials"]] == ["Task"]


@pytest.mark.requirement("hooks:permission-request")
async def test_a_hook_answers_an_approval_unless_a_person_did_before(
    hooked: Host, server: HookServer
) -> None:
    def decided(behavior: str, **given: Any) -> dict[str, Any]:
        return {"hookSpecificOutput": {"decision": {"behavior": behavior, **given}}}

    changed = {"updatedInput": {"command": "echo other"}}
    server.script["PermissionRequest"] = [
        decided("allow", **changed),
        NEVER,
        decided("deny", message="not now"),
        decided("allow"),
        {},
    ]
    hooks = [server.hook("PermissionRequest", matcher="Bash"), server.hook("Notification")]

    async def played(permissions: str, *, answers: bool = False) -> list[dict[str, Any]]:
        prompt = scripted(BASH, {"text": "done"})
        run = await start(hooked.client, prompt, hooks=hooks, actions={"permissions": permissions})
        if answers:
            action = await asked(hooked.client, run)
            assert (await answer(hooked.client, action, behavior="allow")).status_code == 200
        await finished(hooked.client, run["id"])
        return await messages(hooked.client, run["session_id"])

    def result(told: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        (found,) = [m for m in told if "tool_result_meta" in m]
        return found["message"]["content"][0]["content"], found["tool_result_meta"][0]

    content, meta = result(await played("ask"))
    assert (content, meta["permission_decision"]["source"]) == ("other", "hook")
    content, meta = result(await played("ask", answers=True))
    assert (content, meta["permission_decision"]["source"]) == ("hi", "user_temporary")
    content, meta = result(await played("ask"))
    assert (content, meta["permission_decision"]["decision"]) == ("not now", "reject")
    content, meta = result(await played("deny"))
    assert (content, meta["permission_decision"]["source"]) == ("hi", "hook")
    content, _ = result(await played("deny"))
    assert "approval" in content
    assert server.events().count("Notification") == 3
    page = await hooked.client.get("/v1/actions", params={"limit": 100})
    assert {each["status"] for each in page.json()["data"]} == {"resolved"}


@pytest.mark.requirement("hooks:permission-request")
@pytest.mark.parametrize("permissions", ["ask", "deny"])
async def test_what_hooks_beside_a_question_say_or_fail_at_is_told_while_the_call_waits(
    hooked: Host, server: HookServer, permissions: str
) -> None:
    server.script["PermissionRequest"] = [{"systemMessage": "look at this"}]
    server.script["Notification"] = [{"systemMessage": 7}]
    hooks = [server.hook("PermissionRequest"), server.hook("Notification")]
    run = await start(
        hooked.client,
        scripted(BASH, {"text": "done"}),
        hooks=hooks,
        include_hook_events=True,
        actions={"permissions": permissions},
    )
    is_asked = permissions == "ask"
    names = {"PermissionRequest:Bash", *(["Notification:permission_prompt"] if is_asked else [])}

    async def told() -> list[dict[str, Any]]:
        every = await messages(hooked.client, run["session_id"])
        return [each for each in every if (each.get("hook_name") or each.get("content"))]

    if is_asked:
        action = await asked(hooked.client, run)

        async def are_told() -> bool:
            return len([m for m in await told() if m["subtype"] == "informational"]) == 2

        await until(are_told)
        assert (await answer(hooked.client, action, behavior="allow")).status_code == 200
    await finished(hooked.client, run["id"])
    every = await told()
    assert {m["hook_name"] for m in every if m["subtype"] == "hook_response"} >= names
    said = {m["content"]: m.get("tag") for m in every if m["subtype"] == "informational"}
    assert said.pop("PermissionRequest:Bash says: look at this") is None
    assert list(said.values()) == ["hook_callback_failed"] * is_asked
    assert all("systemMessage" in words for words in said)


@pytest.mark.requirement("hooks:failures")
@pytest.mark.parametrize("permissions", ["ask", "deny"])
async def test_an_approval_beside_which_a_hook_had_to_be_heard_is_none_without_it(
    hooked: Host, server: HookServer, permissions: str
) -> None:
    server.script["PermissionRequest"] = [b""]
    run = await start(
        hooked.client,
        scripted(BASH, {"text": "done"}),
        hooks=[server.hook("PermissionRequest", on_failure="block")],
        actions={"permissions": permissions},
    )
    ended = await finished(hooked.client, run["id"])
    assert [denial["tool_name"] for denial in ended["permission_denials"]] == ["Bash"]
    told = await messages(hooked.client, run["session_id"])
    (denied,) = [m["message"]["content"][0] for m in told if "tool_result_meta" in m]
    assert "The call was not made." in denied["content"]


@pytest.mark.requirement("hooks:workspace")
async def test_files_of_a_workspace_bring_no_hooks(hooked: Host, commands: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir=commands.parent))
    (folder / ".claude").mkdir()
    command = {"type": "command", "command": "touch /workspace/owned.txt"}
    hooks = {"SessionStart": [{"hooks": [command]}], "Stop": [{"hooks": [command]}]}
    for name in ("settings.json", "settings.local.json"):
        (folder / ".claude" / name).write_text(json.dumps({"hooks": hooks}))
    if os.geteuid() == 0:
        for path in (folder, folder / ".claude", *(folder / ".claude").iterdir()):
            os.chown(path, 200001, 200001)
    workspace = {"source": "directory", "path": str(folder)}
    body = {"prompt": scripted({"text": "ok"}), "workspace": workspace, "wait": 20}
    answer = await hooked.client.post("/v1/runs", json=body)
    assert answer.status_code == 200, answer.text
    assert (folder / "begun.txt").exists()  # the operator's own
    assert not (folder / "owned.txt").exists()


@pytest.mark.requirement("hooks:recovery")
async def test_a_hook_that_a_lost_host_asked_is_asked_again_under_the_same_id(
    make_settings: MakeSettings, server: HookServer, tmp_path: Path
) -> None:
    server.script["UserPromptSubmit"] = [NEVER, {"decision": "block", "reason": "no"}]
    settings = make_settings(
        hooks={"secret": SECRET}, egress=LOOPBACK, engine={"lease_s": 1.5, "heartbeat_s": 0.5}
    )
    async with host_process(environment(settings), tmp_path / "a.log") as first:
        given = server.hook("UserPromptSubmit")
        run = await start(first.client, scripted({"text": "ok"}), hooks=[given])
        async with asyncio.timeout(10):
            while not server.asked:  # noqa: ASYNC110 - the fake tells no event
                await asyncio.sleep(0.01)
        await first.kill()
    async with host(settings) as second:
        assert (await finished(second.client, run["id"]))["end_reason"] == "hook"
    one, two = (each.headers["webhook-id"] for each in server.asked)
    assert one == two


@pytest.mark.requirement("hooks:http")
@pytest.mark.parametrize(
    ("given", "pointer", "code"),
    [
        ({"event": "PreToolUsed", "url": "https://example.com"}, "/event", "value_error"),
        ({"event": "Stop", "url": "ftp://example.com"}, "/url", "value_error"),
        ({"event": "Stop", "url": "https://a:b@example.com"}, "/url", "value_error"),
        ({"event": "Stop", "url": "http://10.0.0.1/"}, "/url", "not_allowed"),
        ({"event": "Stop", "url": "https://example.com:22/"}, "/url", "not_allowed"),
        (
            {"event": "Stop", "url": "https://a.example", "matcher": "("},
            "/matcher",
            "invalid_pattern",
        ),
        ({"event": "Stop", "url": "https://a.example", "timeout": 0}, "/timeout", "greater_than"),
        ({"event": "Stop", "url": "https://a.example", "x": 1}, "/x", "extra_forbidden"),
    ],
)
async def test_a_hook_that_cannot_be_used_is_refused_by_its_field(
    hooked_once: httpx.AsyncClient, given: dict[str, Any], pointer: str, code: str
) -> None:
    answer = await hooked_once.post("/v1/runs", json={"prompt": "x", "options": {"hooks": [given]}})
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert (error["pointer"], error["code"]) == (f"/options/hooks/0{pointer}", code)


@pytest.fixture(scope="module")
async def hooked_once(scratch: Path, postgres: str) -> AsyncIterator[httpx.AsyncClient]:
    """One host for all refusals."""
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, hooks={"secret": SECRET}) as stage,
    ):
        yield stage.client


async def test_without_a_secret_hooks_are_refused_with_what_to_do(service: Host) -> None:
    body = {"prompt": "x", "options": {"hooks": [{"event": "Stop", "url": "https://a.example"}]}}
    answer = await service.client.post("/v1/runs", json=body)
    assert answer.status_code == 422
    assert "TREADLE_HOOKS__SECRET" in answer.json()["detail"]
