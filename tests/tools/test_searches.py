"""What Grep makes of odd names and of files that a session may not see."""

import asyncio
import os
import time

import pytest

from app.domain.tools import ToolCall, ToolMemory
from app.tools.toolbox import Toolbox
from app.tools.turns import kept
from tests.tools.desk import Desk, text_of

ODD = ["new\nline", "two  words", " ahead", "-l", "1.5 x", "é", "*"]
EPOCH_NS = 1_700_000_000 * 10**9


@pytest.mark.platform
async def test_files_are_named_newest_first_whatever_they_are_called(desk: Desk) -> None:
    times = [EPOCH_NS + 2, EPOCH_NS, EPOCH_NS + 1, -5 * 10**9 - 1, -5 * 10**9, 0, EPOCH_NS * 2]
    for name, at_ns in zip(ODD, times, strict=True):
        desk.put(name, "needle")
        os.utime(desk.dirs.ws / name, ns=(at_ns, at_ns))
    found = await desk.call("Grep", pattern="needle")
    newest_first = [name for _, name in sorted(zip(times, ODD, strict=True), reverse=True)]
    assert found.structured["filenames"] == newest_first
    assert text_of(found).split("\n")[0] == f"Found {len(ODD)} files"


@pytest.mark.platform
async def test_files_of_one_time_are_named_by_path(desk: Desk) -> None:
    for name in ("b", "a/z", "c", "a/y"):
        desk.put(name, "needle")
        os.utime(desk.dirs.ws / name, ns=(EPOCH_NS, EPOCH_NS))
    found = await desk.call("Grep", pattern="needle")
    assert found.structured["filenames"] == ["a/y", "a/z", "b", "c"]


@pytest.mark.platform
@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
async def test_a_complaint_of_ripgrep_is_told_in_every_mode(desk: Desk, mode: str) -> None:
    refused = await desk.call("Grep", pattern="(", output_mode=mode)
    assert refused.is_error
    assert "unclosed group" in text_of(refused)


@pytest.mark.platform
@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
async def test_what_may_not_be_read_is_left_out_of_every_mode(desk: Desk, mode: str) -> None:
    for name in ("open 1", "secret", "d/secret", "d/open 2"):
        desk.put(name, "needle\nneedle\n")
    box = Toolbox(
        desk.tools,
        desk.workspace,
        desk.sandbox,
        hidden=lambda: lambda path: path.endswith("/secret"),
    )
    given = {"pattern": "needle", "output_mode": mode}
    text = text_of(await box.call(ToolCall("t", "Grep", given), ToolMemory()))
    assert ("open 1" in text, "d/open 2" in text, "secret" in text) == (True, True, False)


@pytest.mark.platform
@pytest.mark.parametrize("name", ["#todo", "#", " ", "end ", "end  ", "tab\t", "a#b", "\\ "])
async def test_marks_of_ignore_files_are_plain_characters_of_a_glob(desk: Desk, name: str) -> None:
    for each in (name, "other", "#", "end", "tab"):
        desk.put(each, "needle")
    pattern = name.replace("\\", "\\\\")
    found = await desk.call("Glob", pattern=pattern)
    assert found.structured["filenames"] == [name], text_of(found)
    if name.strip() == name:
        searched = await desk.call("Grep", pattern="needle", glob=pattern)
        assert searched.structured["filenames"] == [name]


async def test_a_long_sift_gives_others_their_turn() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def slow(number: int) -> bool:
        time.sleep(0.002)
        return number % 2 == 0

    other = asyncio.create_task(count())
    assert await kept(range(30), slow) == list(range(0, 30, 2))
    other.cancel()
    assert turns >= 6


@pytest.mark.platform
async def test_a_flood_of_globs_is_searched_or_refused_in_words(desk: Desk) -> None:
    desk.put("a.py", "needle")
    found = await desk.call("Grep", pattern="needle", glob="a.py," * 1000)
    assert text_of(found) == "Found 1 file\na.py"
    refused = await desk.call("Grep", pattern="needle", glob="*," * 9000)
    assert "holds 9000 globs, at most 1000" in text_of(refused)
