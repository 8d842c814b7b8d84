"""Commands: those of a workspace that become prompts, and those that the service carries out."""

from dataclasses import dataclass, field, replace

import orjson
import pytest

from app.agent.command import LocalCommand, local_command
from app.agent.effects import NoServers
from app.agent.expansion import MOST_MENTIONS
from app.agent.tool_effects import Fire
from app.domain.briefing import Briefing, News
from app.domain.messages import ConversationReset, Prompt, UserMessage
from app.domain.permissions import Scene
from app.domain.skills import SkillNote
from app.domain.tools import FileSeen, ToolCall, ToolFacts, ToolMemory, ToolResult, ToolSpec
from app.domain.work_items import WorkItem
from app.permissions.decision import Allow, Verdict
from tests.fakes.effects import (
    Journal,
    ScriptedModel,
    ScriptedToolbox,
    ToldPlace,
    call,
    effects,
    kinds,
    play,
    prompt,
    response,
    run_info,
    text,
)


@dataclass
class RecordingGate:
    """Allows all, and remembers what it was told of skills."""

    granted: list[tuple[str, ...]] = field(default_factory=list)

    async def check(self, call: ToolCall, spec: ToolSpec, scene: Scene, fire: Fire) -> Verdict:
        del call, spec, fire
        self.granted.append(scene.granted)
        return Allow(None)


DONE = response(text("done"))
SHIP = SkillNote("docs:ship", "Ship it", is_command=True)
PLACE = ToldPlace(
    Briefing("Date: Monday", skills=(SHIP,)), commands={"docs:ship": "Ship $ARGUMENTS"}
)


def said(model: ScriptedModel, number: int = -1) -> list[str]:
    """The texts of the last message of a request."""
    blocks = map(orjson.loads, model.requests[number].messages[-1].blocks)
    return [block.get("text", block["type"]) for block in blocks]


async def asked(
    model: ScriptedModel,
    words: str,
    journal: Journal | None = None,
    *,
    tools: ScriptedToolbox | None = None,
    place: ToldPlace = PLACE,
) -> Journal:
    """Play a run whose prompt is `words`."""
    journal = journal or Journal()
    number = len({run for run, *_ in journal.rows}) + 1
    world = effects(model, prompts=[prompt(words)], place=place, tools=tools)
    return await play(world, run_info(f"run_{number}"), journal)


@pytest.mark.requirement("command:local")
@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("/clear", LocalCommand("clear")),
        ("  /cost \n", LocalCommand("cost")),
        ("/context", LocalCommand("context")),
        ("/compact", LocalCommand("compact")),
        ("/compact keep\nnames ", LocalCommand("compact", "keep\nnames")),
        ("/cost of living in Oslo?", None),
        ("/clearance", None),
        ("/Clear", None),
        ("see /clear", None),
        ("", None),
    ],
)
def test_a_command_of_the_service_is_a_prompt_of_its_own(
    words: str, command: LocalCommand | None
) -> None:
    assert local_command([prompt(words)]) == command
    assert local_command([prompt([{"type": "text", "text": words}])]) == command
    assert local_command([prompt(words), prompt("and more")]) is None


@pytest.mark.requirement("command:expanded")
async def test_a_command_of_the_workspace_is_given_to_the_model_as_its_text() -> None:
    model = ScriptedModel([DONE])
    journal = await asked(model, "/docs:ship  it all ")
    *_, named, body = said(model)
    assert body == "Ship it all"
    assert "<command-name>/docs:ship</command-name>" in named
    assert "<command-args>it all</command-args>" in named
    shown = [m.message.content for m in journal.messages() if isinstance(m, UserMessage)]
    assert shown == ["/docs:ship  it all "]


@pytest.mark.requirement("skill:grants")
async def test_what_a_users_skill_allows_is_known_to_every_host_until_a_clear() -> None:
    model = ScriptedModel([DONE, response(call("a")), DONE])
    rules = {"ship": ("Bash(make *)", "Read")}
    place = replace(PLACE, granted=rules)
    journal = await asked(model, "/docs:ship it", place=place)
    gate = RecordingGate()
    world = replace(effects(model, prompts=[prompt("and now?")], place=PLACE), gate=gate)
    await play(world, run_info("run_2"), journal)
    assert journal.state(run_info("run_3")).memory.granted == rules
    assert gate.granted == [rules["ship"]]
    await asked(model, "/clear", journal)
    assert journal.state(run_info("run_4")).memory.granted == {}


@pytest.mark.requirement("command:unknown")
@pytest.mark.parametrize(
    ("words", "is_command"),
    [("/nosuch a", True), ("/etc/passwd?", False), ("a /nosuch", False), ("/ x", False)],
)
async def test_an_unknown_command_goes_to_the_model_as_it_is(words: str, is_command: bool) -> None:
    model = ScriptedModel([DONE])
    await asked(model, words)
    *before, last = said(model)
    assert last == words
    assert any("/docs:ship." in note and "/nosuch" in note for note in before) == is_command


@pytest.mark.requirement("command:expanded")
async def test_a_command_that_is_sent_into_a_run_is_expanded_too() -> None:
    model = ScriptedModel([response(call("a")), DONE])
    steer = Prompt("inbox-2", "u-2", "/docs:ship now", is_steer=True)
    journal = await play(effects(model, prompts=[prompt("hello"), steer], place=PLACE))
    _, notice, named, body = said(model)
    assert [notice.startswith("While you were working"), body] == [True, "Ship now"]
    assert named.startswith("<command-message>")
    assert kinds(journal.messages())[-1] == "success"


@pytest.mark.requirement("command:local")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cost", ["This session cost $", "- priced-model: $", "100 tokens in", "10 out"]),
        ("context", ["of 200,000 tokens", "- System tools: ", "- Messages: "]),
    ],
)
async def test_what_the_service_answers_itself_costs_nothing_and_no_model_sees_it(
    name: str, expected: list[str]
) -> None:
    model = ScriptedModel([DONE, DONE])
    journal = await asked(model, "hello")
    await asked(model, f"/{name}", journal)
    result = journal.result()
    assert [part for part in expected if part not in result.result] == []
    assert (result.local_command, result.num_turns, result.terminal_reason) == (name, 0, None)
    assert kinds(journal.messages())[-4:] == ["init", "prompt", "text", "success"]
    assert len(model.requests) == 1
    await asked(model, "again", journal)
    assert said(model) == ["again"]


WORK = WorkItem("1", "Look", "at it")


async def _seen(_: ToolCall, __: ToolMemory) -> ToolResult:
    facts = ToolFacts(
        cwd="/workspace/sub",
        files={"/workspace/a": FileSeen("0", 1)},
        work={"1": WORK},
        skills={"s": "1"},
    )
    return ToolResult("seen", facts=facts)


@pytest.mark.requirement("command:clear")
async def test_clear_empties_the_context_and_leaves_the_session_its_costs_and_its_work() -> None:
    model = ScriptedModel([response(call("a")), DONE, response(call("a")), DONE])
    tools = ScriptedToolbox(run=_seen)
    journal = await asked(model, "first", tools=tools)
    await asked(model, "/clear", journal, tools=tools)
    told = kinds(journal.messages())[-5:]
    assert told == ["conversation_reset", "background_tasks_changed", "init", "prompt", "success"]
    cleared = journal.result()
    assert (cleared.result, cleared.local_command, cleared.num_turns) == ("", "clear", 0)
    state = journal.state(run_info("run_3"))
    assert state.context == ()
    assert state.memory == ToolMemory("/workspace/sub", work={"1": WORK})
    assert cleared.total_cost_usd > 0

    await asked(model, "second", journal, tools=tools)
    first, again = model.requests[0], model.requests[2]
    assert len(again.messages) == 1
    assert said(model, 2) == [*said(model, 0)[:2], "second"]
    assert first.system == again.system
    result = journal.result()
    assert result.total_cost_usd > cleared.total_cost_usd


@pytest.mark.requirement("command:clear")
async def test_rows_before_a_clear_change_nothing() -> None:
    model = ScriptedModel([response(call("a")), DONE, DONE])
    journal = await asked(model, "first", tools=ScriptedToolbox(run=_seen))
    await asked(model, "/clear", journal)
    await asked(model, "second", journal)
    whole = journal.state(run_info("run_4"))
    (at,) = [n for n, m in enumerate(journal.messages()) if isinstance(m, ConversationReset)]
    cut = Journal(rows=journal.rows[at:], ledger=journal.ledger)
    assert cut.state(run_info("run_4")) == whole


async def _told(asked_of: ToolCall, _: ToolMemory) -> ToolResult:
    path = asked_of.input.get("file_path", "")
    if path == "nowhere":
        return ToolResult("no such file", is_error=True)
    seen = ToolFacts(files={f"/workspace/{path}": FileSeen("0", 1)} if path else {})
    return ToolResult(f"<{asked_of.name} {path}>", facts=seen)


def tool(name: str, *, read_only: bool = True) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object"}, read_only=read_only)


READ, GLOB = tool("Read"), tool("Glob")


@pytest.mark.requirement("command:mentions")
async def test_a_file_that_a_prompt_names_comes_before_it_and_is_known_afterwards() -> None:
    model = ScriptedModel([DONE])
    tools = ScriptedToolbox([READ, GLOB], run=_told)
    words = "See @a.txt, @nowhere and @sub/ (me@b.txt), @a.txt again."
    place = replace(PLACE, beside={"/workspace/a.txt": News(files={"/workspace/CLAUDE.md": "Hm."})})
    journal = await asked(model, words, tools=tools, place=place)
    *before, named, content, folder, names, last = said(model)
    assert "@" not in named
    assert ["a.txt; Read" in named, content] == [True, "<Read a.txt>"]
    assert ["sub/; Glob" in folder, names] == [True, "<Glob >"]
    assert last == words
    assert any("Hm." in note for note in before)
    state = journal.state(run_info("run_2"))
    assert state.memory.files.keys() == {"/workspace/a.txt"}
    shown = [m.message.content for m in journal.messages() if isinstance(m, UserMessage)]
    assert shown == [words]


@pytest.mark.requirement("command:mentions")
async def test_prompts_that_are_verbatim_say_what_they_say() -> None:
    model = ScriptedModel([DONE] * 2)
    for words in ("see @a.txt", "/docs:ship now"):
        world = effects(
            model,
            prompts=[prompt(words)],
            place=PLACE,
            tools=ScriptedToolbox([READ], run=_told),
        )
        await play(world, run_info(verbatim_prompts=True))
        assert said(model)[2:] == [words]


@pytest.mark.requirement("command:outputs")
@pytest.mark.parametrize(("reads", "output"), [(True, "<Bash >"), (False, "!`git log`")])
async def test_a_commands_text_holds_what_reading_commands_print(reads: bool, output: str) -> None:
    model = ScriptedModel([DONE])
    tools = ScriptedToolbox([tool("Bash", read_only=reads)], run=_told)
    place = replace(PLACE, commands={"log": "Log:\n!`git log` and x=!`git log`, $ARGUMENTS"})
    await asked(model, "/log now", tools=tools, place=place)
    assert said(model)[-1] == f"Log:\n{output} and x=!`git log`, now"


@pytest.mark.requirement("command:inert")
@pytest.mark.parametrize(
    "arguments",
    ["!`git log`", "@a.txt", "`!`git log`", "x` !`git log", "$0 !`git log $ARGUMENTS` @a.txt"],
)
async def test_arguments_run_nothing_and_read_nothing_wherever_they_are_put(arguments: str) -> None:
    done: list[str] = []

    async def run(asked_of: ToolCall, memory: ToolMemory) -> ToolResult:
        done.append(f"{asked_of.name} {asked_of.input.get('file_path')}")
        return await _told(asked_of, memory)

    written = (
        "For $ARGUMENTS\n!`git log $ARGUMENTS` @$0 @$ARGUMENTS !`$ARGUMENTS`\n!$ARGUMENTS @b.txt"
    )
    model = ScriptedModel([DONE])
    tools = ScriptedToolbox([READ, tool("Bash")], run=run)
    place = replace(PLACE, commands={"log": written})
    await asked(model, f"/log {arguments}", tools=tools, place=place)
    assert done == ["Read b.txt"]  # which the command's own text names
    put = written.replace("$0", arguments.split(maxsplit=1)[0]).replace("$ARGUMENTS", arguments)
    if "$" not in arguments:
        assert said(model)[-1] == put


@pytest.mark.requirement("command:inert")
async def test_what_a_command_printed_names_no_files() -> None:
    model = ScriptedModel([DONE])

    async def run(asked_of: ToolCall, _: ToolMemory) -> ToolResult:
        assert asked_of.name == "Bash"
        return ToolResult("see @a.txt and $ARGUMENTS")

    tools = ScriptedToolbox([READ, tool("Bash")], run=run)
    place = replace(PLACE, commands={"log": "!`git log`, for $ARGUMENTS"})
    await asked(model, "/log me", tools=tools, place=place)
    assert said(model)[-1] == "see @a.txt and $ARGUMENTS, for me"


@pytest.mark.requirement("command:mentions")
async def test_no_more_files_are_brought_than_a_request_can_bear() -> None:
    model = ScriptedModel([DONE])
    tools = ScriptedToolbox([READ], run=_told)
    await asked(model, " ".join(f"@{n}.txt" for n in range(500)), tools=tools)
    assert len([text for text in said(model) if text.startswith("<Read")]) == MOST_MENTIONS


class StrangeServers(NoServers):
    """A server whose prompt asks for what it has no business with."""

    async def prompt(self, name: str, arguments: str) -> str | None:
        return f"!`cat a.txt` and @a.txt, {arguments}" if name == "mcp__s__ask" else None


@pytest.mark.requirement("command:outputs")
async def test_the_words_of_a_server_run_nothing_and_read_nothing() -> None:
    model = ScriptedModel([DONE])
    tools = ScriptedToolbox([READ, tool("Bash")], run=_told)
    world = effects(model, prompts=[prompt("/mcp__s__ask @b.txt")], tools=tools)
    await play(replace(world, servers=StrangeServers()))
    assert said(model)[-1] == "!`cat a.txt` and @a.txt, @b.txt"
    assert tools.log == []
