"""What a definition says of a subagent, and what the subagent then has."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.agent.effects import AgentLimits
from app.domain.agents import AgentDefinition
from app.domain.tools import Fork, ToolCall, ToolFacts, ToolMemory, ToolResult, ToolSource, ToolSpec
from tests.agent.threads import agent, played, threads
from tests.fakes.effects import (
    CHANGE,
    LOOK,
    MODEL,
    Answer,
    ReadingErrands,
    ScriptedToolbox,
    call,
    response,
    run_info,
    text,
)

DONE = response(text("done"))
SKILL = ToolSpec("Skill", "s", {"type": "object"}, read_only=True, may_fork=True)


def server_tool(server: str, name: str) -> ToolSpec:
    source = ToolSource(server, name)
    return ToolSpec(f"mcp__{server}__{name}", name, {"type": "object"}, source=source)


OFFERED = (
    *(LOOK, CHANGE, SKILL, server_tool("client", "lamp")),
    *(server_tool("bugs", "list"), server_tool("mail", "list"), server_tool("mail", "send")),
)


async def _skills(asked: ToolCall, _: ToolMemory) -> ToolResult:
    name = asked.input.get("skill")
    if name == "gone":
        return ToolResult("There is no skill gone.", is_error=True)
    if name == "audit":
        return ToolResult("", fork=Fork("audit", "How to audit.", None, {"audit": ("Change",)}))
    facts = ToolFacts(skills={"review": "1"}, granted={"review": ("Look",)})
    return ToolResult("Launching", facts=facts, notes=("How to review.",))


async def begun(
    *, given: dict[str, Any] | None = None, limits: AgentLimits | None = None, **says: Any
) -> tuple[Any, Any]:
    """Have a subagent of a definition begun; give its first request, if it came to one, and the journal."""
    kind = AgentDefinition.model_validate({"description": "d", "prompt": "p", **says})
    scripts: dict[str, list[Answer]] = {
        "main": [response(agent("A", "child", **(given or {}))), DONE],
        "child": [*(response(call(f"c{n}")) for n in range(4)), DONE],
    }
    tools = ScriptedToolbox(OFFERED, run=_skills)
    models = {"cheap": "claude-haiku-4-5"}
    world, model = threads(
        scripts, tools=tools, definitions={"helper": kind}, limits=limits, models=models
    )
    world = replace(world, errands=ReadingErrands(tools))
    servers = {
        name: {"type": "http", "url": f"https://{name}.example.com"} for name in ("bugs", "mail")
    }
    run = run_info(effort="high", permission_mode="acceptEdits", mcp_servers=servers)
    journal, _ = await played(world, run)
    return next((request for asked, request in model.requests if asked == "child"), None), journal


def names(request: Any) -> list[str]:
    return [orjson.loads(tool)["name"] for tool in request.tools]


@pytest.mark.requirement("loop:subagent-kinds")
async def test_the_model_is_the_calls_else_the_kinds_else_the_parents() -> None:
    request, _ = await begun()
    assert request.model == MODEL
    request, _ = await begun(model="cheap")
    assert request.model == "claude-haiku-4-5"
    request, _ = await begun(model="inherit", given={"model": "cheap"})
    assert request.model == "claude-haiku-4-5"
    request, _ = await begun(model="cheap", given={"model": "inherit"})
    assert request.model == MODEL


@pytest.mark.requirement("loop:subagent-kinds")
async def test_so_is_the_effort() -> None:
    assert (await begun())[0].effort == "high"
    assert (await begun(effort="low"))[0].effort == "low"
    assert (await begun(effort="low", given={"effort": "max"}))[0].effort == "max"


@pytest.mark.requirement("loop:subagent-kinds")
@pytest.mark.parametrize(("says", "rounds"), [({}, 3), ({"maxTurns": 2}, 2), ({"maxTurns": 99}, 3)])
async def test_max_turns_is_the_kinds_within_the_operators(
    says: dict[str, Any], rounds: int
) -> None:
    _, journal = await begun(**says, limits=AgentLimits(max_turns=3))
    assert f"limit of {rounds} rounds" in str(journal.results()["A"].content)
    assert journal.result().subagent_stats.completed == 1


@pytest.mark.requirement("loop:subagent-kinds")
@pytest.mark.parametrize(
    ("says", "has"),
    [
        ({}, [spec.name for spec in OFFERED]),
        ({"mcpServers": []}, ["Look", "Change", "Skill", "mcp__client__lamp"]),
        ({"mcpServers": ["bugs"], "tools": ["Look"]}, ["Look", "mcp__bugs__list"]),
        (
            {"mcpServers": ["bugs"], "tools": ["mcp__mail__send"]},
            ["mcp__bugs__list", "mcp__mail__send"],
        ),
        (
            {"mcpServers": ["mail"], "tools": [], "disallowedTools": ["mcp__mail__send"]},
            ["mcp__mail__list"],
        ),
        ({"tools": ["Look", "mcp__bugs"]}, ["Look", "mcp__bugs__list"]),
        ({"tools": ["mcp__mail__*"]}, ["mcp__mail__list", "mcp__mail__send"]),
        (
            {"disallowedTools": ["mcp__mail", "Skill"]},
            ["Look", "Change", "mcp__client__lamp", "mcp__bugs__list"],
        ),
        ({"disallowedTools": ["mcp__*"]}, ["Look", "Change", "Skill"]),
    ],
)
async def test_servers_that_it_names_bring_their_tools(
    says: dict[str, Any], has: list[str]
) -> None:
    request, _ = await begun(**says)
    assert [name for name in names(request) if name != "Agent"] == has


@pytest.mark.requirement("loop:subagent-kinds")
async def test_a_server_that_the_run_has_not_begins_nothing() -> None:
    request, journal = await begun(mcpServers=["bugs", "news"])
    assert request is None
    assert "the MCP server news" in str(journal.results()["A"].content)


@pytest.mark.requirement("loop:subagent-kinds")
async def test_its_skills_stand_before_its_task_and_bring_what_they_allow() -> None:
    request, journal = await begun(skills=["review", "audit"])
    blocks = [orjson.loads(block)["text"] for block in request.messages[0].blocks]
    assert blocks == ["How to review.", "How to audit.", "child"]
    state = journal.state(run_info())
    assert not state.memory.skills  # they are not the main conversation's
    (launched,) = [facts["launched"] for _, _, facts in journal.rows if "launched" in (facts or {})]
    granted = [skill["tool"].get("granted") for skill in launched["loaded"]]
    assert granted == [{"review": ["Look"]}, {"audit": ["Change"]}]


@pytest.mark.requirement("loop:subagent-kinds")
async def test_a_skill_that_cannot_be_loaded_begins_nothing() -> None:
    request, journal = await begun(skills=["gone"])
    assert request is None
    assert journal.results()["A"].is_error
    assert "the skill gone" in str(journal.results()["A"].content)
