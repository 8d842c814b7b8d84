import os

from hypothesis import given
from hypothesis import strategies as st

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
