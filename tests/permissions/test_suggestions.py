"""What a person is offered with a question: as much as would spare the next one, and no more."""

import pytest

from app.permissions.decision import Ask
from tests.permissions.tables import Call, bash, decided, file, letter

EDITS = "acceptEdits"


def offered(call: Call) -> list[str]:
    """The rules and modes on offer; all are for the session."""
    found = decided(call)
    assert isinstance(found, Ask), call
    told = [update.model_dump(mode="json", exclude_none=True) for update in found.suggestions]
    assert {update.pop("destination") for update in told} <= {"session"}
    return [
        update["mode"]
        if update["type"] == "setMode"
        else "{toolName}({ruleContent})".format(**{"ruleContent": "", **update["rules"][0]})
        for update in told
    ]


@pytest.mark.requirement("actions:suggestions")
@pytest.mark.parametrize(
    ("call", "suggestions"),
    [
        (bash("npm test"), ["Bash(npm test *)"]),
        (bash("git commit -m x"), ["Bash(git commit *)"]),
        (bash("python3 x.py a"), ["Bash(python3 *)"]),
        (bash("timeout 5 npm test"), ["Bash(npm test *)"]),
        (bash("npm test && git push"), ["Bash(npm test *)", "Bash(git push *)"]),
        (bash("touch a"), ["Bash(touch *)", EDITS]),
        (file("Write", "a"), [EDITS]),
        (file("Edit", "a"), [EDITS]),
        (file("Read", "/etc/hosts"), ["Read(//etc/**)"]),
        (file("Read", "/passwd"), []),
        (("WebFetch", {"url": "https://Example.com:8080/x"}), ["WebFetch(domain:example.com)"]),
        (("WebFetch", {"url": "no url"}), []),
        (("mcp__m__rw", {}), ["mcp__m__rw()"]),
        # A rule for one of these would be a rule for every command.
        *(
            (bash(command), [])
            for command in (
                *("bash -c ls", "sudo ls", "env ls", "eval ls", "find . -delete", "./sh x"),
                *("xargs -I{} bash {}", "timeout 5 sh x", ". x", "npm test && bash x", "$X a"),
                *("npm $(x)", "(npm test)", "npm 'test"),
            )
        ),
    ],
)
def test_a_question_comes_with_what_would_spare_the_next(
    call: Call, suggestions: list[str]
) -> None:
    assert offered(call) == suggestions


@pytest.mark.requirement("actions:suggestions")
@pytest.mark.parametrize("command", ["npm test --x", "git commit -am y", "python3 y.py"])
def test_what_is_taken_up_spares_the_next_question(command: str) -> None:
    rules = offered(bash(command))
    assert letter(decided(bash(command), allowed_tools=rules)) == "A"
    assert letter(decided(bash(f"{command}; rm z"), allowed_tools=rules)) == "?"
