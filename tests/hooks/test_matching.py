import time

import pytest

from app.hooks.matching import matcher_of


@pytest.mark.requirement("hooks:matching")
@pytest.mark.parametrize(
    ("matcher", "matched", "others"),
    [
        (None, ["Bash", "", None], []),
        ("", ["Bash", None], []),
        ("*", ["Bash"], []),
        ("Bash", ["Bash", None], ["BashOutput", "bash", ""]),
        ("Edit|Write", ["Edit", "Write"], ["NotebookEdit", "Edit|Write"]),
        ("mcp__m__a-b", ["mcp__m__a-b"], ["mcp__m__a"]),
        ("^mcp__.*__delete", ["mcp__m__delete_all"], ["mcp__m__get", "x_mcp__m__delete"]),
        ("Notebook.*", ["NotebookEdit", "MyNotebookEdit"], ["Edit"]),
        (".*", ["Bash", "anything"], []),
        ("(?i)bash", ["BASH"], ["sh"]),
    ],
)
def test_a_matcher_is_names_or_an_expression(
    matcher: str | None, matched: list[str | None], others: list[str]
) -> None:
    matches = matcher_of(matcher)
    assert [matches(subject) for subject in matched] == [True] * len(matched)
    assert [matches(subject) for subject in others] == [False] * len(others)


@pytest.mark.parametrize("text", ["(", "(?=x)", "(a)\\1", "a{1000}{1000}{1000}", "\\", "[z-a]"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no regular expression"):
        matcher_of(text)


@pytest.mark.requirement("hooks:matching")
def test_no_expression_takes_long() -> None:
    began = time.monotonic()
    for expression in ("^(a+)+$", "^(a|a)*$", "(.*a){20}$"):
        assert not matcher_of(expression)("a" * 200 + "!")
    assert time.monotonic() - began < 5
