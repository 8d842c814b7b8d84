"""Kinds of subagents in files of a workspace: read beneath it, bounded, never more than asked."""

import os

import pytest

from app.tools.agent_files import MAX_FILE_BYTES, MAX_FILES, read_agents
from app.tools.agent_tool import agent_spec
from tests.tools.desk import Desk

HEAD = "---\nname: {name}\ndescription: does things\n{more}---\nBody of {name}.\n"


def put(desk: Desk, name: str, text: str) -> None:
    folder = desk.dirs.ws / ".claude" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_a_file_says_all_there_is_to_say(desk: Desk) -> None:
    more = (
        "tools: Read, Bash(git *), mcp__a, Grep\ndisallowedTools: [Grep, Edit(/a/**), mcp__b__*]\nmodel: haiku\nmaxTurns: 7\n"
        "effort: low\npermissionMode: plan\ncolor: red\nbackground: true\nskills: review, a/b\n"
        "mcpServers:\n  - tracker\n  - own: {command: evil}\n"
    )
    put(desk, "a.md", HEAD.format(name="checker", more=more))
    (kind,) = read_agents(desk.workspace).values()
    assert kind.prompt == "Body of checker."
    # A rule for a part of a tool gives nothing: the whole would be more.
    assert kind.tools == ["Read", "mcp__a", "Grep"]
    # One that is against a part of a tool takes all of it: nothing would be less.
    assert kind.disallowed_tools == ["Grep", "Edit", "mcp__b__*"]
    assert (kind.model, kind.max_turns) == ("haiku", 7)
    assert (kind.effort, kind.permission_mode) == ("low", "plan")
    assert kind.background
    assert (kind.skills, kind.mcp_servers) == (["review"], ["tracker"])


@pytest.mark.parametrize(
    "text",
    [
        "no head",
        "---\nname: x\n---\nbody",
        "---\ndescription: x\n---\nbody",
        "---\nname: a/b\ndescription: x\n---\nbody",
        "---\nname: x\ndescription: x\n---\n  \n",
        "---\nname: x\ndescription: x\n---\n\0",
        HEAD.format(name="big", more="") + "x" * MAX_FILE_BYTES,
    ],
)
def test_a_file_that_makes_no_sense_is_left_out(desk: Desk, text: str) -> None:
    put(desk, "a.md", text)
    put(desk, "b.md", HEAD.format(name="good", more="maxTurns: many\neffort: some\n"))
    assert list(read_agents(desk.workspace)) == ["good"]


def test_links_out_of_the_workspace_and_folders_lead_nowhere(desk: Desk) -> None:
    secret = desk.dirs.ws.parent / "secret.md"
    secret.write_text(HEAD.format(name="secret", more=""))
    put(desk, "b.md", HEAD.format(name="good", more=""))
    folder = desk.dirs.ws / ".claude" / "agents"
    (folder / "a.md").symlink_to(secret)
    (folder / "c.md").mkdir()
    os.mkfifo(folder / "d.md")
    assert list(read_agents(desk.workspace)) == ["good"]


def test_there_are_not_endlessly_many(desk: Desk) -> None:
    for number in range(MAX_FILES + 5):
        put(desk, f"{number:03}.md", HEAD.format(name=f"a{number}", more=""))
    found = read_agents(desk.workspace)
    assert len(found) == MAX_FILES
    assert len(agent_spec(found).description) < 10_000


def test_without_the_folder_there_are_none(desk: Desk) -> None:
    assert read_agents(desk.workspace) == {}
