"""The tables of modes and rules hold, row by row; and what holds for every call."""

from collections.abc import Mapping

import pytest

from tests.permissions.attacks import (
    HIDDEN_PUSH,
    HIDDEN_READS,
    HIDDEN_RM,
    HOOK_WRITES,
    NOT_RM,
    NOT_STATUS,
    SAME_STATUS,
    SECRET_READS,
    STILL_RM,
)
from tests.permissions.tables import (
    ALLOW,
    DENY,
    MATRIX,
    MODES,
    UNSURE,
    Call,
    answer,
    bash,
    decided,
    file,
    letter,
)


def named(call: Call) -> str:
    return f"{call[0]} {next(iter(call[1].values()), '')!s:.60}"


@pytest.mark.requirement("permissions:modes")
@pytest.mark.parametrize(
    ("letters", "call"),
    [pytest.param(letters, call, id=named(call)) for letters, calls in MATRIX for call in calls],
)
def test_a_mode_decides_what_no_rule_names(letters: str, call: Call) -> None:
    found = "".join(letter(decided(call, permission_mode=mode)) for mode in MODES)
    assert found == letters


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize(("rule", "allowed", "others"), ALLOW, ids=[row[0] for row in ALLOW])
def test_an_allow_rule_covers_what_it_says_and_nothing_else(
    rule: str, allowed: list[Call], others: list[Call]
) -> None:
    found = {named(call): letter(decided(call, allowed_tools=[rule])) for call in allowed}
    assert found == dict.fromkeys(found, "A")
    found = {named(call): letter(decided(call, allowed_tools=[rule])) for call in others}
    assert found == dict.fromkeys(found, "?")


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize(("rule", "allow", "denied", "others"), DENY, ids=[row[0] for row in DENY])
def test_a_deny_rule_beats_allow_rules_and_every_mode(
    rule: str, allow: list[str], denied: list[Call], others: list[Call]
) -> None:
    rules: Mapping[str, object] = {"allowed_tools": allow, "disallowed_tools": [rule]}
    for mode in MODES:
        found = {named(c): letter(decided(c, permission_mode=mode, **rules)) for c in denied}  # type: ignore[arg-type]  # options
        assert found == dict.fromkeys(found, "D")
    found = {named(call): letter(decided(call, **rules)) for call in others}  # type: ignore[arg-type]  # options
    assert found == dict.fromkeys(found, "A")


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize(("rule", "call"), UNSURE, ids=[named(call) for _, call in UNSURE])
def test_a_command_that_hides_whether_a_deny_rule_reaches_it_is_asked_in_every_mode(
    rule: str, call: Call
) -> None:
    found = {
        mode: letter(
            decided(call, permission_mode=mode, allowed_tools=["Bash"], disallowed_tools=[rule])
        )
        for mode in MODES
    }
    assert found == {**dict.fromkeys(MODES, "?"), "dontAsk": "D"}


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize(("rule", "allow", "denied", "others"), DENY, ids=[row[0] for row in DENY])
def test_an_ask_rule_is_asked_in_every_mode_and_denied_where_nobody_is_asked(
    rule: str, allow: list[str], denied: list[Call], others: list[Call]
) -> None:
    del others
    for mode in MODES:
        found = {
            letter(decided(c, permission_mode=mode, allowed_tools=allow, ask_tools=[rule]))
            for c in denied
        }
        assert found == ({"D"} if mode == "dontAsk" else {"?"})


def test_a_denial_says_what_was_denied() -> None:
    found = answer(("Bash", {"command": "rm zz"}), disallowed_tools=["Bash(rm:*)"])
    assert letter(found) == "D"
    assert "Permission to use Bash with command rm zz has been denied." in str(found)


def letters(commands: list[str], **options: object) -> dict[str, str]:
    return {command: letter(decided(bash(command), **options)) for command in commands}  # type: ignore[arg-type]  # options


@pytest.mark.requirement("permissions:rules")
def test_an_allow_rule_for_a_prefix_lets_nothing_else_through() -> None:
    rules = ["Bash(git status:*)"]
    found = letters(NOT_STATUS, allowed_tools=rules)
    assert found == dict.fromkeys(NOT_STATUS, "?")
    found = letters(SAME_STATUS, allowed_tools=rules)
    assert found == dict.fromkeys(SAME_STATUS, "A")


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize("mode", MODES)
def test_a_deny_rule_reaches_a_command_however_it_is_run(mode: str) -> None:
    rules = {"allowed_tools": ["Bash"], "disallowed_tools": ["Bash(rm:*)"]}
    assert letters(STILL_RM, permission_mode=mode, **rules) == dict.fromkeys(STILL_RM, "D")
    unsure = "D" if mode == "dontAsk" else "?"
    assert letters(HIDDEN_RM, permission_mode=mode, **rules) == dict.fromkeys(HIDDEN_RM, unsure)
    if mode != "plan":
        assert letters(NOT_RM, permission_mode=mode, **rules) == dict.fromkeys(NOT_RM, "A")


@pytest.mark.requirement("permissions:rules")
def test_what_xargs_reads_may_be_what_a_deny_rule_forbids() -> None:
    rules = {"allowed_tools": ["Bash"], "disallowed_tools": ["Bash(git push *)"]}
    assert letters(HIDDEN_PUSH, **rules) == dict.fromkeys(HIDDEN_PUSH, "?")
    assert letters(["ls | xargs git add"], **rules) == {"ls | xargs git add": "A"}


@pytest.mark.requirement("permissions:rules")
def test_a_deny_rule_reaches_a_path_wherever_the_shell_stands() -> None:
    rules = {"allowed_tools": ["Bash"], "disallowed_tools": ["Read(./secret/**)"]}
    for mode in ("default", "bypassPermissions"):
        found = letters(SECRET_READS, permission_mode=mode, **rules)
        assert found == dict.fromkeys(SECRET_READS, "D")
        found = letters(HIDDEN_READS, permission_mode=mode, **rules)
        assert found == dict.fromkeys(HIDDEN_READS, "?")


@pytest.mark.requirement("permissions:modes")
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "bypassPermissions"])
def test_what_changes_programs_later_is_approved_whatever_allows_it(mode: str) -> None:
    found = letters(HOOK_WRITES, permission_mode=mode, allowed_tools=["Bash", "Edit"])
    assert found == dict.fromkeys(HOOK_WRITES, "D" if mode == "dontAsk" else "?")


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize(
    "pattern",
    [
        *("./secret/**", ".//secret/**", "././secret/**", "/./secret/**", "/a/../secret/**"),
        *(
            "../workspace/secret/**",
            "a/../secret/",
            "//workspace//secret/**",
            "//workspace/./secret",
        ),
        *("///workspace/secret/**", "//workspace/a/../secret/*", "~/../../workspace/secret/**"),
    ],
)
def test_a_path_pattern_means_the_same_however_it_is_written(pattern: str) -> None:
    for call in (file("Read", "secret/s"), file("Write", "secret/s"), bash("cat secret/s")):
        assert letter(decided(call, disallowed_tools=[f"Read({pattern})"])) == "D"
    inside, outside = file("Edit", "secret/s"), file("Edit", "other/s")
    assert letter(decided(inside, allowed_tools=[f"Edit({pattern})"])) == "A"
    assert letter(decided(outside, allowed_tools=[f"Edit({pattern})"])) == "?"


AGENT: Call = ("Agent", {"subagent_type": "explorer"})
SKILL: Call = ("Skill", {"skill": "review"})


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("Agent", AGENT),
        ("Task", AGENT),
        ("Agent(explorer)", AGENT),
        ("Task(explorer)", AGENT),
        ("Agent(general-purpose)", ("Agent", {})),
        ("Agent(general-purpose)", ("Agent", {"subagent_type": ""})),
        ("Skill(review)", SKILL),
        ("Skill(/review)", SKILL),
        ("Skill(review)", ("Skill", {"skill": "/review"})),
        ("Skill(review)", ("Skill", {"skill": " review\n"})),
    ],
)
def test_a_rule_reaches_what_a_name_means_however_it_is_written(rule: str, call: Call) -> None:
    assert letter(decided(call, disallowed_tools=[rule])) == "D"
    assert letter(decided(call, ask_tools=[rule])) == "?"
    for other in (("Agent", {"subagent_type": "other"}), ("Skill", {"skill": "other"})):
        is_bare = "(" not in rule and other[0] == "Agent"
        assert letter(decided(other, disallowed_tools=[rule])) == ("D" if is_bare else "A")
