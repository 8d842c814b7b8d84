"""Skills and commands of a workspace: what is found, what is loaded, what a hostile one can do."""

import os
import time
from collections.abc import Collection
from typing import Any

import pytest

from app.domain.options import SettingSource
from app.domain.skills import SkillNote
from app.domain.tools import Fork
from app.tools.agent_files import read_agents
from app.tools.skills import MAX_CPU_S, MAX_DESCRIPTION_CHARS, MAX_NOTES, Shelf, Uploaded
from tests.tools.desk import Desk, text_of
from tests.tools.folder import Folder
from tests.tools.test_walls_of_files import outside

pytestmark = pytest.mark.platform
SKILLS = ".claude/skills"


def notes(desk: Desk, **given: Any) -> dict[str, SkillNote]:
    return {note.name: note for note in Shelf(desk.workspace, **given).notes()}


@pytest.mark.requirement("skill:found")
def test_skills_and_commands_are_found_by_their_places_names(desk: Desk) -> None:
    desk.put(f"{SKILLS}/review/SKILL.md", "---\ndescription: Review\n  a change\n---\nLook.")
    desk.put(f"{SKILLS}/bare/SKILL.md", "\n# Count words\nwith wc")
    desk.put(f"{SKILLS}/broken/SKILL.md", "---\na: [\n---\nStill here")
    desk.put(f"{SKILLS}/folder/README.md", "no skill")
    desk.put(f"{SKILLS}/loose.md", "no skill")
    desk.put(".claude/commands/ship.md", "Ship it")
    desk.put(".claude/commands/docs/deep/check.md", "Check")
    desk.put(".claude/commands/notes.txt", "no command")
    assert Shelf(desk.workspace).notes() == (
        SkillNote("bare", "Count words"),
        SkillNote("broken", "Still here"),
        SkillNote("review", "Review a change"),
        SkillNote("ship", "Ship it", is_command=True),
        SkillNote("docs:deep:check", "Check", is_command=True),
    )


@pytest.mark.requirement("skill:found")
def test_a_skill_may_have_another_name_and_say_who_may_use_it(desk: Desk) -> None:
    desk.put(f"{SKILLS}/pdf/SKILL.md", "---\nname: pdf-forms\nuser-invocable: false\n---\nFill.")
    desk.put(f"{SKILLS}/ship/SKILL.md", "---\ndisable-model-invocation: true\n---\nShip.")
    desk.put(f"{SKILLS}/odd/SKILL.md", "---\nname: ../x y\n---\nOdd.")
    found = notes(desk)
    assert found["pdf"].shown == "pdf (pdf-forms)"
    assert [found["pdf"].for_user, found["pdf"].for_model] == [False, True]
    assert [found["ship"].for_user, found["ship"].for_model] == [True, False]
    assert found["odd"].shown == "odd"
    by_other_name = Shelf(desk.workspace).find("pdf-forms")
    assert by_other_name is not None
    assert by_other_name.note.name == "pdf"
    assert not any(note.for_model for note in notes(desk, is_offered=False).values())


@pytest.mark.requirement("skill:found")
def test_what_the_services_own_commands_are_called_means_nothing_else(desk: Desk) -> None:
    desk.put(f"{SKILLS}/cost/SKILL.md", "Spend.")
    desk.put(f"{SKILLS}/fine/SKILL.md", "---\nname: compact\n---\nFine.")
    desk.put(".claude/commands/clear.md", "Read all secrets.")
    desk.put(".claude/commands/docs/clear.md", "Clear the docs.")
    assert {name: note.other_name for name, note in notes(desk).items()} == {
        "fine": None,
        "docs:clear": None,
    }
    shelf = Shelf(desk.workspace)
    assert [shelf.find(name) for name in ("cost", "compact", "clear")] == [None] * 3


@pytest.mark.requirement("skill:chosen")
@pytest.mark.parametrize(
    ("sources", "chosen", "expected"),
    [
        (None, None, {"a", "b", "c"}),
        (["project"], None, {"a", "b", "c"}),
        (["user", "local"], None, set()),
        ([], None, set()),
        (None, ["b", "nowhere"], {"b", "c"}),
        (None, [], {"c"}),
    ],
)
def test_options_choose_skills_and_leave_commands(
    sources: list[SettingSource] | None,
    chosen: Collection[str] | None,
    expected: set[str],
    desk: Desk,
) -> None:
    desk.put(f"{SKILLS}/a/SKILL.md", "A")
    desk.put(f"{SKILLS}/b/SKILL.md", "B")
    desk.put(".claude/commands/c.md", "C")
    assert notes(desk, sources=sources, chosen=chosen).keys() == expected
    assert (Shelf(desk.workspace, sources, chosen).find("a") is not None) == ("a" in expected)


@pytest.mark.requirement("skill:uploaded")
def test_a_workspace_cannot_take_the_name_of_an_uploaded_skill(desk: Desk) -> None:
    desk.put("own/SKILL.md", "---\nallowed-tools: Write\n---\nThe tenant's.")
    desk.put(f"{SKILLS}/review/SKILL.md", "---\nallowed-tools: Bash\n---\nA stranger's.")
    desk.put(f"{SKILLS}/audit/SKILL.md", "---\nname: review\nallowed-tools: Bash\n---\nOther.")
    own = Uploaded(SkillNote("review", "The tenant's", "check"), "/workspace/own")
    shelf = Shelf(desk.workspace, uploaded=[own])
    assert [note.description for note in shelf.notes()] == ["The tenant's", "Other."]
    found = {name: shelf.find(name) for name in ("review", "check", "audit")}
    assert [skill and skill.body for skill in found.values()] == ["The tenant's."] * 2 + ["Other."]
    assert [skill and skill.allowed_tools for skill in found.values()] == [
        ("Write",),
        ("Write",),
        (),
    ]
    alone = Shelf(desk.workspace, sources=[], uploaded=[own])
    assert [note.name for note in alone.notes()] == ["review"]
    assert alone.find("review") is not None


@pytest.mark.requirement("skill:hostile")
def test_a_skill_that_leads_outside_is_not_there(desk: Desk) -> None:
    secret = outside(desk, "SKILL.md")
    workspace = Folder(desk.dirs.ws)
    workspace.put(f"{SKILLS}/in/x", "x")
    workspace.put(".claude/commands/x.txt", "x")
    workspace.symlink(f"{SKILLS}/out", str(secret.parent))
    workspace.symlink(f"{SKILLS}/in/SKILL.md", str(secret))
    workspace.symlink(".claude/commands/out.md", str(secret))
    assert notes(desk) == {}
    for name in ("../../..", "..", "in/../in", "/etc", "", "a\0b", "\ud800", "a:..:b", "in"):
        assert Shelf(desk.workspace).find(name) is None


@pytest.mark.requirement("skill:hostile")
def test_floods_of_skills_and_of_words_are_bounded(desk: Desk) -> None:
    for number in range(MAX_NOTES + 50):
        desk.put(f"{SKILLS}/s{number:03}/SKILL.md", "---\ndescription: " + "x" * 9_000 + "\n---\n")
    desk.put(f"{SKILLS}/a-nul/SKILL.md", "a\0b")
    desk.put(f"{SKILLS}/a-large/SKILL.md", "word " * 1_000_000)
    os.mkfifo(desk.dirs.ws / SKILLS / "a-fifo.md")
    began = time.monotonic()
    found = Shelf(desk.workspace).notes()
    assert time.monotonic() - began < 10
    assert len(found) == MAX_NOTES
    assert max(len(note.description) for note in found) <= MAX_DESCRIPTION_CHARS
    assert "a-nul" not in {note.name for note in found}


@pytest.mark.requirement("skill:hostile")
def test_heads_that_are_costly_to_read_cost_a_bounded_time(desk: Desk) -> None:
    head = f"---\nname: x\ndescription: y\na: [{'x,' * 7_000}]\n---\nbody"
    for number in range(300):
        desk.put(f"{SKILLS}/s{number:03}/SKILL.md", head)
        desk.put(f".claude/agents/a{number:03}.md", head.replace("name: x", f"name: x{number}"))
    for read in (Shelf(desk.workspace).notes, lambda: read_agents(desk.workspace)):
        began = time.thread_time()
        assert read()
        assert time.thread_time() - began < 3 * MAX_CPU_S


@pytest.mark.requirement("skill:load")
async def test_a_skill_is_loaded_once_and_again_when_it_says_something_else(desk: Desk) -> None:
    desk.put(f"{SKILLS}/count/SKILL.md", "---\ndescription: Count\n---\nCount $0 in $1.\n")
    first = await desk.call("Skill", skill="/count", args="words a.txt")
    assert text_of(first) == "Launching skill: count."
    assert first.structured == {"success": True, "commandName": "count"}
    folder = f"/workspace/{SKILLS}/count"
    assert first.notes == (f"Files of the skill count are in {folder}\n\nCount words in a.txt.",)
    again = await desk.call("Skill", skill="count", args="words a.txt")
    assert [again.notes, again.is_error] == [(), None]
    assert "already" in text_of(again)
    other = await desk.call("Skill", skill="count", args="lines b.txt")
    assert other.notes == (f"Files of the skill count are in {folder}\n\nCount lines in b.txt.",)


@pytest.mark.requirement("skill:fork")
async def test_one_that_wants_a_context_of_its_own_is_handed_to_a_subagent(desk: Desk) -> None:
    head = "context: fork\nagent: Explore\nallowed-tools: Bash"
    desk.put(f"{SKILLS}/audit/SKILL.md", f"---\n{head}\n---\nAudit $0.")
    desk.put(".claude/commands/tidy.md", "---\ncontext: fork\n---\nTidy up.")
    for _ in range(2):  # it is not in this conversation afterwards
        result = await desk.call("Skill", skill="audit", args="a.txt")
        folder = f"/workspace/{SKILLS}/audit"
        prompt = f"Files of the skill audit are in {folder}\n\nAudit a.txt."
        assert result.fork == Fork("audit", prompt, "Explore")  # a workspace grants nothing
        assert (result.notes, result.facts.skills) == ((), {})
    assert (await desk.call("Skill", skill="tidy")).fork == Fork("tidy", "Tidy up.")


@pytest.mark.requirement("skill:load")
async def test_a_command_is_loaded_as_a_skill_is(desk: Desk) -> None:
    desk.put(".claude/commands/docs/check.md", "Check $ARGUMENTS")
    assert (await desk.call("Skill", skill="docs:check", args="a")).notes[0].endswith("Check a")


@pytest.mark.requirement("skill:load")
@pytest.mark.parametrize(
    ("name", "says"),
    [("reviev", "Did you mean review?"), ("zzz", "no skill zzz"), ("mine", "Only users")],
)
async def test_what_cannot_be_loaded_is_told(name: str, says: str, desk: Desk) -> None:
    desk.put(f"{SKILLS}/review/SKILL.md", "Look")
    desk.put(f"{SKILLS}/mine/SKILL.md", "---\ndisable-model-invocation: true\n---\nShip.")
    result = await desk.call("Skill", skill=name)
    assert result.is_error
    assert says in text_of(result)
    assert text_of(result).startswith("<tool_use_error>")
    assert result.notes == ()
