"""Subagents: what they see, what comes of them, what they cost, and how they go on after a host."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest

from app.agent.broken_off import interrupted
from app.agent.effects import AgentLimits
from app.agent.launch import BUDGET_TEXT
from app.agent.loop import run_agent
from app.agent.lost_request import lost_request
from app.agent.tool_effects import Fire, NoDesk
from app.domain.agents import AgentDefinition
from app.domain.blocks import TextBlock
from app.domain.briefing import Briefing
from app.domain.hook_outcome import HookOutcome, Said
from app.domain.hooks import PermissionRequest, SubagentStart
from app.domain.messages import (
    AssistantMessage,
    Message,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UserMessage,
)
from app.domain.notices import InformationalMessage
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolSpec
from app.domain.usage import Usage
from app.errors import ModelRejected
from app.permissions.decision import Allow, Verdict
from tests.agent.threads import HELPER, agent, played, threads
from tests.fakes.effects import (
    MODEL,
    DenyThese,
    Journal,
    ScriptedHooks,
    ScriptedToolbox,
    Stalled,
    call,
    kinds,
    options_gate,
    response,
    run_info,
    text,
)

DONE = response(text("done"))
CHILD = {
    "main": [response(agent("A", "child")), DONE],
    "child": [response(text("let me look"), call("x", "Change")), response(text("found it"))],
}
DEEP = {
    "main": [response(agent("A", "a"), agent("B", "b")), DONE],
    "a": [response(call("ax"), agent("AA", "aa")), response(text("a is done"))],
    "aa": [response(call("aax", "Change")), response(text("aa is done"))],
    "b": [response(call("bx", "Change")), response(text("b is done"))],
}


def thread_of(message: Message) -> str | None:
    return getattr(message, "parent_tool_use_id", None)


def shown(journal: Journal) -> list[Message]:
    """What readers of the session see."""
    return [
        entry.message for batch in journal.batches for entry in batch.entries if not entry.is_aside
    ]


def answer(journal: Journal, call_id: str) -> str:
    content: Any = journal.results()[call_id].content
    return content if isinstance(content, str) else str(content[0]["text"])


@pytest.mark.requirement("loop:subagent")
async def test_a_subagent_sees_its_prompt_and_only_its_last_words_return() -> None:
    world, model = threads(CHILD)
    journal, _ = await played(world)
    assert [asked for asked, _ in model.requests] == ["main", "child", "child", "main"]
    (_, first), (_, last) = model.requests[1], model.requests[3]
    assert [message.role for message in first.messages] == ["user"]
    assert first.system[0].startswith("You are HELPER.")
    [told] = last.messages[-1].blocks
    assert b"  found it" in told
    assert b"let me look" not in told
    structured = next(m for m in journal.messages() if getattr(m, "tool_use_result", None))
    assert isinstance(structured, UserMessage)
    assert structured.tool_use_result["totalToolUseCount"] == 1
    assert structured.tool_use_result["content"] == [{"type": "text", "text": "found it"}]


@pytest.mark.requirement("loop:subagent-messages")
async def test_its_calls_are_shown_with_the_call_that_began_it_and_its_words_are_not() -> None:
    world, _ = threads(CHILD)
    journal, _ = await played(world)
    assert kinds(shown(journal)) == [
        *("init", "prompt", "tool_use", "task_started", "note", "task_progress", "tool_use"),
        *("tool_result", "task_updated", "task_notification", "tool_result", "text", "success"),
    ]
    of_child = [m for m in shown(journal) if thread_of(m) == "A"]
    assert [getattr(m, "subagent_type", None) for m in of_child] == ["helper"] * 3
    progress = next(m for m in shown(journal) if isinstance(m, TaskProgressMessage))
    assert (progress.last_tool_name, progress.usage["total_tokens"]) == ("Change", 110)
    ended = next(m for m in shown(journal) if isinstance(m, TaskNotificationMessage))
    assert (ended.status, ended.summary) == ("completed", "found it")


@pytest.mark.requirement("loop:forward-subagent-text")
async def test_forwarded_text_is_shown() -> None:
    world, _ = threads(CHILD)
    journal, _ = await played(world, run_info(forward_subagent_text=True))
    said = [
        block.text
        for m in shown(journal)
        if isinstance(m, AssistantMessage) and thread_of(m) == "A"
        for block in m.message.content
        if isinstance(block, TextBlock)
    ]
    assert said == ["let me look", "found it"]


@pytest.mark.requirement("loop:subagent-parallel")
async def test_calls_of_one_response_run_side_by_side_and_may_be_nested() -> None:
    tools = ScriptedToolbox(held={"bx", "aax"})
    world, model = threads(DEEP, tools=tools)
    playing = asyncio.create_task(played(world))
    await tools.until("start", "bx")
    await tools.until("start", "aax")
    tools.let("bx")
    tools.let("aax")
    journal, _ = await playing
    assert "b is done" in answer(journal, "B")
    assert "a is done" in answer(journal, "A")
    assert "aa is done" in answer(journal, "AA")
    starts = [m for m in journal.messages() if isinstance(m, TaskStartedMessage)]
    assert sorted((m.tool_use_id, m.spawn_depth) for m in starts) == [
        ("A", 1),
        ("AA", 2),
        ("B", 1),
    ]
    nested = next(m for m in starts if m.tool_use_id == "AA")
    assert nested.parent_task_id == next(m for m in starts if m.tool_use_id == "A").task_id
    assert len(model.requests) == 8


@pytest.mark.requirement("loop:subagent-cost")
async def test_usage_is_the_main_threads_and_cost_is_the_trees() -> None:
    world, _ = threads(DEEP)
    journal, _ = await played(world)
    ended = journal.result()
    assert (ended.num_turns, ended.usage.input_tokens) == (2, 200)
    assert ended.modelUsage[MODEL].inputTokens == 800
    assert ended.total_cost_usd == float(Decimal(880) / 100_000)
    rows = [(row.thread, row.purpose) for _, row in journal.ledger]
    assert sorted(rows, key=str) == [
        *[("A", "subagent")] * 2,
        *[("AA", "subagent")] * 2,
        *[("B", "subagent")] * 2,
        *[(None, "main")] * 2,
    ]


@pytest.mark.requirement("loop:subagent-resume")
async def test_a_run_taken_over_at_any_batch_goes_on_with_its_subagents() -> None:
    journal, stops = await played(threads(DEEP)[0])
    for number, stop in enumerate(stops):
        tools = ScriptedToolbox()
        world, model = threads(DEEP, tools=tools, prefix=f"again{number}")
        again, _ = await played(world, journal=stop)
        assert sorted(again.results()) == sorted(journal.results())
        assert "a is done" in answer(again, "A")
        assert "aa is done" in answer(again, "AA")
        begun = [m for m in again.messages() if isinstance(m, TaskStartedMessage)]
        ended = [m for m in again.messages() if isinstance(m, TaskNotificationMessage)]
        assert len(begun) == len(ended) == len({m.tool_use_id for m in begun}) == 3
        assert again.result().subtype == "success"
        for _, request in model.requests:
            assert request.messages[-1].role == "user"


@pytest.mark.requirement("loop:subagent-budget")
async def test_the_budget_ends_a_subagent_and_then_the_run() -> None:
    dear = Usage(input_tokens=3000)
    scripts = {
        "main": [response(agent("A", "child")), DONE],
        "child": [
            response(call("x", "Change"), usage=dear),
            response(call("y", "Change"), usage=dear),
            DONE,
        ],
    }
    world, model = threads(scripts)
    journal, _ = await played(world, run_info(max_budget_usd="0.05"))
    assert journal.result().subtype == "error_max_budget_usd"
    assert len(model.requests) == 3
    assert answer(journal, "A") == BUDGET_TEXT
    assert "budget" in answer(journal, "y")
    ended = next(m for m in journal.messages() if isinstance(m, TaskNotificationMessage))
    assert ended.status == "stopped"


@pytest.mark.requirement("loop:subagent-budget")
async def test_subagents_that_wait_are_refused_once_the_budget_is_spent() -> None:
    dear = Usage(input_tokens=6000)
    scripts = {
        "main": [response(agent("A", "child"), agent("B", "child"), agent("C", "child")), DONE],
        "child": [response(text("dear"), usage=dear)],
    }
    world, model = threads(scripts, limits=AgentLimits(at_once=1))
    journal, _ = await played(world, run_info(max_budget_usd="0.05"))
    assert [asked for asked, _ in model.requests] == ["main", "child"]
    assert "dear" in answer(journal, "A")
    assert (answer(journal, "B"), answer(journal, "C")) == (BUDGET_TEXT, BUDGET_TEXT)
    assert journal.result().subtype == "error_max_budget_usd"


async def test_threads_side_by_side_know_what_the_others_spent() -> None:
    dear = Usage(input_tokens=3000)
    work = [response(call(f"{name}{n}", "Change"), usage=dear) for name in "ab" for n in range(3)]
    scripts = {
        "main": [response(agent("A", "a"), agent("B", "b")), DONE],
        "a": work[:3],
        "b": work[3:],
    }
    world, _ = threads(scripts)
    journal, _ = await played(world, run_info(max_budget_usd="0.05"))
    # The cap, and at the most one request of each thread more.
    assert journal.result().total_cost_usd <= 0.05 + 2 * 0.03
    assert journal.result().subtype == "error_max_budget_usd"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "nobody"}, "There are: helper"),
        ({"model": "gpt"}, "not available"),
        ({"model": "cheap"}, "No price is known"),
        ({"asked": " \n"}, "`prompt` is blank"),
    ],
)
@pytest.mark.requirement("loop:subagent-unknown")
async def test_a_call_that_begins_nothing_says_why(given: dict[str, Any], said: str) -> None:
    scripts = {"main": [response(agent("A", **{"asked": "child", **given})), DONE]}
    world, _ = threads(scripts, models={"cheap": "unpriced-model"})
    journal, _ = await played(world, run_info(max_budget_usd="1"))
    assert journal.results()["A"].is_error
    assert said in answer(journal, "A")
    assert not [m for m in journal.messages() if isinstance(m, TaskStartedMessage)]


@pytest.mark.requirement("loop:subagent-depth")
async def test_nesting_ends_at_a_depth_and_a_run_has_a_bound() -> None:
    world, model = threads(DEEP, limits=AgentLimits(depth=1))
    journal, _ = await played(world)
    tools = [b"".join(request.tools) for asked, request in model.requests if asked == "a"]
    assert all(b'"Agent"' not in offered for offered in tools)
    assert "No such tool" in answer(journal, "AA")
    world, _ = threads(DEEP, limits=AgentLimits(a_run=1))
    journal, _ = await played(world)
    assert "has begun 1 subagents" in answer(journal, "B") + answer(journal, "A")


async def test_parents_that_wait_do_not_starve_their_children() -> None:
    world, _ = threads(DEEP, limits=AgentLimits(at_once=1))
    journal, _ = await played(world)
    assert "aa is done" in answer(journal, "AA")
    assert "b is done" in answer(journal, "B")


@pytest.mark.requirement("loop:subagent-ends")
async def test_how_a_subagent_ends_is_told() -> None:
    def scripts(*child: Any) -> dict[str, Any]:
        return {"main": [response(agent("A", "child")), DONE], "child": [*child]}

    short = {"helper": AgentDefinition(description="helps", prompt="p", max_turns=1)}
    world, _ = threads(scripts(response(text("so far"), call("x"))), definitions=short)
    journal, _ = await played(world)
    assert not journal.results()["A"].is_error
    assert "limit of 1 rounds" in answer(journal, "A")
    assert "so far" in answer(journal, "A")

    broken = ModelRejected("no", category="unknown", status=400)
    journal, _ = await played(threads(scripts(broken))[0])
    assert journal.results()["A"].is_error
    assert answer(journal, "A").startswith("Agent terminated early due to an API error: ")
    updated = next(m for m in journal.messages() if isinstance(m, TaskUpdatedMessage))
    assert updated.patch["status"] == "failed"
    assert journal.result().subtype == "success"
    assert not [m for m in shown(journal) if getattr(m, "error", None)]

    journal, _ = await played(threads(scripts(response(text(" "))))[0])
    assert answer(journal, "A") == "No assistant messages found"


@pytest.mark.requirement("loop:subagent-permissions")
async def test_it_has_no_more_than_its_parent() -> None:
    kind = AgentDefinition(
        description="d",
        prompt="p",
        tools=["Change", "Edit", "Nope"],
        disallowed_tools=["Edit"],
        permission_mode="bypassPermissions",
        model="inherit",
        effort="low",
    )
    run = run_info(allowed_tools=[], effort="high")
    world, model = threads(CHILD, definitions={"helper": kind}, gate=options_gate(run.options))
    journal, _ = await played(world, run)
    (_, request) = model.requests[1]
    assert [orjson.loads(tool)["name"] for tool in request.tools] == ["Change"]
    assert request.model == MODEL
    assert journal.results()["x"].is_error
    assert [denial["tool_use_id"] for denial in journal.result().permission_denials] == ["x"]
    denied = next(m for m in shown(journal) if kinds([m]) == ["permission_denied"])
    assert getattr(denied, "agent_id", None)


async def test_a_stricter_mode_of_its_own_counts() -> None:
    kind = HELPER.model_copy(update={"permission_mode": "dontAsk"})
    run = run_info(permission_mode="bypassPermissions")
    world, _ = threads(CHILD, definitions={"helper": kind}, gate=options_gate(run.options))
    journal, _ = await played(world, run)
    assert journal.results()["x"].is_error


async def test_denials_inside_are_listed_once() -> None:
    world, _ = threads(DEEP, gate=DenyThese(("Change",)))
    journal, _ = await played(world)
    ids = sorted(denial["tool_use_id"] for denial in journal.result().permission_denials)
    assert ids == ["aax", "bx"]


@pytest.mark.requirement("loop:subagent-cancel")
async def test_a_cancel_reaches_every_thread() -> None:
    stalled, b_is_done = Stalled(), asyncio.Event()
    world, _ = threads({**DEEP, "aa": [stalled]}, tools=ScriptedToolbox())
    journal, run = Journal(), run_info()
    state = journal.state(run)
    advances = run_agent(state, world)

    async def drive() -> None:
        nonlocal state
        async for advance in advances:
            journal.store(run, advance)
            state = advance.state
            if "B" in journal.results():
                b_is_done.set()

    driving = asyncio.create_task(drive())
    async with asyncio.timeout(30):
        await stalled.began.wait()
        await b_is_done.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    async with aclosing(advances):
        pass
    journal.store(run, interrupted(state, world))
    ended = journal.messages()[-7:]
    assert kinds(ended) == [
        *("tool_result", "task_updated", "task_notification", "task_updated", "task_notification"),
        *("note", "error_during_execution"),
    ]
    assert {m.status for m in ended if isinstance(m, TaskNotificationMessage)} == {"stopped"}
    again = journal.state(run_info("run_2"))
    assert not again.threads


async def test_it_knows_the_place_and_keeps_it_through_a_takeover() -> None:
    world, model = threads(CHILD)
    world.place.briefing = Briefing("Working directory: /workspace")  # type: ignore[attr-defined]
    await played(world)
    assert b"Working directory" in model.requests[1][1].messages[0].blocks[0]


@pytest.mark.requirement("loop:subagent-cost")
async def test_requests_of_subagents_that_a_lost_host_had_on_the_way_are_counted() -> None:
    _, stops = await played(threads(DEEP)[0])
    both = next(stop for stop in stops if len(stop.state(run_info()).threads) == 2)
    world, _ = threads(DEEP)
    lost = lost_request(both.state(run_info()), world)
    assert lost is not None
    assert {(row.thread, row.purpose, row.estimated) for row in lost.ledger} == {
        ("A", "subagent", True),
        ("B", "subagent", True),
    }


@pytest.mark.requirement("hooks:subagents")
async def test_hooks_are_asked_of_its_begin_and_its_end_and_may_send_it_back() -> None:
    scripts = {
        "main": [response(agent("A", "child")), DONE],
        "child": [response(text("too soon")), response(text("found it"))],
    }
    names = ("PreToolUse", "SubagentStart", "SubagentStop", "Stop")
    hooks = ScriptedHooks(
        {
            "SubagentStart": [HookOutcome(contexts=("Mind the gap.",))],
            "SubagentStop": [HookOutcome(block="Look again.")],
        }
    )
    world, model = threads(scripts)
    journal, _ = await played(replace(world, hooks=hooks), run_info(hooks=names))
    assert [event.name for event in hooks.asked] == [
        *("PreToolUse", "SubagentStart", "SubagentStop", "SubagentStop", "Stop"),
    ]
    start = hooks.asked[1]
    assert isinstance(start, SubagentStart)
    assert start.agent_type == "helper"
    assert [around.agent_type for around in hooks.around] == [None, None, *["helper"] * 2, None]
    first, second = (request for asked, request in model.requests if asked == "child")
    assert b"Mind the gap." in b"".join(first.messages[0].blocks)
    assert b"Look again." in b"".join(second.messages[-1].blocks)
    assert "found it" in answer(journal, "A")
    assert "too soon" not in answer(journal, "A")


@pytest.mark.requirement("hooks:permission-request")
async def test_hooks_beside_a_question_are_told_whose_call_it_is_and_heard_before_it_runs() -> None:
    class Asking:
        async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
            del spec, scene
            await fire(PermissionRequest(call.id, call.name, call.input, ()))
            heard.append(tools.started())
            return Allow(None)

    heard: list[list[str]] = []
    said = HookOutcome(notes=(Said("look"),))
    hooks = ScriptedHooks({"PermissionRequest": [said, said]})
    tools = ScriptedToolbox()
    world, _ = threads(CHILD, gate=Asking(), tools=tools)
    journal, _ = await played(replace(world, hooks=hooks), run_info(hooks=("PermissionRequest",)))
    assert [around.agent_type for around in hooks.around] == [None, "helper"]
    assert heard == [[], []]
    told = [m for m in journal.messages() if isinstance(m, InformationalMessage)]
    assert [m.content.partition(" ")[2] for m in told] == ["says: look"] * 2
    shown_at = [m.content.partition(":")[2].split()[0] for m in told]
    assert shown_at == ["Agent", "Change"]


@pytest.mark.requirement("loop:denied")
async def test_a_denied_call_of_agent_is_listed_under_its_older_name() -> None:
    world, _ = threads({"main": [response(agent("A", "child")), DONE]}, gate=DenyThese(("Agent",)))
    journal, _ = await played(world)
    assert [each["tool_name"] for each in journal.result().permission_denials] == ["Task"]


async def test_what_keeps_a_run_from_waiting_for_people_is_what_can_move() -> None:
    class Counting(NoDesk):
        def __init__(self) -> None:
            self.said: list[int] = []

        def expects(self, calls: int) -> None:
            self.said.append(calls)

    scripts = {
        "main": [response(agent("A", "a"), agent("B", "b")), DONE],
        "a": [response(call("a1"), call("a2"), call("a3")), DONE],
        "b": [DONE],
    }
    tools, desk = ScriptedToolbox(held={"a1", "a2", "a3"}), Counting()
    world, _ = threads(scripts, tools=tools, limits=AgentLimits(at_once=1))
    playing = asyncio.create_task(played(replace(world, desk=desk)))
    for call_id in ("a1", "a2", "a3"):
        await tools.until("start", call_id)
    assert desk.said[-1] == 3  # its calls; B has no place yet
    for call_id in ("a1", "a2", "a3"):
        tools.let(call_id)
    await playing
    assert desk.said[-1] == 0
