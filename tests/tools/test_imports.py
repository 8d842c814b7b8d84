import time

import pytest

from app.tools.imports import imports


@pytest.mark.requirement("context:imports")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@a.md", ["a.md"]),
        ("see @docs/a.md and\n\t@b", ["docs/a.md", "b"]),
        ("(see @a.md), mail me@x.org", ["a.md),"]),
        ("@~/x @/etc/passwd @../up", ["~/x", "/etc/passwd", "../up"]),
        (r"@my\ notes.md x", ["my notes.md"]),
        ("`@a` ``@b ` @c`` @d", ["d"]),
        ("a lone ` @a", ["a"]),
        ("``` @a ` @b", ["a", "b"]),
        ("```\n@a\n```\n@b", ["b"]),
        ("~~~~ py\n@a\n~~~\n```\n@b\n~~~~\n@c", ["c"]),
        ("```\n@never closed", []),
        ("@", []),
        ("", []),
    ],
)
def test_mentions_are_found_in_prose_only(text: str, found: list[str]) -> None:
    assert [meanings[0] for meanings in imports(text)] == found


def test_a_mention_may_end_a_phrase() -> None:
    assert [*imports("Read @a.md. Then (@b!)")] == [("a.md.", "a.md")]
    assert [*imports("Ask @b!)")] == [("b!)", "b")]


@pytest.mark.parametrize(
    "text",
    [
        "@" * 100_000,
        " @a" * 30_000,
        "@" + "` `` " * 20_000,
        "@ " + " ".join("`" * n for n in range(1, 400)),
        "@a\\ " * 20_000,
        "`" * 100_000 + "@",
        "~~~\n" * 30_000,
    ],
)
def test_hostile_text_takes_no_longer_than_its_length(text: str) -> None:
    began = time.process_time()
    for _ in imports(text):
        pass
    assert time.process_time() - began < 5  # what grows as its square takes minutes
