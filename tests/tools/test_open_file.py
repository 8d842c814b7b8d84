"""Reading in a thread: a cancelled caller waits until the descriptor is free again."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from app.tools.open_file import OpenFile, Version, use


def opened(path: Path, size_bytes: int) -> OpenFile:
    path.write_bytes(b"x" * size_bytes)
    fd = os.open(path, os.O_RDONLY)
    return OpenFile(fd, Version.of(os.fstat(fd)))


def is_open(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").exists()


async def test_a_cancelled_read_closes_its_file_only_when_the_thread_is_done(
    tmp_path: Path,
) -> None:
    file = opened(tmp_path / "large", 300_000)
    loop = asyncio.get_running_loop()
    started, go_on = asyncio.Event(), threading.Event()

    def work(_: OpenFile) -> None:
        loop.call_soon_threadsafe(started.set)
        assert go_on.wait(10)
        raise OSError("the disk is gone")

    reading = asyncio.create_task(use(file, work))
    async with asyncio.timeout(10):
        await started.wait()
        reading.cancel()
        done, _ = await asyncio.wait([reading], timeout=0.05)
        assert not done, "it waits for the thread"
        assert is_open(file.fd)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert not is_open(file.fd)


@pytest.mark.parametrize("size_bytes", [10, 300_000])
async def test_a_file_is_closed_after_its_use_and_after_a_failure(
    size_bytes: int, tmp_path: Path
) -> None:
    file = opened(tmp_path / "a", size_bytes)
    assert await use(file, lambda f: len(f.content(10**6))) == size_bytes
    assert not is_open(file.fd)
    again = opened(tmp_path / "a", size_bytes)
    with pytest.raises(ZeroDivisionError):
        await use(again, lambda _: 1 // 0)
    assert not is_open(again.fd)


@pytest.mark.parametrize(("size_bytes", "is_at_once"), [(64 * 1024, True), (64 * 1024 + 1, False)])
async def test_only_a_small_file_is_worked_on_by_the_loop_itself(
    size_bytes: int, is_at_once: bool, tmp_path: Path
) -> None:
    file = opened(tmp_path / "a", size_bytes)
    worker = await use(file, lambda _: threading.get_ident())
    assert (worker == threading.get_ident()) is is_at_once


def test_a_file_that_shrinks_is_read_to_its_new_end(tmp_path: Path) -> None:
    with opened(tmp_path / "a", 100) as file:
        os.truncate(tmp_path / "a", 40)
        assert file.content(1000) == b"x" * 40


def test_a_file_that_grows_is_read_no_further_than_agreed(tmp_path: Path) -> None:
    with opened(tmp_path / "a", 100) as file:
        (tmp_path / "a").write_bytes(b"y" * 5000)
        assert len(file.content(1000)) <= 1000
    with opened(tmp_path / "b", 2_000_000) as file:
        assert len(file.content(1_500_000)) == 1_500_000
