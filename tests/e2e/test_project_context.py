"""What a workspace says of its project reaches the model, over real HTTP and on every host."""

import json
import secrets
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import MakeSettings
from tests.fakes.messages_api import MessagesApi
from tests.hosts import Host, host
from tests.runs.prompts import messages, scripted
from tests.tools.folder import Folder

MARK = {"type": "ephemeral"}


@dataclass(frozen=True, slots=True)
class Twins:
    """Two hosts on one database, and a folder for workspaces."""

    hosts: Sequence[Host]
    api: MessagesApi
    root: Path

    def folder(self, **files: str) -> Folder:
        """Make a workspace with these files."""
        folder = Folder(self.root)
        name = secrets.token_hex(8)
        folder.mkdir(name)
        made = Folder(self.root / name)
        for path, content in files.items():
            made.put(path, content)
        return made

    async def session(self, folder: Folder) -> str:
        body = {"workspace": {"source": "directory", "path": str(folder.ws)}}
        answer = await self.hosts[0].client.post("/v1/sessions", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def run(
        self, prompt: str, session_id: str | None = None, *, on: int = 0, **options: Any
    ) -> dict[str, Any]:
        path = f"/v1/sessions/{session_id}/runs" if session_id else "/v1/runs"
        given = {"allowed_tools": ["Read", "Edit", "Bash"], **options}
        body = {"prompt": prompt, "wait": 20, "options": given}
        answer: httpx.Response = await self.hosts[on].client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["run"]["end_reason"] == "completed", answer.text
        run: dict[str, Any] = answer.json()["run"]
        return run


@pytest.fixture
def root(scratch: Path) -> Path:
    """A folder for workspaces, which the sandbox's user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="ws-", dir=scratch))
    folder.chmod(0o755)
    return folder


@pytest.fixture
async def twins(
    make_settings: MakeSettings, messages_api: MessagesApi, root: Path
) -> AsyncIterator[Twins]:
    settings = [make_settings(workspace={"allowed_roots": [root]}) for _ in range(2)]
    async with AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(host(each)) for each in settings]
        yield Twins(hosts, messages_api, root)


def pieces(body: dict[str, Any]) -> list[str]:
    """What the provider caches, in the order in which it stands there, without the marks."""
    flat = [
        *(("tool", tool) for tool in body["tools"]),
        *(("system", block) for block in body["system"]),
        *((m["role"], block) for m in body["messages"] for block in m["content"]),
    ]
    return [
        json.dumps([role, {k: v for k, v in block.items() if k != "cache_control"}])
        for role, block in flat
    ]


def marked(body: dict[str, Any]) -> list[str]:
    """Where marks stand."""
    parts = {"tools": body["tools"], "system": body["system"]}
    parts |= {f"message {n}": m["content"] for n, m in enumerate(body["messages"])}
    return [
        f"{name}: {number - len(blocks)}"
        for name, blocks in parts.items()
        for number, block in enumerate(blocks)
        if block.get("cache_control") == MARK
    ]


def texts(message: dict[str, Any]) -> list[str]:
    return [block["text"] for block in message["content"] if block["type"] == "text"]


@pytest.mark.requirement("context:stable-prefix")
@pytest.mark.requirement("context:cache-marks")
async def test_what_was_sent_once_is_repeated_byte_for_byte_by_runs_and_hosts(
    twins: Twins,
) -> None:
    folder = twins.folder(**{"CLAUDE.md": "Be brief. @style.md", "style.md": "Use tabs."})
    folder.put("sub/CLAUDE.md", "Beware of the dog.")
    folder.put("sub/a.txt", "alpha")
    folder.put(".git/HEAD", "ref: refs/heads/main\n")
    session = await twins.session(folder)
    read = {"tool": "Read", "input": {"file_path": "sub/a.txt"}}
    edit = {"old_string": "brief", "new_string": "long", "file_path": "CLAUDE.md"}
    await twins.run(scripted(read, read, {"text": "1"}), session)
    await twins.run(
        scripted({"tool": "Edit", "input": edit}, {"text": "2"}, text="x"), session, on=1
    )
    await twins.run(scripted({"text": "3"}, text="y"), session, on=0)
    folder.put(".git/HEAD", "ref: refs/heads/next\n")
    await twins.run(scripted({"text": "4"}, text="z"), session, on=1)

    bodies = twins.api.bodies()
    assert len(bodies) == 7
    before: list[str] = []
    for body in bodies:
        now = pieces(body)
        assert now[: len(before)] == before
        before = now
    first = texts(bodies[0]["messages"][0])
    assert "# /workspace/CLAUDE.md\n\nBe brief. @style.md" in first[0]
    assert "# /workspace/style.md\n\nUse tabs." in first[0]
    assert "Git: branch main" in first[1]
    [note] = texts(bodies[1]["messages"][2])
    assert "# /workspace/sub/CLAUDE.md\n\nBeware of the dog." in note
    assert texts(bodies[2]["messages"][4]) == []
    assert len(texts(bodies[3]["messages"][-1])) == 1
    [changed, prompt] = texts(bodies[5]["messages"][-1])
    assert "Be long." in changed
    assert "Use tabs." not in changed
    assert "branch" not in changed
    assert prompt.startswith("y")
    [moved, _] = texts(bodies[6]["messages"][-1])
    assert "Git: branch next" in moved
    assert "Be long." not in moved

    assert marked(bodies[0]) == ["tools: -1", "system: -1", "message 0: -1"]
    assert marked(bodies[2]) == ["tools: -1", "system: -1", "message 2: -1", "message 4: -1"]
    shown = json.dumps(await messages(twins.hosts[0].client, session))
    assert "Use tabs." not in shown
    assert "system-reminder" not in shown


@pytest.mark.requirement("context:sources")
async def test_a_run_chooses_whose_instructions_it_takes(twins: Twins) -> None:
    folder = twins.folder(**{"CLAUDE.md": "of the project", "CLAUDE.local.md": "of one person"})
    session = await twins.session(folder)
    await twins.run("hello", session, setting_sources=[])
    await twins.run("hello", session, settingSources=["user", "local"])
    none, local = ("\n".join(texts(body["messages"][-1])) for body in twins.api.bodies())
    assert "of the project" not in none + local
    assert ("of one person" in none, "of one person" in local) == (False, True)


async def test_a_folder_is_read_before_the_first_prompt_of_a_new_session(twins: Twins) -> None:
    folder = twins.folder(**{"CLAUDE.md": "of the project"})
    look = scripted({"tool": "Glob", "input": {"pattern": "*"}}, {"text": "done"}, text="first")
    words = (look, "second", "third")
    body = {
        "workspace": {"source": "directory", "path": str(folder.ws)},
        "messages": [
            {"type": "user", "message": {"role": "user", "content": text}} for text in words
        ],
        "wait": 20,
    }
    answer = await twins.hosts[0].client.post("/v1/runs", json=body)
    assert answer.status_code == 200, answer.text
    run = answer.json()["run"]
    assert (run["attempt"], run["num_turns"], run["end_reason"]) == (1, 2, "completed")
    one, two = (body["messages"] for body in twins.api.bodies())
    instructions, _, prompt = texts(one[0])
    assert "of the project" in instructions
    assert prompt == look
    assert [text.splitlines()[-1] for text in texts(two[-1])] == ["second", "third"]
    shown = await messages(twins.hosts[1].client, answer.json()["session"]["id"])
    assert [m["message"]["content"] for m in shown if m.get("isReplay")] == [*words]
    assert shown[0]["subtype"] == "init"


async def test_a_new_empty_workspace_tells_the_environment_alone(twins: Twins) -> None:
    run = await twins.run(scripted({"text": "1"}))
    await twins.run(scripted({"text": "2"}), run["session_id"], on=1)
    one, two = twins.api.bodies()
    environment, _ = texts(one["messages"][0])
    assert "Working directory: /workspace\n" in environment
    assert "Git: no repository here" in environment
    assert len(texts(two["messages"][-1])) == 1
    assert pieces(two)[: len(pieces(one))] == pieces(one)


@pytest.mark.requirement("context:system-prompt")
async def test_the_system_prompt_holds_nothing_of_place_or_day(twins: Twins) -> None:
    folder = twins.folder(**{"CLAUDE.md": "of the project"})
    await twins.run("hello", await twins.session(folder), system_prompt="Be a parrot.")
    preset = {"type": "preset", "preset": "claude_code", "append": "Be kind."}
    await twins.run("hello", system_prompt=preset)
    await twins.run("hello", system_prompt={**preset, "exclude_dynamic_sections": True})
    parrot, kind, again = (body["system"] for body in twins.api.bodies())
    assert parrot == [{"type": "text", "text": "Be a parrot.", "cache_control": MARK}]
    assert kind == again
    assert kind[1] == {"type": "text", "text": "Be kind.", "cache_control": MARK}
    assert "cache_control" not in kind[0]
    assert "/workspace" not in kind[0]["text"]


@pytest.mark.requirement("context:git")
async def test_a_hostile_repository_runs_nothing(twins: Twins) -> None:
    folder = twins.folder()
    folder.put(".git/HEAD", "ref: refs/heads/main\n")
    folder.put(".git/config", "[core]\n\tfsmonitor = touch was-run; true\n")
    await twins.run("hello", await twins.session(folder))
    assert "branch main, without a commit" in texts(twins.api.bodies()[0]["messages"][0])[0]
    assert not (folder.ws / "was-run").exists()


@pytest.mark.requirement("skill:announced")
@pytest.mark.requirement("skill:load")
async def test_a_skill_is_announced_loaded_and_known_on_another_host(twins: Twins) -> None:
    skill = "---\ndescription: Count words\nallowed-tools: Bash\n---\nRun wc on $0."
    folder = twins.folder(**{".claude/skills/count/SKILL.md": skill})
    folder.put(".claude/commands/ship.md", "Ship.")
    session = await twins.session(folder)
    load = {"tool": "Skill", "input": {"skill": "count", "args": "a.txt"}}
    await twins.run(scripted(load, {"text": "1"}), session, allowed_tools=[])
    await twins.run(scripted(load, {"text": "2"}, text="x"), session, on=1, allowed_tools=[])
    bodies = twins.api.bodies()
    listing = texts(bodies[0]["messages"][0])[0]
    assert "- count: Count words\n- ship: Ship." in listing
    [text] = texts(bodies[1]["messages"][2])
    assert text.endswith("/workspace/.claude/skills/count\n\nRun wc on a.txt.")
    assert "Run wc" not in json.dumps(bodies[3]["messages"][5:])
    for before, after in pairwise(bodies):
        assert pieces(after)[: len(pieces(before))] == pieces(before)
    shown = await messages(twins.hosts[0].client, session)
    assert shown[0]["skills"] == ["count"]
    assert shown[0]["slash_commands"][-2:] == ["count", "ship"]


@pytest.mark.requirement("skill:chosen")
async def test_a_run_without_the_tool_is_told_of_no_skill(twins: Twins) -> None:
    session = await twins.session(twins.folder(**{".claude/skills/a/SKILL.md": "A."}))
    await twins.run("hello", session, disallowed_tools=["Skill"])
    await twins.run("hello", session, skills=[])
    assert "- a: A." not in json.dumps(twins.api.bodies())
    shown = await messages(twins.hosts[0].client, session)
    assert [message["skills"] for message in shown if "skills" in message] == [["a"], []]


@pytest.mark.requirement("command:expanded")
@pytest.mark.requirement("command:clear")
async def test_commands_work_on_any_host_and_a_clear_is_not_undone_by_a_move(twins: Twins) -> None:
    folder = twins.folder(**{".claude/commands/count.md": "Count the words of $0."})
    session = await twins.session(folder)
    await twins.run("/count a.txt", session)
    assert texts(twins.api.bodies()[0]["messages"][0])[-1] == "Count the words of a.txt."
    await twins.run("/nosuch", session, on=1)
    assert "/count." in texts(twins.api.bodies()[1]["messages"][-1])[0]
    cost = await twins.run("/cost", session)
    assert cost["result"]["text"].startswith("This session cost $")
    cleared = await twins.run("/clear", session, on=1)
    assert (cleared["num_turns"], cleared["result"]["text"]) == (0, "")
    await twins.run("second", session)
    await twins.run("third", session, on=1)
    *_, second, third = twins.api.bodies()
    assert len(twins.api.bodies()) == 4
    assert [len(body["messages"]) for body in (second, third)] == [1, 3]
    assert texts(second["messages"][0])[-1] == "second"
    client = twins.hosts[0].client
    path = f"/v1/sessions/{session}/messages"
    active = (await client.get(path, params={"view": "active"})).json()["data"]
    full = (await client.get(path, params={"limit": 1000})).json()["data"]
    assert active[0]["type"] == "conversation_reset"
    assert active == full[-len(active) :]
    assert full[0]["subtype"] == "init"


@pytest.mark.requirement("command:mentions")
async def test_a_named_file_is_read_for_a_prompt_where_nothing_forbids_it(twins: Twins) -> None:
    folder = twins.folder(**{"a.txt": "alpha", "sub/CLAUDE.md": "Beware.", "sub/b.txt": "beta"})
    session = await twins.session(folder)
    await twins.run("See @a.txt and @sub/b.txt, not @/etc/passwd or @../x.", session)
    [message] = twins.api.bodies()[0]["messages"]
    given = texts(message)
    assert [text for text in given if text.startswith("1\t")] == ["1\talpha", "1\tbeta"]
    assert "Beware." in json.dumps(given)
    assert "root:" not in json.dumps(given)
    write = {"tool": "Write", "input": {"file_path": "a.txt", "content": "new"}}
    known = {"allowed_tools": ["Write"]}
    await twins.run(scripted(write, {"text": "done"}, text="x"), session, on=1, **known)
    assert folder.content("a.txt") == b"new"
    await twins.run("See @a.txt", session, disallowed_tools=["Read"])
    await twins.run("See @a.txt", session, verbatim_prompts=True)
    assert [texts(body["messages"][-1])[-1:] for body in twins.api.bodies()[-2:]] == [
        ["See @a.txt"]
    ] * 2
    assert "1\tnew" not in json.dumps(twins.api.bodies())


@pytest.mark.requirement("command:outputs")
async def test_a_commands_text_runs_what_reads_and_leaves_the_rest_as_words(twins: Twins) -> None:
    text = "Have:\n!`cat a.txt` and !`touch b.txt`"
    folder = twins.folder(**{".claude/commands/state.md": text, "a.txt": "alpha"})
    await twins.run("/state", await twins.session(folder), allowed_tools=["Bash"])
    [message] = twins.api.bodies()[0]["messages"]
    assert texts(message)[-1] == "Have:\nalpha and !`touch b.txt`"
    assert not (folder.ws / "b.txt").exists()


@pytest.mark.requirement("loop:subagent-permissions")
async def test_kinds_of_subagents_that_a_workspace_describes_can_only_take_away(
    twins: Twins,
) -> None:
    kind = (
        "---\nname: checker\ndescription: checks\ntools: Bash, Read\n"
        "permissionMode: bypassPermissions\n---\nYou are CHECKER.\n"
    )
    folder = twins.folder(**{".claude/agents/checker.md": kind})
    asked = scripted({"tool": "Bash", "input": {"command": "touch x"}}, {"text": "checked"})
    given = {"description": "a job", "prompt": asked, "subagent_type": "checker"}
    prompt = scripted({"tool": "Agent", "input": given}, {"text": "fine"})
    run = await twins.run(prompt, await twins.session(folder), allowed_tools=["Read"])
    assert [denial["tool_name"] for denial in run["permission_denials"]] == ["Bash"]
    main, child = twins.api.bodies()[:2]
    assert "You are CHECKER." in json.dumps(child["system"])
    assert [tool["name"] for tool in child["tools"]] == ["Read", "Bash"]
    (offered,) = [tool for tool in main["tools"] if tool["name"] == "Agent"]
    assert "- checker: checks (Tools: Bash, Read)" in offered["description"]
    without = await twins.run(prompt, await twins.session(folder), setting_sources=[])
    assert without["permission_denials"] == []
    assert "- checker" not in json.dumps(twins.api.bodies()[-1]["tools"])


@pytest.mark.requirement("command:local")
@pytest.mark.parametrize(
    ("words", "says"),
    [("/cost", "This session cost $0 "), ("/context", "tokens ("), ("/clear", "")],
)
async def test_a_new_session_may_begin_with_a_command(twins: Twins, words: str, says: str) -> None:
    run = await twins.run(words)
    assert (says in run["result"]["text"], run["num_turns"]) == (True, 0)
    shown = await messages(twins.hosts[0].client, run["session_id"])
    assert shown[-1]["local_command"] == words.removeprefix("/")
    assert twins.api.bodies() == []


@pytest.mark.requirement("command:unknown")
async def test_a_new_session_that_begins_with_an_unknown_command_says_so(twins: Twins) -> None:
    await twins.run("/nosuch")
    assert "/cost." in texts(twins.api.bodies()[0]["messages"][0])[-2]
