"""The order of evaluation: a table, and what holds for every call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.options import AgentOptions
from app.domain.permissions import HookVerdict, Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decide import decide
from app.permissions.decision import Allow, Ask, Author, Decision, Deny, unanswered
from app.permissions.permissions import Permissions

READ = ToolSpec("Read", "", {}, read_only=True)
EDIT = ToolSpec("Edit", "", {}, edits_files=True)
BASH = ToolSpec("Bash", "", {})
INPUTS = {
    "Read": {"file_path": "a"},
    "Edit": {"file_path": "a"},
    "Bash": {"command": "make"},
    "Question": {},
}
SPECS = (READ, EDIT, BASH)
MODES = ("default", "acceptEdits", "dontAsk", "bypassPermissions")


def decided(spec: ToolSpec, hook: HookVerdict | None = None, **options: object) -> Decision:
    permissions = Permissions.of(AgentOptions.model_validate(options))
    return decide(ToolCall("a", spec.name, INPUTS[spec.name]), spec, permissions, Scene(hook=hook))


@pytest.mark.requirement("permissions:modes")
@pytest.mark.parametrize(
    ("mode", "allowed"),
    [
        ("default", {"Read": "other"}),
        ("acceptEdits", {"Read": "other", "Edit": "mode"}),
        ("dontAsk", {"Read": "other"}),
        ("bypassPermissions", {"Read": "mode", "Edit": "mode", "Bash": "mode"}),
    ],
)
def test_a_mode_decides_for_tools_as_a_whole(mode: str, allowed: dict[str, str]) -> None:
    found = {spec.name: decided(spec, permission_mode=mode) for spec in SPECS}
    assert {n: d.reason for n, d in found.items() if isinstance(d, Allow)} == allowed
    assert {d.reason for d in found.values() if isinstance(d, Deny)} <= {"mode"}


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_deny_rule_beats_every_mode_and_every_allow_rule(spec: ToolSpec, mode: str) -> None:
    found = decided(
        spec, permission_mode=mode, allowed_tools=[spec.name], disallowed_tools=[spec.name]
    )
    assert isinstance(found, Deny)
    assert found.reason == "rule"
    assert spec.name in found.message


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize("mode", MODES)
def test_an_allow_rule_lets_its_tool_run_in_every_mode(mode: str) -> None:
    assert isinstance(decided(BASH, permission_mode=mode, allowed_tools=["Bash"]), Allow)


def test_an_allow_rule_is_named_as_the_reason() -> None:
    assert decided(BASH, allowed_tools=["Bash"]) == Allow(
        "rule", Author("rule", "options: allow Bash")
    )


def test_want_of_somebody_to_ask_and_a_mode_that_never_asks_read_differently() -> None:
    nobody, never = decided(BASH), decided(BASH, permission_mode="dontAsk")
    assert isinstance(nobody, Ask)
    assert isinstance(never, Deny)
    assert unanswered(nobody).message == nobody.message
    assert nobody.message != never.message


def verdict(decision: str) -> HookVerdict:
    return HookVerdict(decision, "why", "h")  # type: ignore[arg-type]  # a literal


@pytest.mark.parametrize(
    ("says", "options", "found"),
    [
        ("deny", {"permission_mode": "bypassPermissions"}, "Deny"),
        ("ask", {"permission_mode": "bypassPermissions"}, "Ask"),
        ("ask", {"permission_mode": "dontAsk", "allowed_tools": ["Bash"]}, "Deny"),
        ("ask", {"allowed_tools": ["Bash"]}, "Ask"),
        ("allow", {}, "Allow"),
        ("allow", {"permission_mode": "dontAsk"}, "Allow"),
        ("allow", {"disallowed_tools": ["Bash"]}, "Deny"),
        ("ask", {"disallowed_tools": ["Bash"]}, "Deny"),
    ],
)
def test_a_hook_stands_between_deny_rules_and_modes(
    says: str, options: dict[str, object], found: str
) -> None:
    assert type(decided(BASH, verdict(says), **options)).__name__ == found


def test_a_tool_that_needs_a_person_is_asked_in_every_mode_but_the_one_that_never_asks() -> None:
    question = ToolSpec("Question", "", {}, read_only=True, needs_person=True)
    found = {
        mode: type(decided(question, permission_mode=mode, allowed_tools=["Question"])).__name__
        for mode in MODES
    }
    assert found == {
        "default": "Ask",
        "acceptEdits": "Ask",
        "dontAsk": "Deny",
        "bypassPermissions": "Ask",
    }


NAMES = st.lists(st.sampled_from(["Read", "Edit", "Bash"]), max_size=3)


@pytest.mark.requirement("permissions:rules")
@given(
    st.sampled_from(SPECS), st.sampled_from(MODES), NAMES, NAMES, st.sampled_from(["Read", "Bash"])
)
def test_a_deny_rule_more_never_allows_more(
    spec: ToolSpec, mode: str, allowed: list[str], denied: list[str], more: str
) -> None:
    def found(rules: list[str]) -> Decision:
        return decided(spec, permission_mode=mode, allowed_tools=allowed, disallowed_tools=rules)

    if isinstance(found(denied), Deny):
        assert isinstance(found([*denied, more]), Deny)
