"""Arguments in the text of a skill."""

import pytest

from app.domain.substitution import MOST_PUT_IN, commands_of, mentions_of, substituted


@pytest.mark.requirement("skill:arguments")
@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("Do $ARGUMENTS now", "a  b", "Do a  b now"),
        ("$0 then $1, $1", "a b", "a then b, b"),
        ("$0 and $2", "a b", "a and $2"),
        ("$10", "a b", "$10"),
        ("$0", "", "$0"),
        ("$ARGUMENTS", "", ""),
        ("Plain.\n", "a b", "Plain.\n\nARGUMENTS: a b"),
        ("Plain.", "", "Plain."),
        ("See ${CLAUDE_SKILL_DIR}/x", "a", "See /s/x\n\nARGUMENTS: a"),
        # What was put in is text: it is not looked at again.
        ("$0 $1", "$1 $ARGUMENTS", "$1 $ARGUMENTS"),
        ("$ARGUMENTS", "\\1 ${CLAUDE_SKILL_DIR}", "\\1 ${CLAUDE_SKILL_DIR}"),
        ("!`cat $0`", "a !`b`", "!`cat a`"),
        ("!`ls` $0", "!`ls`", "OUT !`ls`"),
        ("$ARGUMENTSX costs $5000", "a", "$ARGUMENTSX costs $5000\n\nARGUMENTS: a"),
    ],
)
def test_arguments_stand_where_the_text_wants_them(
    body: str, arguments: str, expected: str
) -> None:
    assert substituted(body, arguments, "/s", {"ls": "OUT"}) == expected


@pytest.mark.requirement("command:inert")
def test_a_text_asks_for_what_holds_no_place_for_arguments() -> None:
    body = "!`cat ${CLAUDE_SKILL_DIR}/a` x=!`b` !`c $0` !`d $ARGUMENTS` @e.txt, @$0/f @${CLAUDE_SKILL_DIR}/g"
    assert commands_of(body, "/s") == {"cat ${CLAUDE_SKILL_DIR}/a": "cat /s/a"}
    assert mentions_of(body, "/s") == ["e.txt", "/s/g"]


@pytest.mark.requirement("skill:arguments")
def test_a_text_of_many_places_does_not_grow_without_end() -> None:
    long = "x" * (MOST_PUT_IN + 1)
    many = substituted("$ARGUMENTS " * 6_000, long, "")
    assert many == f"{long} " + "$ARGUMENTS " * 5_999
    outputs = substituted("!`ls` " * 9_000, "", "", outputs={"ls": "y" * 30_000})
    assert outputs == ("y" * 30_000 + " ") * 33 + "!`ls` " * (9_000 - 33)
