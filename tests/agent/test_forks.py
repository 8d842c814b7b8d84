"""Skills that a subagent carries out: `context: fork`."""

from typing import Any

import pytest

from app.agent.effects import AgentLimits
from app.agent.tool_effects import Fire
from app.domain.messages import Message, TaskStartedMessage, UserMessage
from app.domain.permissions import Scene
from app.domain.tools import Fork, ToolCall, ToolMemory, ToolResult, ToolSpec
from app.permissions.decision import Allow, Verdict
from tests.agent.threads import HELPER, agent, played, threads
from tests.fakes.effects import (
    CHANGE,
    LOOK,
    Answer,
    Journal,
    ScriptedToolbox,
    call,
    kinds,
    response,
    text,
)

SKILL = ToolSpec("Skill", "s", {"type": "object"}, read_only=True, may_fork=True)
RULES = {"review": ("Change",)}
DONE = response(text("done"))
SCRIPTS: dict[str, list[Answer]] = {
    "main": [response(call("S", "Skill", skill="review"), call("l")), DONE],
    "Review it.": [response(call("x", "Change"), call("l2")), response(text("all is well"))],
}
GENERAL = {"general-purpose": HELPER, "helper": HELPER.model_copy(update={"prompt": "H."})}


async def _fork(call: ToolCall, _: ToolMemory) -> ToolResult:
    if call.name != "Skill":
        return ToolResult("looked")
    fork = Fork("review", "Review it.", call.input.get("kind"), RULES)
    return ToolResult("", fork=fork)


def skills() -> ScriptedToolbox:
    return ScriptedToolbox((LOOK, CHANGE, SKILL), run=_fork)


def result_of(journal: Journal, call_id: str) -> UserMessage:
    def is_it(message: Message) -> bool:
        content: Any = message.message.content if isinstance(message, UserMessage) else ()
        return any(getattr(block, "tool_use_id", None) == call_id for block in content)

    (found,) = [m for m in journal.messages() if is_it(m)]
    assert isinstance(found, UserMessage)
    return found


class Scenes:
    """Allows all calls, and notes what was approved for each."""

    def __init__(self) -> None:
        self.granted: dict[str, tuple[str, ...]] = {}

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, _fire: Fire) -> Verdict:
        assert spec.name == call.name
        self.granted[call.id] = tuple(scene.granted)
        return Allow(None)


@pytest.mark.requirement("skill:fork")
async def test_its_text_is_the_task_of_a_subagent_and_what_comes_of_it_the_result() -> None:
    tools, gate = skills(), Scenes()
    world, model = threads(SCRIPTS, tools=tools, definitions=GENERAL, gate=gate)
    journal, _ = await played(world)
    assert [asked for asked, _ in model.requests] == ["main", *["Review it."] * 2, "main"]
    told = result_of(journal, "S")
    assert "  all is well" in str(told.message.content)
    (started,) = [m for m in journal.messages() if isinstance(m, TaskStartedMessage)]
    assert told.tool_use_result == {
        "success": True,
        "commandName": "review",
        "status": "forked",
        "agentId": started.task_id,
        "result": "all is well",
    }
    assert (started.tool_use_id, started.subagent_type) == ("S", "general-purpose")
    assert started.description == "Skill review"
    assert gate.granted == {"S": (), "x": ("Change",), "l2": ("Change",), "l": ()}
    # It may change what its neighbours read, so it ends before they begin.
    assert tools.log.index(("end", "x")) < tools.log.index(("start", "l"))


@pytest.mark.requirement("skill:fork")
async def test_a_host_that_takes_over_goes_on_with_it() -> None:
    journal, stops = await played(threads(SCRIPTS, tools=skills(), definitions=GENERAL)[0])
    for number, stop in enumerate(stops):
        tools, prefix = skills(), f"again{number}"
        had_begun = any(isinstance(m, TaskStartedMessage) for m in stop.messages())
        world, _ = threads(SCRIPTS, tools=tools, definitions=GENERAL, prefix=prefix)
        again, _ = await played(world, journal=stop)
        assert kinds(again.messages()) == kinds(journal.messages())
        assert result_of(again, "S").tool_use_result["result"] == "all is well"
        assert not (had_begun and ("start", "S") in tools.log)


@pytest.mark.requirement("skill:fork")
@pytest.mark.parametrize(
    ("given", "limits", "said"),
    [
        ({"kind": "nobody"}, AgentLimits(), "There is no agent of the type 'nobody'"),
        ({}, AgentLimits(a_run=0), "has begun 0 subagents"),
    ],
)
async def test_one_that_cannot_be_begun_says_why(
    given: dict[str, str], limits: AgentLimits, said: str
) -> None:
    asked = response(call("S", "Skill", skill="review", **given))
    scripts: dict[str, list[Answer]] = {**SCRIPTS, "main": [asked, DONE]}
    world, _ = threads(scripts, tools=skills(), definitions=GENERAL, limits=limits)
    journal, _ = await played(world)
    assert journal.results()["S"].is_error
    assert said in str(journal.results()["S"].content)


@pytest.mark.requirement("skill:fork")
async def test_it_says_which_kind_and_a_subagent_may_call_it_too() -> None:
    scripts: dict[str, list[Answer]] = {
        **SCRIPTS,
        "main": [response(agent("A", "child")), DONE],
        "child": [response(call("S", "Skill", skill="review", kind="helper")), DONE],
    }
    world, model = threads(scripts, tools=skills(), definitions=GENERAL)
    journal, _ = await played(world)
    starts = [m for m in journal.messages() if isinstance(m, TaskStartedMessage)]
    assert [(m.subagent_type, m.spawn_depth) for m in starts] == [("helper", 1), ("helper", 2)]
    forked = next(request for asked, request in model.requests if asked == "Review it.")
    assert forked.system[0].startswith("H.")
    assert "all is well" in str(journal.results()["S"].content)
