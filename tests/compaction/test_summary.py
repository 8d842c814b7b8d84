"""The words of a compaction, and which answers hold notes."""

import pytest

from app.compaction.summary import STRICTER, TASK, notes_of, summary_text, task


@pytest.mark.parametrize(
    ("answer", "stop_reason", "notes"),
    [
        ("I think.\n<summary>\nthe notes\n</summary> done", "end_turn", "the notes"),
        ("<summary>the notes</summary>", "tool_use", "the notes"),
        ("the notes", "end_turn", "the notes"),
        ("let me look first", "tool_use", None),
        ("<summary>cut in the mid", "max_tokens", None),
        ("<summary> </summary>", "end_turn", None),
        (" \n", "end_turn", None),
        ("no", "refusal", None),
    ],
)
def test_notes_are_what_an_answer_says_they_are(
    answer: str, stop_reason: str, notes: str | None
) -> None:
    assert notes_of(answer, stop_reason) == notes


def test_instructions_of_the_user_are_added_to_the_task() -> None:
    assert task("") == TASK
    assert task("keep the colours").startswith(TASK)
    assert task("keep the colours").endswith("keep the colours")
    assert task("keep", is_strict=True).endswith(f"keep{STRICTER}")


def test_the_summary_holds_the_notes_and_says_how_to_go_on() -> None:
    by_itself, by_command = (summary_text("NOTES", is_asked=asked) for asked in (False, True))
    assert "NOTES" in by_itself
    assert "NOTES" in by_command
    assert by_itself != by_command
