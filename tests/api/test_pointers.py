"""Pointers into a body, from what pydantic says of it."""

import pytest

from app.api.pointers import body_pointer


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ([], {}, ""),
        (["a"], {"a": 1}, "/a"),
        (["a", 0, "b"], {"a": [{"b": 1}]}, "/a/0/b"),
        (["a~b/c"], {"a~b/c": 1}, "/a~0b~1c"),
        (["max_turns"], {"maxTurns": 0}, "/maxTurns"),
        (["a", "str"], {"a": 1}, "/a"),
        (["a", "list[b]", 0], {"a": [1]}, "/a/0"),
        (["a", "str"], {"a": {"x": 1}}, "/a"),
        (["a", "text", "text"], {"a": {"type": "text", "text": 1}}, "/a/text"),
        (["a", "text", "b"], {"a": {"type": "text", "text": "x", "b": 1}}, "/a/b"),
        (["a", "b"], {"a": None}, "/a"),
        (["a", 5], {"a": [1]}, "/a/5"),
        (["n" * 900], {"n" * 900: 1}, "/" + "n" * 200),
    ],
)
def test_a_pointer_names_what_the_client_wrote(
    path: list[int | str], body: object, pointer: str
) -> None:
    assert body_pointer(path, body, is_missing=False) == pointer


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (["a"], {}, "/a"),
        (["a", "b"], {"a": {}}, "/a/b"),
        (["a", "text", "text"], {"a": {"type": "text"}}, "/a/text"),
        (["a", "text"], {"a": {"type": "text"}}, "/a/text"),
    ],
)
def test_a_pointer_names_what_is_missing(path: list[int | str], body: object, pointer: str) -> None:
    assert body_pointer(path, body, is_missing=True) == pointer
