"""Instruction files of a workspace: which are read, and what a hostile workspace can do."""

import os
import time
from collections.abc import Collection
from datetime import UTC, datetime

import pytest

from app.domain.briefing import Briefing
from app.domain.options import SettingSource
from app.tools import project as bounds
from app.tools.project import Project
from app.tools.skills import Shelf
from tests.fakes.effects import FakeClock
from tests.tools.desk import Desk
from tests.tools.test_walls_of_files import OUTSIDE, outside

pytestmark = pytest.mark.platform


def project(desk: Desk, sources: Collection[SettingSource] | None = None) -> Project:
    shelf = Shelf(desk.workspace, sources)
    return Project(desk.workspace, FakeClock(), "Linux", shelf, sources)


async def read(desk: Desk, sources: Collection[SettingSource] | None = None) -> dict[str, str]:
    """The files that a run begins with, by their path in the workspace."""
    began = time.monotonic()
    briefing = await project(desk, sources).look(Briefing(), "/workspace")
    assert time.monotonic() - began < 10
    return {path.removeprefix("/workspace/"): text for path, text in briefing.files.items()}


async def found_beside(desk: Desk, *paths: str, known: Briefing | None = None) -> list[str]:
    news = await project(desk).near(paths, known or Briefing())
    return [*news.files]


@pytest.mark.requirement("context:files")
async def test_files_of_the_root_come_in_order_each_with_its_imports(desk: Desk) -> None:
    desk.put("CLAUDE.local.md", "local")
    desk.put(".claude/CLAUDE.md", "inner @../docs/b.md")
    desk.put("CLAUDE.md", "outer, see @docs/a.md.")
    desk.put("docs/a.md", "a @deep/c.md")
    desk.put("docs/deep/c.md", "c")
    desk.put("docs/b.md", "b @a.md")
    desk.put("AGENTS.md", "not ours")
    desk.put("sub/CLAUDE.md", "later")
    assert await read(desk) == {
        "CLAUDE.md": "outer, see @docs/a.md.",
        "docs/a.md": "a @deep/c.md",
        "docs/deep/c.md": "c",
        ".claude/CLAUDE.md": "inner @../docs/b.md",
        "docs/b.md": "b @a.md",
        "CLAUDE.local.md": "local",
    }


@pytest.mark.requirement("context:sources")
@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (None, ["CLAUDE.md", "CLAUDE.local.md"]),
        (["user", "project", "local"], ["CLAUDE.md", "CLAUDE.local.md"]),
        (["project"], ["CLAUDE.md"]),
        (["local"], ["CLAUDE.local.md"]),
        (["user"], []),
        ([], []),
    ],
)
async def test_sources_choose_the_files(
    sources: list[SettingSource] | None, names: list[str], desk: Desk
) -> None:
    desk.put("CLAUDE.md", "project")
    desk.put("CLAUDE.local.md", "local")
    desk.put("home/.claude/CLAUDE.md", "user")
    assert [*await read(desk, sources)] == names


@pytest.mark.requirement("context:folders")
async def test_a_touched_file_brings_the_instructions_of_its_folders(desk: Desk) -> None:
    for path in ("CLAUDE.md", "a/CLAUDE.md", "a/b/.claude/CLAUDE.md", "a/b/CLAUDE.local.md"):
        desk.put(path, f"text of {path} @x.md")
    desk.put("a/x.md", "imported")
    desk.put("c/CLAUDE.md", "of another folder")
    assert await found_beside(desk, "/workspace/a/b/file", "/workspace/file") == [
        "/workspace/a/CLAUDE.md",
        "/workspace/a/x.md",
        "/workspace/a/b/.claude/CLAUDE.md",
        "/workspace/a/b/CLAUDE.local.md",
    ]
    known = Briefing(files={"/workspace/a/CLAUDE.md": ""})
    assert await found_beside(desk, "/workspace/a/file", known=known) == []
    assert await found_beside(desk, "/tmp/a/file", "/workspacea/file", "a/file", "") == []


async def test_a_folder_is_looked_into_once_a_run(desk: Desk) -> None:
    here = project(desk)
    assert not await here.near(["/workspace/a/x"], Briefing())
    desk.put("a/CLAUDE.md", "made since")
    assert not await here.near(["/workspace/a/y"], Briefing())
    assert await found_beside(desk, "/workspace/a/y") == ["/workspace/a/CLAUDE.md"]


async def test_the_next_run_reads_anew_what_the_session_knows(desk: Desk) -> None:
    for path in ("CLAUDE.md", "a/CLAUDE.md", "b/.claude/CLAUDE.md"):
        desk.put(path, "old")
    desk.put("docs.md", "once imported")
    known = Briefing(
        "",
        {
            f"/workspace/{path}": "old"
            for path in ("CLAUDE.md", "a/CLAUDE.md", "b/.claude/CLAUDE.md", "docs.md")
        },
    )
    desk.put("a/CLAUDE.md", "new")
    (desk.dirs.ws / "b/.claude/CLAUDE.md").unlink()
    briefing = await project(desk).look(known, "/workspace")
    assert briefing.files == {"/workspace/CLAUDE.md": "old", "/workspace/a/CLAUDE.md": "new"}


async def test_the_environment_names_place_and_day(desk: Desk) -> None:
    briefing = await project(desk).look(Briefing(), "/workspace/src")
    day = FakeClock().now().astimezone(UTC).date()
    assert day == datetime(2026, 1, 2, tzinfo=UTC).date()
    assert briefing.environment.splitlines() == [
        "Working directory: /workspace/src",
        "Platform: Linux",
        "Date: 2026-01-02 (UTC)",
        "Git: no repository here",
    ]


# -- hostile workspaces -----------------------------------------------------------------------


@pytest.mark.requirement("context:walls")
async def test_m13_nothing_comes_from_outside_of_the_workspace(desk: Desk) -> None:
    other = outside(desk)
    (desk.dirs.ws.parent / "CLAUDE.md").write_text(OUTSIDE)  # above the root
    (desk.dirs.home / "secret.md").write_text(OUTSIDE)
    ways = ("@../../etc/passwd", "@/etc/passwd", f"@{other}", "@../outside/other.txt", "@link")
    desk.put("CLAUDE.md", " ".join((*ways, "@~/secret.md", "@/home/agent/secret.md", "@folder/x")))
    desk.symlink("link", "../outside/other.txt")
    desk.symlink("folder", "../outside")
    desk.symlink("CLAUDE.local.md", str(other))
    desk.symlink(".claude", "../outside")
    outside(desk, "CLAUDE.md")
    assert [*await read(desk)] == ["CLAUDE.md"]
    assert await found_beside(desk, "/workspace/folder/x", "/workspace/../outside/x") == []
    (desk.dirs.ws.parent / "CLAUDE.md").unlink()


async def test_a_link_that_stays_inside_is_followed(desk: Desk) -> None:
    desk.put("AGENTS.md", "shared")
    desk.symlink("CLAUDE.md", "AGENTS.md")
    assert await read(desk) == {"CLAUDE.md": "shared"}


@pytest.mark.requirement("context:walls")
@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "binary", "blank", "barred"])
async def test_m13_what_is_no_readable_text_is_left_out(kind: str, desk: Desk) -> None:
    path = desk.dirs.ws / "CLAUDE.md"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            desk.mkdir("CLAUDE.md")
        case "loop":
            desk.symlink("CLAUDE.md", "CLAUDE.md")
        case "binary":
            desk.put("CLAUDE.md", b"\x7fELF\0\0\1")
        case "blank":
            desk.put("CLAUDE.md", b"\n \n")
        case "barred":
            path.write_text("of another user")
            path.chmod(0)
    desk.put("CLAUDE.local.md", "fine")
    assert await read(desk) == {"CLAUDE.local.md": "fine"}


@pytest.mark.requirement("context:walls")
async def test_m13_a_huge_file_is_cut_and_says_so(desk: Desk) -> None:
    desk.put("CLAUDE.md", "ü" * bounds.MAX_FILE_BYTES)
    with (desk.dirs.ws / "CLAUDE.local.md").open("wb") as file:
        file.truncate(100_000_000_000)
    desk.folder.own("CLAUDE.local.md")
    [(name, text)] = (await read(desk)).items()
    assert name == "CLAUDE.md"
    assert text.startswith("ü" * 1000)
    assert text.endswith("ü\n\n[Only the first 48 KB of this file are shown.]")
    assert len(text.encode()) < bounds.MAX_FILE_BYTES + 100


@pytest.mark.requirement("context:walls")
async def test_m13_files_that_are_long_together_are_named_but_not_shown(desk: Desk) -> None:
    desk.put("CLAUDE.md", " ".join(f"@{n}.md" for n in range(9)))
    for number in range(9):
        desk.put(f"{number}.md", "x" * 40_000)
    files = await read(desk)
    assert len(files) == 10
    assert sum(map(len, files.values())) < bounds.MAX_TOTAL_CHARS + 1000
    assert files["8.md"].startswith("[Not shown")
    known = Briefing(files={f"/workspace/{path}": text for path, text in files.items()})
    desk.put("sub/CLAUDE.md", "y" * 40_000)
    news = await project(desk).near(["/workspace/sub/x"], known)
    assert news.files["/workspace/sub/CLAUDE.md"].startswith("[Not shown")


@pytest.mark.requirement("context:walls")
async def test_m13_imports_in_a_circle_or_without_an_end_are_bounded(desk: Desk) -> None:
    desk.put("CLAUDE.md", "@CLAUDE.md @a.md @./a.md @x/../a.md")
    desk.put("a.md", "@CLAUDE.md @b/1.md")
    for number in range(1, 30):
        desk.put(f"b/{number}.md", f"@{number + 1}.md")
    assert [*await read(desk)] == ["CLAUDE.md", "a.md", *(f"b/{n}.md" for n in range(1, 5))]


@pytest.mark.requirement("context:walls")
async def test_m13_mentions_of_many_files_are_bounded(desk: Desk) -> None:
    desk.put("CLAUDE.md", " ".join(f"@missing{n}.md" for n in range(4000)) + " @there.md")
    desk.put("there.md", "too late")
    desk.put("CLAUDE.local.md", "crowded out")
    assert [*await read(desk)] == ["CLAUDE.md"]


async def test_a_deep_path_is_followed_only_so_far(desk: Desk) -> None:
    path = "/".join(["d"] * 40)
    desk.put(f"{path}/CLAUDE.md", "deep")
    desk.put("d/d/CLAUDE.md", "near")
    found = await found_beside(desk, f"/workspace/{path}/file")
    assert found == ["/workspace/d/d/CLAUDE.md"]


@pytest.mark.requirement("context:walls")
async def test_odd_names_and_odd_text_do_no_harm(desk: Desk) -> None:
    desk.put("CLAUDE.md", b"@a\xff.md @\xed\xa0\x80 @" + b"x" * 9000 + b" @ok\\ then.md \xff end")
    desk.put("ok then.md", "\ufeffmarked".encode())
    files = await read(desk)
    assert [*files] == ["CLAUDE.md", "ok then.md"]
    assert files["ok then.md"] == "marked"
    assert files["CLAUDE.md"].endswith("\ufffd end")


async def test_without_a_folder_there_is_nothing(desk: Desk) -> None:
    desk.dirs.ws.rename(desk.dirs.ws.parent / "moved")
    try:
        assert await read(desk) == {}
    finally:
        (desk.dirs.ws.parent / "moved").rename(desk.dirs.ws)
