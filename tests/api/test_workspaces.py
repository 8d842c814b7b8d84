"""`directory` workspaces: only real folders, beneath a root that the operator listed."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.stage import Stage, open_stage, pointers, problem, scripted
from tests.databases import fresh_database

ORDINARY_UID = 65_534


async def refused(stage: Stage, path: str) -> str:
    body = {"prompt": "x", "workspace": {"source": "directory", "path": path}}
    found = problem(await stage.client.post("/v1/runs", json=body), 422, "validation_failed")
    assert pointers(found) == ["/workspace/path"]
    session = await stage.client.post("/v1/sessions", json={"workspace": body["workspace"]})
    assert problem(session, 422, "validation_failed")["detail"] == found["detail"]
    return str(found["detail"])


@pytest.fixture(scope="module")
async def strict(scratch: Path, postgres: str) -> AsyncIterator[Stage]:
    """A host that refuses folders of root, as hosts do unless told otherwise."""
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, role="api", workspace={"allow_root_owned": False}) as opened,
    ):
        yield opened


@pytest.mark.parametrize("path", ["", ".", "folder", "./folder", "~", "~/x", "folder/../.."])
async def test_a_relative_path_is_refused(stage: Stage, path: str) -> None:
    assert "absolute" in await refused(stage, path)


async def test_what_lies_outside_answers_as_what_does_not_exist(stage: Stage) -> None:
    outside = stage.root.parent / "outside"
    outside.mkdir(exist_ok=True)
    (stage.root / "link").unlink(missing_ok=True)
    (stage.root / "link").symlink_to(outside)
    (stage.root / "up").unlink(missing_ok=True)
    (stage.root / "up").symlink_to("../outside")
    sibling = stage.root.with_name(f"{stage.root.name}-sibling")
    sibling.mkdir(exist_ok=True)
    loop = stage.root / "loop"
    loop.unlink(missing_ok=True)
    loop.symlink_to(loop)
    said = {
        await refused(stage, str(path))
        for path in (
            *("/", "/etc", "/etc/passwd", "/root", "/proc/self/root", "/nowhere"),
            *(outside, sibling, stage.root / "link", stage.root / "up", stage.root / "missing"),
            *(stage.root / "..", f"{stage.root}/../outside", loop, stage.root / ("n" * 300)),
        )
    }
    assert said == {
        (
            "The workspace folder cannot be used: there is no such folder beneath an allowed root; "
            "the operator lists the roots (TREADLE_WORKSPACE__ALLOWED_ROOTS)."
        )
    }


async def test_a_file_is_refused(stage: Stage) -> None:
    (stage.root / "file").touch()
    assert "not a folder" in await refused(stage, str(stage.root / "file"))
    assert "beneath" in await refused(stage, str(stage.root / "file" / "x"))


async def test_a_path_that_is_too_long_is_refused(stage: Stage) -> None:
    body = {"workspace": {"source": "directory", "path": "/" + "x" * 4_097}}
    found = problem(await stage.client.post("/v1/sessions", json=body), 422, "validation_failed")
    assert pointers(found) == ["/workspace/path"]


async def test_without_roots_no_folder_is_allowed(scratch: Path, postgres: str) -> None:
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, role="api", workspace={"allowed_roots": []}) as stage,
    ):
        assert "beneath an allowed root" in await refused(stage, str(stage.root))


async def test_a_root_that_is_no_folder_is_warned_of_at_the_start(
    scratch: Path, postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    (scratch / "a-root").mkdir()
    roots = [scratch / "a-root", scratch / "none"]
    async with (
        fresh_database(postgres) as dsn,
        open_stage(scratch, dsn, role="api", workspace={"allowed_roots": roots}),
    ):
        told = [r for r in caplog.records if vars(r).get("action") == "missing_root"]
    assert [record.args for record in told] == [(scratch / "none",)]


async def test_a_folder_of_root_is_refused_to_a_service_of_root(strict: Stage) -> None:
    folder = strict.root / "mine"
    folder.mkdir()
    body = {"workspace": {"source": "directory", "path": str(folder)}}
    if os.geteuid() == 0:
        assert "TREADLE_WORKSPACE__ALLOW_ROOT_OWNED" in await refused(strict, str(folder))
        os.chown(folder, ORDINARY_UID, ORDINARY_UID)
    answer = await strict.client.post("/v1/sessions", json=body)
    assert answer.status_code == 201, answer.text


async def test_the_agent_works_in_the_real_folder_behind_a_link_inside(stage: Stage) -> None:
    folder = stage.root / "real"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(folder, ORDINARY_UID, ORDINARY_UID)
    link = stage.root / "inner"
    link.unlink(missing_ok=True)
    link.symlink_to("real")
    run = await stage.run(
        scripted(
            {"tool": "Write", "input": {"file_path": "/workspace/a.txt", "content": "hi"}},
            {"text": "done"},
        ),
        options={"permission_mode": "acceptEdits"},
        workspace={"source": "directory", "path": str(link)},
    )
    assert run["permission_denials"] == []
    assert (folder / "a.txt").read_text() == "hi"
    session = (await stage.client.get(f"/v1/sessions/{run['session_id']}")).json()
    assert session["workspace"] == {"source": "directory", "path": str(folder)}


async def test_a_run_in_a_folder_begins_with_its_post(stage: Stage) -> None:
    """One commit makes session and run and opens it, with all that the folder says of itself."""
    folder = stage.root / "well-described"
    for path, text in {
        "CLAUDE.md": "Always answer in verse.",
        ".claude/agents/judge.md": "---\nname: judge\ndescription: Judges\n---\nJudge it.",
        ".claude/skills/rhyme/SKILL.md": "---\ndescription: Finds rhymes\n---\nRhyme.",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755)
    run = await stage.run(workspace={"source": "directory", "path": str(folder)})
    rows = await stage.host.service.database.raw.fetch(
        "SELECT type, subtype, body, xmin::text AS commit FROM journal"
        " WHERE session_id = $1 ORDER BY seq LIMIT 5",
        run["session_id"],
    )
    told = [row["subtype"] or row["type"] for row in rows]
    assert told == ["session.created", "run.queued", "run.started", "init", "user"]
    assert len({row["commit"] for row in rows}) == 1
    init = json.loads(rows[3]["body"])
    assert "judge" in init["agents"]
    assert "rhyme" in init["skills"]
    asked = json.dumps(stage.model.bodies()[-1])
    for words in ("Always answer in verse.", "Finds rhymes", "Judges"):
        assert words in asked
