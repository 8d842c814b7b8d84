from typing import Any

import pytest

from app.domain.hooks import HookEvent, PermissionRequest, PostToolUse, PreToolUse, Stop
from app.hooks.output import MAX_CHARS, Effect, effect_of

PRE = PreToolUse("k", "Bash", {}, "t")
POST = PostToolUse("k", "Bash", {}, "t", "out", 1)
STOP = Stop("k", stop_hook_active=False, last_assistant_message="", background_tasks=())
ASKED = PermissionRequest("k", "Bash", {}, ())


def specific(event: str, **given: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **given}}


@pytest.mark.requirement("hooks:outputs")
@pytest.mark.parametrize(
    ("output", "event", "effect"),
    [
        ({}, PRE, Effect()),
        ({"unknown": 1, "suppressOutput": True}, PRE, Effect()),
        (
            specific("PreToolUse", permissionDecision="allow", updatedInput={"a": 1}),
            PRE,
            Effect(decision="allow", updated_input={"a": 1}),
        ),
        (
            specific("PreToolUse", permissionDecision="ask", permissionDecisionReason="r"),
            PRE,
            Effect(decision="ask", reason="r"),
        ),
        (specific("PreToolUse", permissionDecision="defer"), PRE, Effect(defers=True)),
        ({"decision": "block", "reason": "r"}, PRE, Effect(decision="deny", reason="r")),
        ({"decision": "approve"}, PRE, Effect(decision="allow")),
        *(
            (
                {
                    "decision": "block",
                    "reason": "r",
                    **specific("PreToolUse", permissionDecision=p),
                },
                PRE,
                Effect(decision="deny", reason="r"),
            )
            for p in ("allow", "ask", "defer")
        ),
        (
            {"decision": "approve", **specific("PreToolUse", permissionDecision="deny")},
            PRE,
            Effect(decision="deny"),
        ),
        ({"decision": "block", "reason": "r"}, POST, Effect(block="r")),
        ({"decision": "block"}, STOP, Effect(block="")),
        ({"decision": "approve"}, STOP, Effect()),
        (specific("PostToolUse", additionalContext="c"), POST, Effect(context="c")),
        (
            specific("PostToolUse", updatedToolOutput={"stdout": ""}),
            POST,
            Effect(updated_output={"stdout": ""}),
        ),
        ({"continue": False, "stopReason": "s"}, PRE, Effect(stop="s")),
        ({"continue": False}, PRE, Effect(stop="")),
        ({"systemMessage": "m"}, STOP, Effect(says="m")),
        ({"async": True, "decision": "block", "reason": "r"}, POST, Effect()),
        (
            specific(
                "PermissionRequest",
                decision={"behavior": "deny", "message": "m", "interrupt": True},
            ),
            ASKED,
            Effect(decision="deny", reason="m", interrupts=True),
        ),
        (
            specific("PermissionRequest", decision={"behavior": "allow", "updatedInput": {"a": 1}}),
            ASKED,
            Effect(decision="allow", updated_input={"a": 1}),
        ),
        (
            {"systemMessage": "a\0b\ud800"},
            STOP,
            Effect(says="a\u2400b\ufffd"),
        ),
    ],
)
def test_an_output_says_what_it_wants(
    output: dict[str, Any], event: HookEvent, effect: Effect
) -> None:
    assert effect_of(output, event) == effect


@pytest.mark.requirement("hooks:outputs")
@pytest.mark.parametrize(
    ("output", "words"),
    [
        (None, "no JSON object"),
        ([], "no JSON object"),
        ("deny", "no JSON object"),
        ({"decision": "maybe"}, "decision"),
        ({"continue": "no"}, "continue"),
        ({"continue": 0}, "continue"),
        ({"hookSpecificOutput": []}, "hookSpecificOutput"),
        (specific("PostToolUse", additionalContext="x"), "for the event PostToolUse"),
        (specific("PreToolUse", permissionDecision="yes"), "permissionDecision"),
        (specific("PreToolUse", updatedInput="x"), "updatedInput"),
        (specific("PreToolUse", additionalContext=["x"]), "additionalContext"),
    ],
)
def test_a_bad_output_is_told_and_not_guessed_at(output: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        effect_of(output, PRE)


def test_an_output_that_nests_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"x": deep}
    with pytest.raises(ValueError, match="too deep"):
        effect_of(deep, PRE)


def test_long_texts_are_cut() -> None:
    effect = effect_of(specific("PreToolUse", additionalContext="x" * (MAX_CHARS + 5)), PRE)
    assert effect.context is not None
    assert effect.context.endswith("(5 more characters were left out)")
