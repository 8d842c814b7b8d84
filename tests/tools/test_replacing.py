"""Replacing a text: the quick ways give what the slow one gives."""

from hypothesis import assume, given
from hypothesis import strategies as st

from app.tools.builtin.replacing import Replaced, _replaced_by_place, count_matches, replace

_TEXTS = st.text(alphabet="ab\n'\u2019\\.", max_size=12)


@given(_TEXTS, st.text(alphabet="ab\n'\u2019\\.", min_size=1, max_size=3), _TEXTS)
def test_quick_and_slow_ways_agree(text: str, old: str, new: str) -> None:
    assume(count_matches(text, old))
    assert replace(text, old, new) == _replaced_by_place(text, old, new)


def test_a_deleted_line_takes_its_end_along() -> None:
    assert replace("a\nb\na\nab", "a", "") == Replaced("b\nb", "a", 3)


def test_each_match_keeps_its_own_quotes() -> None:
    text = "\u2018a\u2019 \u201ca\u201d 'b'"
    assert replace(text, "'a'", "'c'") == Replaced(
        "\u2018c\u2019 \u201ca\u201d 'b'", "\u2018a\u2019", 1
    )
