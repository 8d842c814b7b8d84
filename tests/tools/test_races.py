"""A process that swaps a folder and a link while the tools run gains nothing."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.tools.beneath import open_beneath, walk_beneath
from tests.tools.desk import Desk, text_of

pytestmark = pytest.mark.platform

ROUNDS = 2500
"""For each of two ways in and two tools: ten thousand in all."""
SWAPPER = Path(__file__).with_name("swapper.py")


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, SWAPPER, one, other], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield
        assert child.poll() is None, "the swapper ended early"
    finally:
        child.kill()
        child.communicate()


def rounds(least: int, is_met: Callable[[], bool]) -> Iterator[int]:
    """Count so many, and more until each way was met: the swapper may have no processor for a while."""
    give_up = time.monotonic() + 20
    number = 0
    while number < least or (not is_met() and time.monotonic() < give_up):
        yield number
        number += 1


def arrange(desk: Desk, target: str) -> Path:
    """`d` holds a file of the agent, `l` leads to a folder that all may write; gives the latter."""
    outside = desk.dirs.ws.parent / "outside"
    outside.mkdir()
    (outside / "x").write_text("outside")
    (outside / "x").chmod(0o666)
    outside.chmod(0o777)
    desk.dirs.ws.parent.chmod(0o755)
    desk.put("d/x", "inside")
    desk.symlink("l", str(outside) if target == "absolute" else "../outside")
    return outside


@pytest.mark.parametrize("target", ["absolute", "relative"])
async def test_f11_a_swapped_link_never_shows_a_file_outside(target: str, desk: Desk) -> None:
    arrange(desk, target)
    seen: dict[str, int] = {}
    with swapping(desk.dirs.ws / "d", desk.dirs.ws / "l"):
        for _ in rounds(ROUNDS, lambda: len(seen) > 1):
            result = await desk.call("Read", file_path="d/x")
            text = "refused" if result.is_error else text_of(result)
            seen[text] = seen.get(text, 0) + 1
    assert set(seen) == {"refused", "1\tinside"}, "each way must have been met"


@pytest.mark.parametrize("target", ["absolute", "relative"])
async def test_f11_f12_a_swapped_link_never_takes_a_write_outside(target: str, desk: Desk) -> None:
    outside = arrange(desk, target)
    seen: set[bool] = set()
    with swapping(desk.dirs.ws / "d", desk.dirs.ws / "l"):
        for number in rounds(ROUNDS, lambda: len(seen) > 1):
            result = await desk.call("Write", file_path=f"d/{number % 50}/new", content=f"{number}")
            seen.add(bool(result.is_error))
    assert seen == {True, False}, "each way must have been met"
    assert [path.name for path in outside.iterdir()] == ["x"]
    assert (outside / "x").read_text() == "outside"


@pytest.mark.parametrize("opening", [open_beneath, walk_beneath])
async def test_f11_neither_way_of_opening_can_be_raced(
    opening: Callable[[int, str, int], int], desk: Desk
) -> None:
    arrange(desk, "relative")
    root_fd = os.open(desk.dirs.ws, os.O_RDONLY | os.O_DIRECTORY)
    seen: set[bytes | str] = set()
    try:
        with swapping(desk.dirs.ws / "d", desk.dirs.ws / "l"):
            for _ in rounds(4 * ROUNDS, lambda: len(seen) > 1):
                try:
                    fd = opening(root_fd, "d/x", os.O_RDONLY)
                except OSError:
                    seen.add("refused")
                    continue
                seen.add(os.read(fd, 100))
                os.close(fd)
    finally:
        os.close(root_fd)
    assert seen == {"refused", b"inside"}
