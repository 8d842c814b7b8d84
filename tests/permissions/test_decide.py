"""The order of evaluation: a table, and what holds for every call."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.options import AgentOptions, PermissionMode
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decide import Allow, Decision, Deny, decide

READ = ToolSpec("Read", "", {}, read_only=True)
EDIT = ToolSpec("Edit", "", {}, edits_files=True)
BASH = ToolSpec("Bash", "", {})
SPECS = (READ, EDIT, BASH)
MODES = get_args(PermissionMode)


def decided(spec: ToolSpec, **options: object) -> Decision:
    return decide(ToolCall("a", spec.name, {}), spec, AgentOptions.model_validate(options))


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
def test_a_mode_decides_what_no_rule_names(mode: str, allowed: dict[str, str]) -> None:
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
    assert decided(BASH, allowed_tools=["Bash"]) == Allow("rule")


def test_want_of_somebody_to_ask_and_a_mode_that_never_asks_read_differently() -> None:
    nobody, never = decided(BASH), decided(BASH, permission_mode="dontAsk")
    assert isinstance(nobody, Deny)
    assert isinstance(never, Deny)
    assert nobody.message != never.message


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
