"""The oldest files of large trees: what several `find` say is what ripgrep says."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.domain.tools import ToolCall, ToolMemory
from app.errors import ToolFailed
from app.sandbox.driver import Command, Finished
from app.tools.oldest import Oldest, oldest, simple_name, survey
from app.tools.ripgrep import ripgrep
from app.tools.toolbox import Toolbox
from tests.sandbox.rooms import Rooms
from tests.tools.desk import Desk, text_of

pytestmark = pytest.mark.platform

WANTED = 100
EPOCH_S = 1_700_000_000


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*.py", "*.py"),
        ("**/*.py", "*.py"),
        ("**/**/*.test.ts", "*.test.ts"),
        ("**", "**"),
        ("**/*", "*"),
        ("", "*"),
        ("a**b", "a**b"),
        ("Makefile", "Makefile"),
        ("src/*.py", None),
        ("/a", None),
        ("*.{ts,tsx}", None),
        ("[ab].c", None),
        ("?.c", None),
        ("!x", None),
        ("#x", None),
        ("x ", None),
        ("a\\*", None),
        ("é*", None),
        ("*\n", None),
    ],
)
def test_names_that_both_programs_match_alike_are_known(pattern: str, name: str | None) -> None:
    assert simple_name(pattern) == name


@pytest.fixture(scope="module")
def grown(rooms: Rooms) -> Iterator[Desk]:
    """Give a session whose folder holds a large tree of odd names and times. Nobody changes it."""
    desk = Desk.make(rooms)
    folders = ["", "flat/", "a/", "a/b/", "a/b/c/", ".hidden/", ".git/", "-d/", "sp ace/", "x/y/z/"]
    for number in range(3600):
        suffix = (".txt", ".py", ".test.ts")[number % 3]
        _put(desk.dirs.ws, f"{folders[number % 10]}f{number}{suffix}", number * 7919 % 3607)
    for number in range(1100):  # more than the survey lists of a folder
        _put(desk.dirs.ws, f"flat/more{number}.txt", 5000 + number)
    for number, odd in enumerate(
        [
            b"new\nline.txt",
            b"bad\xff.txt",
            b".txt",
            b"-x.txt",
            b"(.txt",
            b"!.txt",
            b"*.txt",
            b"\xc3\xa9.txt",
        ]
    ):
        _put(desk.dirs.ws, os.fsdecode(odd), -10 - number)
    _put(desk.dirs.ws, "before 2001.txt", 5 - EPOCH_S)
    _put(desk.dirs.ws, "before 1970.txt", -5 - EPOCH_S)
    _put(desk.dirs.ws, "split second.txt", -9.5)
    (desk.dirs.ws / "link.txt").symlink_to("a/f2.test.ts")
    (desk.dirs.ws / "folder.txt").mkdir()
    (desk.dirs.ws / "way").symlink_to("a")
    os.mkfifo(desk.dirs.ws / "fifo.txt")
    with desk.workspace:
        yield desk


@pytest.fixture
def tree(grown: Desk) -> Iterator[int]:
    """Give a descriptor of its folder."""
    root = grown.workspace.open_folder("/workspace")
    try:
        yield root
    finally:
        os.close(root)


def _put(ws: Path, name: str, at_s: float) -> None:
    path = ws / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    ns = EPOCH_S * 10**9 + int(at_s * 10**9)
    os.utime(path, ns=(ns, ns))


@pytest.mark.parametrize("pattern", ["*.txt", "**/*.txt", "**", "", "**/*", "f*", "*.test.ts"])
async def test_the_answer_is_that_of_ripgrep(grown: Desk, tree: int, pattern: str) -> None:
    options = ["--files", "--hidden", "--no-ignore", "--null", "--sort=modified"]
    named = [f"--glob={pattern}"] if pattern else []
    said = await ripgrep(grown.sandbox, [*options, *named], cwd="/workspace")
    names = said.output.decode(errors="replace").split("\0")[:-1]
    assert len(names) >= 1000
    found = await oldest(grown.sandbox, tree, "/workspace", pattern, WANTED)
    assert found == Oldest(names[:WANTED], len(names))
    shown = text_of(await grown.call("Glob", pattern=pattern)).split("\n")
    assert shown[:-1] == [name.replace("\n", "\u240a") for name in names[:WANTED]]
    assert shown[-1].startswith(f"(Showing 100 of {len(names)} files; ")


async def test_a_tree_with_few_files_that_match_is_left_to_ripgrep(grown: Desk, tree: int) -> None:
    assert survey(tree, "more1*.txt", WANTED) is None
    assert await oldest(grown.sandbox, tree, "/workspace", "more1*.txt", WANTED) is None
    listed = text_of(await grown.call("Glob", pattern="more1*.txt"))
    assert "(Showing 100 of 211 files; " in listed


def test_a_survey_covers_the_tree_and_names_no_moment_too_early(tree: int, grown: Desk) -> None:
    known = survey(tree, "*.txt", WANTED)
    assert known is not None
    held = {grown.dirs.ws / start for start in known.starts}
    assert len(held) == len(known.starts)
    every = [path for path in grown.dirs.ws.rglob("*") if path.is_file() and not path.is_symlink()]
    assert all(len(held & {path, *path.parents}) == 1 for path in every)
    early = [path for path in every if path.lstat().st_mtime_ns <= known.moment_ns]
    assert len([path for path in early if path.name.endswith(".txt")]) >= WANTED


async def test_paths_that_no_command_line_holds_are_not_told_to_find(desk: Desk) -> None:
    folder = os.open(desk.dirs.ws, os.O_RDONLY)
    for _ in range(15):
        os.mkdir("d" * 250, dir_fd=folder)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    for number in range(1000):
        os.close(os.open(f"{number}".ljust(200, "n"), os.O_CREAT, dir_fd=folder))
    os.close(folder)
    root = desk.workspace.open_folder("/workspace")
    try:
        known = survey(root, "*", WANTED)
    finally:
        os.close(root)
    assert known is not None
    assert sum(map(len, known.starts)) < 100_000
    listed = await desk.call("Glob", pattern="**")
    assert listed.structured["totalMatches"] == 1000


async def test_a_cancelled_search_keeps_its_folder_until_the_survey_has_ended(
    grown: Desk, tree: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = threading.Event(), threading.Event()
    listing = os.scandir

    def slow(folder: int) -> object:
        started.set()
        assert go_on.wait(10)
        return listing(folder)

    # The system's call, held up and then made: nothing else shows that the survey is in the middle.
    monkeypatch.setattr(os, "scandir", slow)
    search = asyncio.create_task(oldest(grown.sandbox, tree, "/workspace", "**", WANTED))
    assert await asyncio.to_thread(started.wait, 10)
    search.cancel()
    done, _ = await asyncio.wait([search], timeout=0.05)
    go_on.set()
    assert not done, "the caller closes the descriptor that the thread still uses"
    with pytest.raises(asyncio.CancelledError):
        await search


@dataclass(frozen=True)
class Answering:
    """A sandbox in which every command ends in one way."""

    end: Finished

    async def exec(self, *_: object, **__: object) -> Finished:
        return self.end

    def start(self, *_: object, **__: object) -> Command:
        raise AssertionError("a search only runs commands to their end")


@pytest.mark.parametrize(
    "end",
    [
        Finished(1, b"", stderr=b"find: unrecognized: -printf"),
        Finished(127, b"", stderr=b"env: find: No such file or directory"),
        Finished(0, b"\0" * 5000 + b"1.5 ./only one\0"),
        Finished(0, b"1.5 ./x\0" * 500, cut_bytes=1),
        Finished(137, b"1.5 ./x\0" * 500, flooded=True),
    ],
)
async def test_an_answer_that_says_too_little_is_not_used(tree: int, end: Finished) -> None:
    assert await oldest(Answering(end), tree, "/workspace", "**", WANTED) is None


async def test_a_search_that_takes_too_long_is_told(tree: int) -> None:
    end = Finished(137, b"", timed_out=True)
    with pytest.raises(ToolFailed, match="did not end within 20 s"):
        await oldest(Answering(end), tree, "/workspace", "**", WANTED)


async def test_a_list_that_is_too_long_to_be_sifted_is_not_called_complete(desk: Desk) -> None:
    folder = desk.dirs.ws / ("d" * 200) / ("e" * 200)
    folder.mkdir(parents=True)
    for number in range(13_000):
        (folder / f"{number}".ljust(250, "n")).touch()
    toolbox = Toolbox(desk.tools, desk.workspace, desk.sandbox, hidden=lambda: lambda _: False)
    found = await toolbox.call(ToolCall("t", "Glob", {"pattern": "**"}), ToolMemory())
    told = found.structured
    assert (told["truncated"], told["countIsComplete"], told["numFiles"]) == (True, False, 100)
    assert found.stored is not None
    last = desk.content_of(found.stored.path).decode().splitlines()[-1]
    assert last.startswith(f"(Showing 100 of at least {told['totalMatches']} files; ")
    assert 5_000 < told["totalMatches"] < 13_000
