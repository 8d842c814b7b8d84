import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import ToolFailed
from app.sandbox.driver import Spool
from app.sandbox.output import Drain, HeadTail


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(2, 60))
def test_head_and_tail_are_kept_and_what_is_missing_is_counted(
    chunks: list[bytes], keep: int
) -> None:
    kept = HeadTail(keep)
    for chunk in chunks:
        kept.add(chunk)
    whole = b"".join(chunks)
    half = keep // 2
    expected = whole if len(whole) <= 2 * half else whole[:half] + whole[-half:]
    assert kept.kept() == (expected, len(whole) - len(expected))


def test_memory_stays_bounded_however_much_comes() -> None:
    kept = HeadTail(1000)
    for _ in range(1000):
        kept.add(bytes(64 * 1024))
        assert len(kept._head) + len(kept._tail) <= 1500 + 64 * 1024
    assert kept.total == 1000 * 64 * 1024


async def test_a_closed_drain_has_read_what_was_still_in_the_pipe() -> None:
    read, write = os.pipe()
    drain = Drain(read, keep_bytes=100, max_bytes=100, on_flood=lambda: None)
    os.write(write, b"last words")
    os.close(write)
    drain.close()
    assert drain.kept.kept() == (b"last words", 0)


async def test_a_flood_is_told_once() -> None:
    read, write = os.pipe()
    told: list[int] = []
    drain = Drain(read, keep_bytes=10, max_bytes=20, on_flood=lambda: told.append(1))
    os.write(write, bytes(50))
    drain._read()
    os.write(write, bytes(50))
    os.close(write)
    drain.close()
    assert drain.flooded
    assert told == [1]


def draining(make: Callable[[], int], *, after_bytes: int) -> tuple[int, Drain]:
    read, out = os.pipe()
    spool = Spool(make, after_bytes)
    return out, Drain(read, keep_bytes=20, max_bytes=10**6, on_flood=lambda: None, spool=spool)


async def test_what_is_too_long_to_be_kept_is_whole_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    out, drain = draining(lambda: new_file(path), after_bytes=10)
    os.write(out, b"0123456789")
    drain._read()
    assert [drain.is_spooled, path.exists()] == [False, False]
    for _ in range(3):
        os.write(out, b"abcdefghij" * 3)
        drain._read()
    os.close(out)
    drain.close(b"[end]")
    assert drain.is_spooled
    assert path.read_bytes() == b"0123456789" + b"abcdefghij" * 9 + b"[end]"
    assert drain.kept.kept() == (b"0123456789" + b"abcdefghij", 80)


async def test_from_a_moment_on_all_can_go_to_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "out"
    out, drain = draining(lambda: new_file(path), after_bytes=10)
    os.write(out, b"before ")
    drain._read()
    drain.spool_all()
    assert path.read_bytes() == b"before "
    os.write(out, b"after")
    os.close(out)
    drain.close()
    assert path.read_bytes() == b"before after"
    assert drain.kept.kept()[0] == b""


async def test_without_a_file_head_and_tail_are_kept() -> None:
    def refuse() -> int:
        raise ToolFailed("a link stands there")

    out, drain = draining(refuse, after_bytes=10)
    os.write(out, bytes(100))
    os.close(out)
    drain.close(b"[end]")
    assert not drain.is_spooled
    assert drain.kept.kept() == (bytes(20), 80)


async def test_what_was_refused_a_file_once_cannot_go_on_in_one() -> None:
    asked: list[int] = []

    def refuse() -> int:
        asked.append(1)
        raise ToolFailed("the quota is used up")

    out, drain = draining(refuse, after_bytes=10)
    for _ in range(3):
        os.write(out, bytes(100))
        drain._read()
    with pytest.raises(ToolFailed, match="the quota is used up"):
        drain.spool_all()
    assert drain.kept.kept()[1] == 280
    os.close(out)
    drain.close()
    assert asked == [1]


async def test_a_file_on_a_full_disk_cannot_be_gone_on_with() -> None:
    out, drain = draining(lambda: os.open("/dev/full", os.O_WRONLY), after_bytes=10)
    os.write(out, bytes(100))
    drain._read()
    with pytest.raises(ToolFailed, match="cannot be stored: No space left"):
        drain.spool_all()
    os.close(out)
    drain.close()


async def test_a_file_that_cannot_be_written_on_is_not_taken_for_whole() -> None:
    out, drain = draining(lambda: os.open("/dev/full", os.O_WRONLY), after_bytes=10)
    os.write(out, bytes(100))
    os.close(out)
    drain.close()
    assert not drain.is_spooled


def new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
