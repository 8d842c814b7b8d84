"""Where a conversation is cut."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compaction.cut import cut_point
from app.domain.model import ContextMessage


def said(role: str, size: int = 1, *, before: int = 0) -> ContextMessage:
    block = orjson.dumps({"type": "text", "text": "x" * size * 4})
    assert role in {"user", "assistant"}
    return ContextMessage("user" if role == "user" else "assistant", (block,), tokens_before=before)


def talk(*sizes: int) -> list[ContextMessage]:
    """Messages of those sizes in turns, the user's first."""
    return [said("assistant" if at % 2 else "user", size) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("context", "cut"),
    [
        ([], None),
        (talk(9, 9), 1),  # a prompt alone can be large enough to be worth it
        (talk(9, 9, 9, 9), 3),
        (talk(1, 1, 1, 1, 1, 1), 3),  # at least one exchange goes
        (talk(1, 1, 1, 1, 1, 500), 5),  # at least the last one stays
        (talk(1, 1, 1, 500, 1, 1), 5),
    ],
)
def test_the_tail_is_as_long_as_it_may_be(context: list[ContextMessage], cut: int | None) -> None:
    assert cut_point(context, 0, 100, has_summary=False) == cut


def test_what_the_provider_counted_wins_over_a_smaller_estimate() -> None:
    context = [
        said("user"),
        said("assistant", before=1_000),
        said("user"),
        said("assistant", before=2_000),
        said("user"),
        said("assistant", before=2_950),
    ]
    assert cut_point(context, 3_000, 100, has_summary=False) == 5
    assert cut_point(context, 3_000, 1_000, has_summary=False) == 3


def test_as_little_as_possible_is_the_last_exchange() -> None:
    context = talk(1, 1, 1, 1, 1, 1)
    assert cut_point(context, 0, 100, has_summary=False, keeps_least=True) == 5


def test_a_summary_alone_is_not_summarised_again() -> None:
    assert cut_point(talk(9, 9), 0, 1, has_summary=True) is None
    assert cut_point(talk(9, 9, 9, 9), 0, 1, has_summary=True) == 3


@given(
    st.lists(st.integers(0, 60), max_size=12),
    st.integers(0, 500),
    st.integers(0, 500),
    st.booleans(),
    st.booleans(),
)
def test_a_cut_stands_before_an_assistant_message_and_takes_something_away(
    sizes: list[int],
    used: int,
    tail: int,
    has_summary: bool,
    keeps_least: bool,
) -> None:
    context = talk(*sizes)
    cut = cut_point(context, used, tail, has_summary=has_summary, keeps_least=keeps_least)
    if cut is not None:
        assert 0 < cut < len(context)
        assert context[cut].role == "assistant"
        assert context[cut - 1].role == "user"
