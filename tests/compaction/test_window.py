"""How full a window may become."""

import pytest

from app.compaction.window import Window


@pytest.mark.parametrize(
    ("tokens", "compact_at", "blocked_at", "tail"),
    [
        (1_000_000, 967_000, 977_000, 20_000),
        (200_000, 167_000, 177_000, 20_000),
        (32_000, 25_600, 28_000, 3_200),
    ],
)
def test_room_is_kept_free(tokens: int, compact_at: int, blocked_at: int, tail: int) -> None:
    window = Window(tokens)
    assert (window.compact_at, window.blocked_at, window.tail) == (compact_at, blocked_at, tail)
