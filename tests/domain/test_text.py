from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.text import (
    MAX_JSON_DEPTH,
    is_plain,
    is_too_deep,
    printable,
    printable_value,
    unstorable,
)

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.requirement("text:repaired")
@pytest.mark.parametrize(
    ("text", "fault", "shown"),
    [
        ("plain", None, "plain"),
        ("grüße 🙂", None, "grüße 🙂"),
        ("a\0b", "a NUL character", "a\u2400b"),
        ("a\ud800b", "a lone surrogate", "a\ufffdb"),
        ("grüße 🙂\udfff", "a lone surrogate", "grüße 🙂\ufffd"),
        ("\udc80\0", "a NUL character", "\ufffd\u2400"),
    ],
)
def test_text_that_cannot_be_stored_is_named_and_shown(
    text: str, fault: str | None, shown: str
) -> None:
    assert unstorable(text) == fault
    assert printable(text) == shown


@pytest.mark.requirement("text:repaired")
@given(JSON)
def test_a_repaired_value_can_be_stored_whole(value: object) -> None:
    shown = printable_value(value)
    body = orjson.dumps(shown)
    assert b"\\u0000" not in body
    assert printable_value(shown) == shown


@pytest.mark.requirement("text:repaired")
@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (2**64, str(2**64)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (10**5_000, "(a number of 16610 bits)"),
    ],
    ids=["most", "least", "more", "less", "huge"],
)
def test_numbers_that_few_can_read_become_their_digits(number: int, shown: object) -> None:
    assert printable_value([number]) == [shown]


def test_keys_tuples_and_nested_strings_are_repaired_and_all_else_stays() -> None:
    found = printable_value({"a\0": ("b\0", [1, None, True, 1.5])})
    assert found == {"a\u2400": ["b\u2400", [1, None, True, 1.5]]}


@pytest.mark.parametrize("levels", range(5))
@pytest.mark.parametrize("others", [0, 20])
@pytest.mark.parametrize(
    ("flaw", "shown"),
    [("a\0b", "a\u2400b"), ("\udfff", "\ufffd"), (2**64, str(2**64)), ({"\0": 1}, {"\u2400": 1})],
)
def test_a_flaw_is_found_at_every_level_of_small_and_large_objects(
    flaw: Any, shown: Any, others: int, levels: int
) -> None:
    beside = {str(number): number for number in range(others)}
    for _ in range(levels):
        flaw, shown = {"a": flaw, **beside}, {"a": shown, **beside}
    assert printable_value(flaw) == shown
    assert printable_value(shown) is shown


@pytest.mark.parametrize(
    "wrap", [lambda v: {"a": v}, lambda v: [v], lambda v: [1, {"b": "x", "c": v}]]
)
def test_depth_is_counted_in_objects_and_lists(wrap: Any) -> None:
    levels = 2 if isinstance(wrap(0), list) and len(wrap(0)) > 1 else 1
    value: Any = 0
    for _ in range(MAX_JSON_DEPTH // levels):
        value = wrap(value)
    assert not is_too_deep(value)
    assert is_too_deep(wrap(value))


def test_a_wide_value_is_not_a_deep_one() -> None:
    assert not is_too_deep([{"a": [i]} for i in range(1_000)])


@pytest.mark.requirement("text:repaired")
@given(JSON)
def test_a_value_is_plain_if_nothing_of_it_has_to_be_repaired(value: Any) -> None:
    assert is_plain(value) == (printable_value(value) == value)


@pytest.mark.parametrize("other", [object(), b"x", {1: 2}, {"s": {1}}, [{"a": (b"x",)}]])
def test_what_is_no_json_is_not_plain(other: object) -> None:
    assert not is_plain(other)


@pytest.mark.parametrize("wrap", [lambda v: {"a": v}, lambda v: [v], lambda v: (v,)])
def test_what_nests_too_deep_is_not_plain(wrap: Any) -> None:
    value: Any = "x"
    for _ in range(MAX_JSON_DEPTH):
        value = wrap(value)
    assert is_plain(value)
    assert not is_plain(wrap(value))
