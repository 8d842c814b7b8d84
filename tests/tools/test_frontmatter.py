"""The head of Markdown files that strangers wrote."""

import time

import pytest

from app.tools.frontmatter import MAX_HEAD_CHARS, Document, read_document
from app.tools.skills import allowed_tools


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("just text", Document("just text")),
        ("", Document("")),
        ("---\nname: a\n---\nbody\n", Document("body\n", {"name": "a"})),
        ("\ufeff---\r\nname: a\r\n---\r\nbody", Document("body", {"name": "a"})),
        ("---\n---\nbody", Document("body")),
        ("---\nname: a\n---", Document("", {"name": "a"})),
        ("---\nname: a\nbody", Document("---\nname: a\nbody")),
        ("text\n---\nname: a\n---\n", Document("text\n---\nname: a\n---\n")),
        # Nothing but texts: YAML's own ideas of numbers, dates and truth change nothing.
        (
            "---\na: no\nb: 007\nc: 2026-01-02\nd: ~\n---\n",
            Document("", {"a": "no", "b": "007", "c": "2026-01-02", "d": "~"}),
        ),
        ("---\na: [x, 'y, z']\n---\n", Document("", {"a": ("x", "y, z")})),
        ("---\na: |\n  one\n  two\n---\n", Document("", {"a": "one\ntwo\n"})),
        ("---\na: {b: c}\n---\n", Document("")),
        ("---\n- a\n---\nbody", Document("body")),
        ("---\na: b: c: [\n---\nbody", Document("body")),
        ("---\na: !!python/object/apply:os.system [id]\n---\n", Document("", {"a": ("id",)})),
        ("---\na: \x00\n---\nbody", Document("body", {"a": "\u2400"})),
        ("---\na: \ud800\n---\nbody", Document("body", {"a": "\ufffd"})),
    ],
)
def test_a_head_is_read_as_texts(text: str, expected: Document) -> None:
    assert read_document(text) == expected


@pytest.mark.parametrize(
    "head",
    [
        "a: " + "[" * (MAX_HEAD_CHARS - 3),
        "- " * (MAX_HEAD_CHARS // 2),
        "? " * (MAX_HEAD_CHARS // 2),
        "a: &a [x]\n" + "".join(f"{c}: &{c} [*a, *a, *a]\n" for c in "bcdefghij"),
        "a: " + "x" * MAX_HEAD_CHARS,
        "&a [*a]",
    ],
)
def test_a_head_that_is_a_trap_costs_nothing(head: str) -> None:
    assert read_document(f"---\n{head}\n---\nbody").body == "body"


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("Read, Bash(npm run *), Write", ("Read", "Bash(npm run *)", "Write")),
        ("Bash(git log -1, --all), Read", ("Bash(git log -1, --all)", "Read")),
        ("[Read, 'Bash(a, b)']", ("Read", "Bash(a, b)")),
        ("Read,,  ,", ("Read",)),
        ("Read, Bash(git, Write", ("Read", "Bash(git, Write")),
        ("''", ()),
    ],
)
def test_a_list_is_one_of_yaml_or_has_commas(value: str, names: tuple[str, ...]) -> None:
    assert read_document(f"---\ntools: {value}\n---\n").names("tools") == names


@pytest.mark.requirement("skill:hostile")
@pytest.mark.parametrize("value", ["(" * 16_000, "(," * 8_000, "a(b" * 5_000])
def test_the_end_of_a_parenthesis_is_looked_for_once(value: str) -> None:
    document = read_document(f"---\nallowed-tools: '{value}'\n---\n")
    began = time.thread_time()
    assert document.names("allowed-tools") == allowed_tools(document) == (value,)
    assert time.thread_time() - began < 0.1


def test_a_flag_that_is_missing_has_its_default() -> None:
    document = read_document("---\na: true\nb: 'No'\n---\n")
    flags = [document.flag("a"), document.flag("b", default=True), document.flag("c", default=True)]
    assert flags == [True, False, True]
