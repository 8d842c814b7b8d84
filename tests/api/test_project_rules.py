"""Rules that a project brings along, and files that a deny rule hides."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.api.stage import Stage, scripted

Json = dict[str, Any]
SETTINGS = {
    "permissions": {
        "allow": ["Bash", "Write"],
        "deny": ["Read(./secret/**)", "Bash(rm *)"],
        "ask": ["Bash(true *)"],
    },
    "hooks": {"PreToolUse": []},
}
LOCAL = {"permissions": {"deny": ["Bash(pwd *)"]}}


def lay(root: Path, files: Mapping[str, str]) -> Json:
    folder = Path(mkdtemp(prefix="project-", dir=root))  # all tests have one root
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return {"source": "directory", "path": str(folder)}


def calls(*asked: tuple[str, Json]) -> str:
    return scripted(*({"tool": tool, "input": given} for tool, given in asked), {"text": "end"})


def bash(command: str) -> tuple[str, Json]:
    return "Bash", {"command": command}


async def results(stage: Stage, run: Json) -> list[str]:
    """What the model was told, call by call."""
    page = await stage.client.get(f"/v1/sessions/{run['session_id']}/events")
    rows = [row["data"] for row in page.json()["data"] if row["run_id"] == run["id"]]
    blocks = [
        block
        for message in rows
        if message.get("type") == "user" and isinstance(message["message"]["content"], list)
        for block in message["message"]["content"]
    ]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


async def warnings(stage: Stage, run: Json) -> list[str]:
    """What readers were told of the project's settings."""
    page = await stage.client.get(f"/v1/sessions/{run['session_id']}/events")
    rows = [row["data"] for row in page.json()["data"] if row["run_id"] == run["id"]]
    return [row["content"] for row in rows if row.get("tag") == "project_settings"]


FILES = {
    ".claude/settings.json": json.dumps(SETTINGS),
    ".claude/settings.local.json": json.dumps(LOCAL),
    "secret/s.txt": "needle in secret",
    "sub/secret/t.txt": "needle in sub",
    "open.txt": "needle in the open",
}


@pytest.mark.requirement("permissions:project")
@pytest.mark.requirement("permissions:hidden")
async def test_a_projects_deny_and_ask_rules_apply_and_its_allow_rules_do_not(
    stage: Stage,
) -> None:
    workspace = lay(stage.root, FILES)
    asked = calls(
        bash("rm open.txt"),
        bash("true x"),
        bash("pwd"),
        bash("touch new"),
        ("Read", {"file_path": "secret/s.txt"}),
        ("Glob", {"pattern": "**/*.txt"}),
        ("Grep", {"pattern": "needle"}),
        ("Grep", {"pattern": "needle", "output_mode": "content"}),
        ("Grep", {"pattern": "needle", "output_mode": "count"}),
    )
    run = await stage.run(asked, workspace=workspace)
    told = await results(stage, run)
    assert told[0] == "Permission to use Bash with command rm open.txt has been denied."
    assert "Bash(true *)" in told[1]
    assert told[2] == "Permission to use Bash with command pwd has been denied."
    assert "needs an approval" in told[3]
    assert "secret" in told[4]
    assert "denied" in told[4]
    assert told[5] == "open.txt"
    for found in told[6:]:
        assert "open" in found
        assert "secret" not in found
        assert "sub" not in found

    run = await stage.run(
        calls(bash("pwd"), ("Grep", {"pattern": "needle"})),
        workspace=workspace,
        options={"setting_sources": []},
    )
    told = await results(stage, run)
    assert told[0] == "/workspace"
    assert told[1].count("secret") == 2


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize("rule", ["Skill(pdf)", "Skill(pdf-forms)"])
async def test_a_rule_for_a_skill_holds_by_whichever_of_its_names_it_is_called(
    stage: Stage, rule: str
) -> None:
    head = "---\nname: pdf-forms\n---\n"
    files = {
        ".claude/skills/pdf/SKILL.md": f"{head}Fill it in.",
        ".claude/skills/other/SKILL.md": "Do else.",
    }
    workspace = lay(stage.root, files)
    names = ("pdf", "pdf-forms", " /pdf-forms", "other")
    asked = calls(*(("Skill", {"skill": name}) for name in names))
    denied = "Permission to use Skill has been denied by a rule."
    for option, said in (("disallowed_tools", denied), ("ask_tools", f"The rule {rule} wants")):
        run = await stage.run(asked, workspace=workspace, options={option: [rule]})
        told = await results(stage, run)
        assert [text.startswith(said) for text in told] == [True, True, True, False]
        assert told[3] == "Launching skill: other."


@pytest.mark.requirement("permissions:project")
@pytest.mark.parametrize(
    ("rule", "denied"),
    [
        ("Bash(rm *", "Bash"),
        ("Read(./secret/**", "Bash Read Glob"),
        ("LS(./secret)", ""),
        ("Bsah(rm *)", "Bash Read Glob TaskList"),
        (7, "Bash Read Glob TaskList"),
    ],
)
async def test_a_projects_rule_that_cannot_be_read_forbids_all_that_it_may_have_meant(
    stage: Stage, rule: object, denied: str
) -> None:
    asked = calls(
        bash("cat open.txt"),
        ("Read", {"file_path": "open.txt"}),
        ("Glob", {"pattern": "*.txt"}),
        ("TaskList", {}),
    )
    for behavior, said in (("deny", "denied: the deny"), ("ask", "needs an approval: the ask")):
        settings = {"permissions": {behavior: [rule]}}
        files = {**FILES, ".claude/settings.json": json.dumps(settings)}
        del files[".claude/settings.local.json"]
        run = await stage.run(asked, workspace=lay(stage.root, files))
        told = await results(stage, run)
        (warning,) = await warnings(stage, run)
        reason = f"{said} rule {rule} in .claude/settings.json cannot be read"
        names = ("Bash", "Read", "Glob", "TaskList")
        found = [name for name, text in zip(names, told, strict=True) if reason in text]
        assert found == denied.split(), told
        assert f"the {behavior} rule {rule} in .claude/settings.json" in warning
