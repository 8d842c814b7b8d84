"""Who asks, who answers, who decided: hostile answers, replicas that race, and the audit of it all."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.stage import Stage, open_stage, pointers, problem, scripted
from tests.api.test_actions import ASK, TOUCH, answer, asked, asking, log, parked, read, results
from tests.api.test_audit import entries
from tests.api.test_queue import cancel, ended, post
from tests.databases import fresh_database
from tests.fakes.hook_server import NEVER, HookServer
from tests.runs.prompts import bash

Json = dict[str, Any]
LAMP: Json = {"name": "lamp", "input_schema": {"type": "object"}}
HELPER: Json = {"description": "helps", "prompt": "You are HELPER."}


async def decisions(client: httpx.AsyncClient, run: Json) -> list[tuple[str, str, str]]:
    """Give each decision about a run's calls: what, by what kind of author, by whom."""
    found = await entries(client, run_id=run["id"])
    return [
        (e["decision"], e["decided_by"]["kind"], e["decided_by"]["name"]) for e in reversed(found)
    ]


# -- who asks ---------------------------------------------------------------------------------


@pytest.mark.requirement("actions:who-asks")
async def test_an_action_says_which_subagent_asks_and_that_it_was_settled(stage: Stage) -> None:
    child = scripted(
        TOUCH, {"tool": "mcp__client__lamp", "input": {}}, {"text": "told"}, text="Child."
    )
    given = {"description": "a job", "prompt": child, "subagent_type": "helper"}
    body = {
        "prompt": scripted({"tool": "Agent", "input": given}, TOUCH, {"text": "fine"}),
        "options": {"client_tools": [LAMP], "agents": {"helper": HELPER}},
        "actions": ASK,
    }
    run = (await post(stage.client, "/v1/runs", **body))["run"]
    seen: list[Json] = []
    for said in ({"behavior": "allow"}, {"content": "lit"}, {"behavior": "allow"}):
        action = await asked(stage.client, run)
        resolved = (await answer(stage.client, action, **said)).json()
        assert (action["version"], resolved["version"]) == (1, 2)
        seen.append(resolved)
    await ended(stage.client, run["id"])
    path = f"/v1/sessions/{run['session_id']}/subagents"
    (subagent,) = (await read(stage.client, path))["data"]
    of_child = (subagent["tool_use_id"], subagent["agent_id"])
    assert [(a["type"], (a["parent_tool_use_id"], a["agent_id"])) for a in seen] == [
        ("permission", of_child),
        ("client_tool", of_child),
        ("permission", (None, None)),
    ]


# -- hostile answers --------------------------------------------------------------------------


async def test_an_edited_input_is_bound_by_size_schema_and_rules(stage: Stage) -> None:
    body = {"options": {"disallowed_tools": ["Bash(rm *)"]}, "actions": ASK}
    run = (await post(stage.client, "/v1/runs", prompt=scripted(TOUCH, {"text": "k"}), **body))[
        "run"
    ]
    action = await asked(stage.client, run)
    for wrong in ({"command": 7}, {"cmd": "ls"}, {}):
        said = await answer(stage.client, action, behavior="allow", updated_input=wrong)
        assert pointers(problem(said, 422, "validation_failed")) == ["/updated_input"]
    huge = {"command": "x" * 20_000_000}
    said = await answer(stage.client, action, behavior="allow", updated_input=huge)
    problem(said, 413, "payload_too_large")
    raw = b'{"behavior":"allow","updated_input":{"command":"echo \\ud800"}}'
    path = f"/v1/actions/{action['id']}/resolve"
    headers = {"content-type": "application/json"}
    problem(await stage.client.post(path, content=raw, headers=headers), 400, "invalid_request")
    assert (await read(stage.client, f"/v1/actions/{action['id']}"))["status"] == "pending"

    edited = {"command": "true; sudo rm made"}
    await answer(stage.client, action, behavior="allow", updated_input=edited)
    run = await ended(stage.client, run["id"])
    (result,) = results(await log(stage.client, run))
    assert result["is_error"] is True
    assert "has been denied" in result["content"]
    assert (await decisions(stage.client, run))[0][:2] == ("deny", "rule")


async def test_text_with_a_nul_is_no_answer(stage: Stage) -> None:
    run, action = await asking(stage.client)
    for hostile in (
        {"behavior": "deny", "message": "no\x00 way"},
        {"behavior": "allow", "updated_input": {"command": "echo \x00"}},
    ):
        said = await answer(stage.client, action, **hostile)
        refused = problem(said, 400, "invalid_request")
        assert pointers(refused) == [
            "/message" if "message" in hostile else "/updated_input/command"
        ]
    await cancel(stage.client, run["id"])


async def test_another_tenant_learns_nothing_of_what_it_answers_at_once(
    stage: Stage, stranger: httpx.AsyncClient
) -> None:
    run, action = await asking(stage.client)
    body = {"resolutions": [{"id": action["id"], "answer": {"behavior": "allow"}}]}
    (item,) = (await stranger.post("/v1/actions/resolve", json=body)).json()["data"]
    assert (item["action"], item["problem"]["code"]) == (None, "not_found")
    for path in (f"/v1/sessions/{run['session_id']}/actions", f"/v1/actions/{action['id']}"):
        problem(await stranger.get(path), 404, "not_found")
    for filters in ({"session_id": run["session_id"]}, {"run_id": run["id"]}):
        assert (await read(stranger, "/v1/actions", **filters))["data"] == []
    assert (await read(stage.client, f"/v1/actions/{action['id']}"))["status"] == "pending"
    await cancel(stage.client, run["id"])


@pytest.mark.requirement("actions:races")
@pytest.mark.parametrize("hold_seconds", [0, 60])
async def test_of_answers_given_at_once_on_two_replicas_one_counts(
    scratch: Path, postgres: str, hold_seconds: int
) -> None:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn) as one,
        open_stage(scratch, dsn, role="api") as two,
    ):
        run, action = await asking(one.client, hold_seconds=hold_seconds)
        if not hold_seconds:
            await parked(one, run)
        answers: list[Json] = [
            {"behavior": "allow"},
            {"behavior": "allow", "updated_input": {"command": "echo edited >> made; cat made"}},
            {"behavior": "deny", "message": "no"},
        ]
        said = await asyncio.gather(
            *(answer(stage.client, action, **a) for a in answers for stage in (one, two))
        )
        first: Json = next(r.json()["resolution"] for r in said if r.status_code == 200)
        for reply, given in zip(said, [a for a in answers for _ in range(2)], strict=True):
            if given.items() <= first.items() and set(first) - set(given) <= {"interrupt"}:
                assert (reply.status_code, reply.json()["resolution"]) == (200, first)
            else:
                refused = problem(reply, 409, "action_already_resolved")
                assert refused["context"]["resolution"] == first
        run = await ended(one.client, run["id"])
        (result,) = results(await log(one.client, run))
        wanted = "no" if first["behavior"] == "deny" else "1"
        assert result["content"] == ("edited" if "updated_input" in first else wanted)
        resolved = [e for e in await log(one.client, run) if e["type"] == "action.resolved"]
        assert len(resolved) == 1


# -- always allow -----------------------------------------------------------------------------


@pytest.mark.requirement("actions:always")
async def test_what_a_person_always_allows_goes_with_the_session_and_its_forks_alone(
    stage: Stage,
) -> None:
    git = bash("git push --dry-run nowhere")
    run, action = await asking(stage.client, scripted(git, git, {"text": "k"}))
    offered = action["permission"]["suggestions"]
    assert offered[0]["rules"] == [{"toolName": "Bash", "ruleContent": "git push *"}]
    await answer(stage.client, action, behavior="allow", updated_permissions=offered[:1])
    assert (await ended(stage.client, run["id"]))["permission_denials"] == []
    path = f"/v1/sessions/{run['session_id']}"
    fork = (await stage.client.post(f"{path}/fork", json={})).json()
    for session_id, kept in ((run["session_id"], True), (fork["id"], True), (None, False)):
        where = f"/v1/sessions/{session_id}/runs" if session_id else "/v1/runs"
        body = {"prompt": scripted(git, {"text": "k"}), "actions": {"permissions": "deny"}}
        later = await ended(stage.client, (await post(stage.client, where, **body))["run"]["id"])
        assert (later["permission_denials"] == []) is kept


# -- control ----------------------------------------------------------------------------------


async def test_an_interrupt_withdraws_what_is_asked_on_whatever_host(stage: Stage) -> None:
    run, action = await asking(stage.client, hold_seconds=0)
    await parked(stage, run)
    path = f"/v1/sessions/{run['session_id']}/control"
    said = await stage.client.post(path, json={"subtype": "interrupt"})
    assert (said.status_code, said.json()["subtype"]) == (200, "success")
    run = await ended(stage.client, run["id"])
    assert (run["result_subtype"], run["terminal_reason"]) == (
        "error_during_execution",
        "aborted_tools",
    )
    problem(await answer(stage.client, action, behavior="allow"), 410, "action_withdrawn")


# -- the audit --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def hooked(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(
            scratch, dsn, hooks={"secret": "s" * 32}, egress={"private_hosts": ["127.0.0.1"]}
        ) as opened,
    ):
        yield opened


@pytest.mark.requirement("permissions:audit")
async def test_people_hooks_and_the_clock_stand_in_the_audit_as_who_decided(hooked: Stage) -> None:
    client = hooked.client
    async with HookServer() as server:

        def verdict(decision: str) -> Json:
            event = {"hookEventName": "PreToolUse", "permissionDecision": decision}
            return {"hookSpecificOutput": {**event, "permissionDecisionReason": "why"}}

        server.script["PreToolUse"] = [verdict("allow"), verdict("deny"), verdict("ask"), {}, {}]
        calls = [
            bash("touch a"),
            bash("touch b"),
            bash("touch c"),
            bash("touch d"),
            bash("touch e"),
        ]
        body = {
            "prompt": scripted(*calls, bash("touch f"), {"text": "end"}),
            "options": {"hooks": [server.hook("PreToolUse", timeout=2)]},
            "actions": {**ASK, "permission_timeout_seconds": 4},
        }
        server.script["PreToolUse"] = [*server.script["PreToolUse"], NEVER]
        run = (await post(client, "/v1/runs", **body))["run"]
        for said in ("allow", "deny"):
            await answer(client, await asked(client, run), behavior=said)
        run = await ended(client, run["id"])
        key = (await entries(client, run_id=run["id"]))[2]["decided_by"]["name"]
        found = await decisions(client, run)
        url = server.url("PreToolUse")
    assert [(d, kind) for d, kind, _ in found] == [
        ("allow", "hook"),
        ("deny", "hook"),
        ("allow", "person"),
        ("deny", "person"),
        ("deny", "expiry"),
        ("deny", "hook"),
    ]
    assert [name for _, _, name in found[:2]] == [url, url]
    assert found[2][2] == found[3][2] != ""
    assert key
    assert "no answer within 2 s" in found[5][2]
    assert [d["tool_input"]["command"][-1] for d in run["permission_denials"]] == ["b", "d", "e"]
