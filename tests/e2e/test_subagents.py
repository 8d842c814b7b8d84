"""Subagents over real HTTP: their messages, transcripts and money; a cancel, a budget, a lost host."""

import asyncio
import json
from contextlib import AsyncExitStack, aclosing
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import MakeSettings
from tests.e2e.test_background_commands import long_sleep, told
from tests.e2e.test_replicas import check_session, until_processes
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, environment, host, host_process
from tests.runs.prompts import bash, finished, messages, scripted, start
from tests.runs.sse import frames, read_to_end
from tests.store.seeds import opened, until
from tests.traces.watch import Watch

Json = dict[str, Any]
HELPER: Json = {"description": "helps", "prompt": "You are HELPER."}
OPTIONS: Json = {"allowed_tools": ["Bash", "Write"], "agents": {"helper": HELPER}}


def agent(*steps: object, kind: str = "helper", text: str = "Child.", **given: object) -> Json:
    """A call that begins a subagent, with its script."""
    asked = scripted(*steps, text=text)
    given = {"description": "a job", "prompt": asked, "subagent_type": kind, **given}
    return {"tool": "Agent", "input": given}


async def subagents(client: httpx.AsyncClient, session_id: str) -> list[Json]:
    found: list[Json] = (await client.get(f"/v1/sessions/{session_id}/subagents")).json()["data"]
    return found


def said(transcript: list[Json]) -> list[str]:
    """Give the texts of models."""
    blocks = [b for m in transcript if m["type"] == "assistant" for b in m["message"]["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


@pytest.mark.requirement("loop:subagent-messages")
async def test_readers_see_what_subagents_do_and_find_all_of_it_in_their_transcripts(
    service: Host, database_url: str
) -> None:
    client = service.client
    inner = agent({"text": "grand answer"}, text="Grandchild.")
    child = agent({"blocks": [{"text": "child text"}, bash("echo child")]}, inner, {"text": "told"})
    steps = ([child, agent({"text": "other"}, kind="Explore")], {"text": "fine"})
    run = await start(client, scripted(*steps), **OPTIONS)
    session_id = run["session_id"]
    ended = await finished(client, run["id"])
    assert (ended["result"]["text"], ended["num_turns"]) == ("fine", 2)

    shown = [f for f in await read_to_end(client, f"/v1/runs/{run['id']}/stream") if f.id]
    assert said([f.body for f in shown if f.event == "message"]) == ["fine"]
    init = told([f.body for f in shown], "init")[0]
    assert {"helper", "general-purpose", "Explore"} <= set(init["agents"])
    assert "Task" in init["tools"]
    assert [f.body for f in shown if f.event == "message"] == await messages(client, session_id)

    found = await subagents(client, session_id)
    assert sorted((s["subagent_type"], s["depth"], s["status"]) for s in found) == [
        ("Explore", 1, "completed"),
        ("helper", 1, "completed"),
        ("helper", 2, "completed"),
    ]
    first = next(s for s in found if s["subagent_type"] == "helper" and s["depth"] == 1)
    (nested,) = [s for s in found if s["depth"] == 2]
    assert nested["parent_agent_id"] == first["agent_id"]
    path = f"/v1/sessions/{session_id}/subagents/{first['tool_use_id']}/messages"
    transcript = (await client.get(path)).json()["data"]
    assert said(transcript) == ["child text", "told"]
    key = {"parent_tool_use_id": first["tool_use_id"]}
    both = await client.get(f"/v1/sessions/{session_id}/messages", params=key)
    assert both.json()["data"] == transcript
    log = await client.get(f"/v1/sessions/{session_id}/events", params=key)
    assert [entry["data"] for entry in log.json()["data"]] == transcript
    async with aclosing(frames(client, f"/v1/sessions/{session_id}/stream", **key)) as stream:
        followed = [(await anext(stream)).body for _ in transcript]
    assert followed == transcript
    assert (await client.get(path.replace("toolu", "nobody"))).status_code == 404

    active = await client.get(f"/v1/sessions/{session_id}/messages?view=active")
    assert not [m for m in active.json()["data"] if m.get("parent_tool_use_id")]
    export = await client.get(f"/v1/sessions/{session_id}/export?format=claude-jsonl")
    assert len(export.text.splitlines()) == 7  # the main conversation, and its result
    async with opened(database_url) as database:
        await check_session(database, session_id)


@pytest.mark.requirement("loop:subagent-messages")
async def test_each_of_three_levels_has_a_transcript_of_its_own(service: Host) -> None:
    client = service.client
    third = agent(bash("echo third"), {"text": "third told"}, text="Third.")
    second = agent(third, {"text": "second told"}, text="Second.")
    first = agent(second, {"text": "first told"}, text="First.")
    run = await start(client, scripted(first, {"text": "fine"}), **OPTIONS)
    await finished(client, run["id"])
    session = f"/v1/sessions/{run['session_id']}"
    found = sorted(await subagents(client, run["session_id"]), key=lambda each: each["depth"])
    assert [each["depth"] for each in found] == [1, 2, 3]
    parents = [each["parent_agent_id"] for each in found]
    assert parents == [None, *(each["agent_id"] for each in found[:2])]
    for each, words in zip(found, ("first told", "second told", "third told"), strict=True):
        key = {"parent_tool_use_id": each["tool_use_id"]}
        path = f"{session}/subagents/{each['tool_use_id']}/messages"
        transcript = (await client.get(path)).json()["data"]
        assert said(transcript) == [words]
        messages_of = (await client.get(f"{session}/messages", params=key)).json()["data"]
        assert messages_of == transcript
        async with aclosing(frames(client, f"{session}/stream", **key)) as stream:
            assert [(await anext(stream)).body for _ in transcript] == transcript


@pytest.mark.requirement("skill:fork")
async def test_a_tenants_skill_is_carried_out_by_a_subagent_with_what_it_allows(
    service: Host,
) -> None:
    client = service.client
    body = scripted(bash("touch made; ls"), {"text": "audited"}, text="Audit.")
    head = "---\ncontext: fork\nallowed-tools: Bash(touch *)\n---\n"
    upload = {"name": "audit", "files": {"SKILL.md": head + body}}
    assert (await client.post("/v1/skills", json=upload)).status_code == 201
    load = {"tool": "Skill", "input": {"skill": "audit"}}
    steps = ([load, load], bash("touch other"), {"text": "fine"})
    run = await start(client, scripted(*steps), tools=["Skill", "Bash"])
    ended = await finished(client, run["id"])
    transcript = await messages(client, run["session_id"])
    forked = [m["tool_use_result"] for m in transcript if "commandName" in str(m)]
    assert [(told["status"], told["result"]) for told in forked] == [("forked", "audited")] * 2
    assert "Agent" not in told(transcript, "init")[0]["tools"]
    # What it allows counts in its own conversation alone.
    assert (ended["result"]["text"], ended["num_turns"]) == ("fine", 3)
    (denial,) = transcript[-1]["permission_denials"]
    assert denial["tool_input"] == {"command": "touch other"}
    stats = transcript[-1]["subagent_stats"]
    assert (stats["completed"], stats["by_type"]) == (2, {"general-purpose": 2})
    assert len(await subagents(client, run["session_id"])) == 2
    refused = await start(
        client, scripted(load, {"text": "no"}), tools=["Skill"], disallowed_tools=["Agent"]
    )
    await finished(client, refused["id"])
    assert "may begin no subagents" in str(await messages(client, refused["session_id"]))


@pytest.mark.requirement("loop:subagent-kinds")
async def test_a_kind_begins_with_its_skills_unless_a_rule_is_against_them(
    service: Host, messages_api: MessagesApi
) -> None:
    client = service.client
    upload = {"name": "style", "files": {"SKILL.md": "Write short sentences."}}
    assert (await client.post("/v1/skills", json=upload)).status_code == 201
    options: Json = {"agents": {"helper": {**HELPER, "skills": ["style"]}}}
    steps = (agent({"text": "told"}), {"text": "fine"})
    run = await start(client, scripted(*steps), **options)
    assert (await finished(client, run["id"]))["result"]["text"] == "fine"
    _, child, _ = messages_api.bodies()
    texts = [block["text"] for block in child["messages"][0]["content"]]
    assert [text.endswith("Write short sentences.") for text in texts].count(True) == 1
    assert texts[-1].startswith("Child.")

    beside: Json = {"agents": {"helper": {**options["agents"]["helper"], "background": True}}}
    run = await start(client, scripted(*steps), **beside)
    await finished(client, run["id"])

    async def has_begun() -> bool:
        asked = [body["messages"][0]["content"][-2:] for body in messages_api.bodies()]
        texts = [[block["text"] for block in blocks] for blocks in asked]
        begun = [skill for skill, prompt in texts if prompt.startswith("Child.")]
        return [text.endswith("Write short sentences.") for text in begun] == [True, True]

    await until(has_begun)

    denied = await start(client, scripted(*steps), **options, disallowed_tools=["Skill(style)"])
    await finished(client, denied["id"])
    transcript = await messages(client, denied["session_id"])
    assert "skill style, which this run cannot load" in str(transcript)
    assert not told(transcript, "task_started")


@pytest.mark.requirement("loop:subagent-retries")
async def test_readers_of_previews_hear_that_a_subagent_asks_again(service: Host) -> None:
    client = service.client
    session = (await client.post("/v1/sessions", json={})).json()["id"]
    watch = Watch(client, session)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(watch.read())
        await watch.is_open.wait()
        once = {"blocks": [{"text": "child told"}], "http": 500, "times": 1}
        steps = (agent(once), {"text": "fine"})
        run = await start(client, scripted(*steps), session_id=session, **OPTIONS)
        assert (await finished(client, run["id"]))["result"]["text"] == "fine"
        await watch.has_all(await messages(client, session))
        reading.cancel()
    (retry,) = [m for m in watch.messages if m["type"] == "tool_progress"]
    (child,) = await subagents(client, session)
    assert (retry["tool_name"], retry["subagent_type"]) == ("Agent", "helper")
    assert retry["tool_use_id"] == retry["parent_tool_use_id"] == child["tool_use_id"]
    assert retry["subagent_retry"].pop("retry_delay_ms") >= 0
    assert retry["subagent_retry"].pop("max_retries") > 1
    assert retry["subagent_retry"] == {
        "agent_id": child["agent_id"],
        "attempt": 1,
        "error_status": 500,
        "error_category": "server_error",
    }
    assert not told(await messages(client, session), "api_retry")


@pytest.mark.requirement("loop:subagent-cancel")
async def test_what_cannot_be_stopped_alone_is_told_why(service: Host) -> None:
    client, slow = service.client, long_sleep()
    run = await start(client, scripted(agent(bash(slow)), {"text": "end"}), **OPTIONS)
    control = f"/v1/sessions/{run['session_id']}/control"

    async def refusal(task_id: str) -> str:
        body = {"subtype": "stop_task", "task_id": task_id}
        answer = await client.post(control, json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "not_running")
        return str(answer.json()["detail"])

    await until_processes(slow, exist=True)
    (child,) = await subagents(client, run["session_id"])
    assert "The run waits for the subagent" in await refusal(child["agent_id"])
    await client.post(control, json={"subtype": "interrupt"})
    assert "has ended already" in await refusal(child["agent_id"])
    assert "has no task nobody" in await refusal("nobody")


@pytest.mark.requirement("loop:subagent-cancel")
async def test_a_cancel_ends_what_subagents_have_under_way(
    service: Host, database_url: str
) -> None:
    client, command, other = service.client, long_sleep(), long_sleep()
    deep = agent(agent(bash(command), text="Deep."))
    run = await start(client, scripted([deep, agent(bash(other))]), **OPTIONS)
    await until_processes(command, exist=True)
    await until_processes(other, exist=True)
    async with asyncio.timeout(30):
        receipt = await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", json={})
        assert receipt.json()["status"] == "finished"
        await until_processes(command, exist=False)
        await until_processes(other, exist=False)
    assert receipt.json()["stopped"]["processes"] == 2
    transcript = await messages(client, run["session_id"])
    assert [m["status"] for m in told(transcript, "task_notification")] == ["stopped"] * 3
    again = await start(client, scripted({"text": "yes"}), session_id=run["session_id"], **OPTIONS)
    assert (await finished(client, again["id"]))["result"]["text"] == "yes"
    async with opened(database_url) as database:
        await check_session(database, run["session_id"])


async def test_a_run_that_is_cancelled_before_it_began_counts_what_its_session_had(
    service: Host,
) -> None:
    client = service.client
    first = await start(client, scripted(agent({"text": "done"}), {"text": "told"}), **OPTIONS)
    session_id = first["session_id"]
    await finished(client, first["id"])
    busy = scripted(bash(long_sleep()), {"text": "never"})
    second = await start(client, busy, session_id=session_id, **OPTIONS)
    third = await start(client, scripted({"text": "never"}), session_id=session_id, **OPTIONS)
    for run in (third, second):
        await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", json={})
    results = [m for m in await messages(client, session_id) if m["type"] == "result"]
    counts = [(m["subagent_stats"]["spawned"], m["subagent_stats"]["completed"]) for m in results]
    assert counts == [(1, 1)] * 3


@pytest.mark.requirement("field:P11")
async def test_a_budget_that_is_crossed_inside_a_subagent_ends_the_run_with_its_result(
    service: Host, messages_api: MessagesApi
) -> None:
    dear = {"usage": {"input_tokens": 10_000, "output_tokens": 1000}}
    child = agent(*({"blocks": [bash(f"echo {n}")], **dear} for n in range(9)))
    steps = ([child, *(agent({"blocks": [bash("echo x")], **dear}) for _ in range(20))],)
    options = {**OPTIONS, "max_budget_usd": 0.05}
    run = await start(service.client, scripted(*steps), **options)
    async with asyncio.timeout(30):
        ended = await finished(service.client, run["id"])
    assert ended["result_subtype"] == "error_max_budget_usd"
    # Eight work side by side, each with one request on its way when the cap is reached.
    assert float(ended["cost"]["run_usd"]) <= 0.05 + 8 * 0.03
    assert 0 < float(ended["cost"]["main_thread_usd"]) < float(ended["cost"]["run_usd"])
    used = ended["model_usage"].values()
    assert sum(Decimal(each["cost_usd"]) for each in used) == Decimal(ended["cost"]["run_usd"])
    for name, total in ended["usage"].items():
        assert sum(each[name] for each in used) == total
    asked = len(messages_api.requests)
    transcript = await messages(service.client, run["session_id"])
    assert json.dumps(transcript).count("Budget limit reached") >= 20 - 8
    assert asked <= 1 + 2 * 8


@pytest.mark.requirement("loop:subagent-resume")
async def test_a_host_that_dies_leaves_a_subagent_that_another_host_goes_on_with(
    make_settings: MakeSettings, database_url: str, tmp_path: Path
) -> None:
    settings = make_settings(engine={"lease_s": 1.5, "heartbeat_s": 0.5})
    command = long_sleep()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(database_url))
        a = await stack.enter_async_context(host_process(environment(settings), tmp_path / "a.log"))
        child = agent(bash("echo once >> log"), bash(command), bash("cat log"), {"text": "told"})
        run = await start(
            a.client, scripted([child, agent({"text": "b"})], {"text": "fine"}), **OPTIONS
        )
        await until_processes(command, exist=True)
        b = await stack.enter_async_context(host(settings))
        await a.kill()
        ended = await finished(b.client, run["id"])
        assert (ended["result"]["text"], ended["attempt"]) == ("fine", 2)
        found = await subagents(b.client, run["session_id"])
        assert [s["status"] for s in found] == ["completed", "completed"]
        first = next(s for s in found if s["tool_uses"] == 3)
        path = f"/v1/sessions/{run['session_id']}/subagents/{first['tool_use_id']}/messages"
        said = json.dumps((await b.client.get(path)).json()["data"])
        assert '"content": "once"' in said
        assert "its effect is unknown" in said
        await check_session(database, run["session_id"])


@pytest.mark.requirement("loop:subagent-permissions")
async def test_a_run_whose_subagents_wait_for_people_waits_as_a_row_and_goes_on(
    service: Host, database_url: str
) -> None:
    client = service.client
    child = agent(bash("touch b.txt"), {"text": "told"})
    options = {**OPTIONS, "allowed_tools": [], "actions": {"permissions": "ask", "hold_seconds": 0}}
    command = {"tool": "Write", "input": {"file_path": "/workspace/a.txt", "content": "a"}}
    steps = ([child, agent(command, {"text": "told"})], {"text": "fine"})
    run = await start(client, scripted(*steps), **options)

    async def waits() -> bool:
        found = (await client.get(f"/v1/runs/{run['id']}")).json()
        return bool(found["status"] == "requires_action")

    await until(waits)
    path = f"/v1/sessions/{run['session_id']}/actions"
    pending = (await client.get(path, params={"status": "pending"})).json()["data"]
    assert sorted(action["permission"]["tool_name"] for action in pending) == ["Bash", "Write"]
    for action in pending:
        await client.post(f"/v1/actions/{action['id']}/resolve", json={"behavior": "allow"})
    ended = await finished(client, run["id"])
    assert ended["result"]["text"] == "fine"
    assert [s["status"] for s in await subagents(client, run["session_id"])] == ["completed"] * 2
    async with opened(database_url) as database:
        await check_session(database, run["session_id"])


async def test_a_subagent_that_a_fork_has_cut_off_is_stopped_there(service: Host) -> None:
    client, command = service.client, long_sleep()
    run = await start(client, scripted(agent(bash(command), {"text": "never"})), **OPTIONS)
    await until_processes(command, exist=True)
    (begun,) = told(await messages(client, run["session_id"]), "task_started")
    path = f"/v1/sessions/{run['session_id']}/fork"
    copy = (await client.post(path, json={"at_message": begun["uuid"]})).json()["id"]

    async def statuses(session_id: str) -> list[str]:
        return [found["status"] for found in await subagents(client, session_id)]

    assert (await statuses(run["session_id"]), await statuses(copy)) == (["running"], ["stopped"])
    await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", json={})
    assert await statuses(run["session_id"]) == ["stopped"]
    await until_processes(command, exist=False)
    own = await start(client, scripted({"text": "never"}), session_id=copy, **OPTIONS)
    await until_processes(command, exist=True)  # its call is made anew, by another one
    assert await statuses(copy) == ["stopped", "running"]
    await client.post(f"/v1/runs/{own['id']}/cancel?wait=10", json={})
    assert await statuses(copy) == ["stopped", "stopped"]
