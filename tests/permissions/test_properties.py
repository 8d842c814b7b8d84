"""What holds for all rules and all commands."""

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.permissions.rules import host_of
from app.permissions.shell import parse_shell
from tests.permissions.tables import ALLOW, DENY, MATRIX, MODES, Call, bash, decided, letter

CALLS: Sequence[Call] = [
    *(call for _, calls in MATRIX for call in calls if len(str(call)) < 200),
    *(call for _, allowed, others in ALLOW for call in (*allowed, *others)),
    *(call for _, _, denied, others in DENY for call in (*denied, *others)),
]
RULES = sorted({rule for rule, *_ in ALLOW} | {rule for rule, *_ in DENY} | {"Read", "Write"})
SOME = st.lists(st.sampled_from(RULES), max_size=4)
ORDER = "D?A"
"""From what allows least to what allows most."""

SPELLINGS: Sequence[Callable[[str], str]] = [
    str,
    lambda c: f"\\{c}",
    lambda c: f"{c[0]}\\\n{c[1:]}",
    lambda c: f"'{c[0]}'{c[1:]}",
    lambda c: f'"{c[:2]}"{c[2:]}',
    lambda c: f"$'{c.split()[0]}' {c.partition(' ')[2]}",
    lambda c: f"/usr/bin/{c}",
    lambda c: f"X={c.split()[0]}; $X {c.partition(' ')[2]}",
    lambda c: f"$(echo {c})",
]
"""Ways to write a plain command."""

RUNNERS: Sequence[Callable[[str], str]] = [
    str,
    lambda c: f"timeout 5 {c}",
    lambda c: f"nice {c}",
    lambda c: f"env {c}",
    lambda c: f"env -i {c}",
    lambda c: f"command {c}",
    lambda c: f"exec {c}",
    lambda c: f"LANG=C {c}",
]
"""Commands that run another."""

FRAMES: Sequence[Callable[[str], str]] = [
    str,
    lambda c: f"  {c} ",
    lambda c: f"{c};",
    lambda c: f"{c} # x",
    lambda c: f"({c})",
    lambda c: f"{{ {c}; }}",
    lambda c: f"! {c}",
    lambda c: f"true && {c}",
    lambda c: f"if true; then {c}; fi",
    lambda c: f"for i in 1; do {c}; done",
    lambda c: f"f() {{ {c}; }}; f",
    lambda c: f"eval {shlex.quote(c)}",
    lambda c: f"bash -c {shlex.quote(c)}",
    lambda c: f"sh -c 'bash -c {shlex.quote(shlex.quote(c))[1:-1]}'",
    lambda c: f"echo {shlex.quote(c)} | sh",
    lambda c: f"bash <<< {shlex.quote(c)}",
    lambda c: f"bash <<'EOF'\n{c}\nEOF",
    lambda c: f"{c} 2>&1",
]
"""What a command may stand in."""

PLAIN = [
    "rm z",
    "rm -rf secret",
    "cat secret/s",
    "npm test",
    "git push origin main",
    "touch src/t",
    "mkdir d",
    "ls secret",
    "cp secret/s x",
    "cat /etc/passwd",
    "cat a.txt",
    "python3 x.py",
]


@pytest.mark.requirement("permissions:rules")
@given(st.sampled_from(CALLS), st.sampled_from(MODES), SOME, SOME, SOME, st.sampled_from(RULES))
def test_a_deny_rule_more_never_allows_more(
    call: Call, mode: str, allowed: list[str], denied: list[str], asked: list[str], more: str
) -> None:
    def found(rules: list[str]) -> int:
        decision = decided(
            call,
            permission_mode=mode,
            allowed_tools=allowed,
            disallowed_tools=rules,
            ask_tools=asked,
        )
        return ORDER.index(letter(decision))

    assert found([*denied, more]) <= found(denied)


@pytest.mark.requirement("permissions:rules")
@given(
    st.sampled_from(PLAIN),
    st.sampled_from(SPELLINGS),
    st.sampled_from(RUNNERS),
    st.lists(st.sampled_from(FRAMES), max_size=3),
    st.sampled_from(MODES),
    SOME,
    SOME,
)
def test_a_command_written_otherwise_is_never_allowed_more(
    command: str,
    spelling: Callable[[str], str],
    runner: Callable[[str], str],
    frames: list[Callable[[str], str]],
    mode: str,
    allowed: list[str],
    denied: list[str],
) -> None:
    def found(text: str) -> str:
        rules = {"allowed_tools": allowed, "disallowed_tools": denied}
        return letter(decided(bash(text), permission_mode=mode, **rules))  # type: ignore[arg-type]  # options

    written = runner(spelling(command))
    for frame in frames:
        written = frame(written)
    if found(written) == "A":
        assert found(command) == "A", written


@given(
    st.text(alphabet=st.characters(), max_size=60) | st.text("rm z'\"\\$(){}<>|&;\n#`=!~*[]-EOF")
)
def test_no_text_breaks_the_parser(text: str) -> None:
    script = parse_shell(text)
    assert script.is_broken or all(command.source for command in script.commands if command.words)
    decided(bash(text), disallowed_tools=["Bash(rm *)", "Read(./secret/**)"])


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000,
        "$(" * 5_000 + ")" * 5_000,
        "if true; then " * 3_000,
        "a|" * 20_000,
        "{" * 20_000,
        "'" * 30_001,
        "<<a " * 5_000,
        "cd a;" * 2_000,
        "x=" * 20_000,
        "bash -c " * 3_000,
        "sudo -u " * 1_000 + "ls",
        "\\\n" * 40_000,
        "make " + "x" * 20_000,
        "x" * 20_000,
        "x" * 3_000 + " > " + "y" * 9_000,
        "git " + "é" * 3_000,
        "'" + "a[" * 49_000,
        "let " + "a[" * 40_000,
        "declare " + "a[" * 20_000,
        "echo ${x:-" + "'a" * 30_000,
        "printf " + "\\$[" * 30_000,
        "$'\\" * 30_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_is_judged_soon(text: str) -> None:
    assert letter(decided(bash(text), disallowed_tools=["Bash(rm *)", "Read(./s/**)"])) in "D?A"


@given(st.text(max_size=400) | st.sampled_from(["x" * 3_000, "/" + "y" * 3_000]))
def test_no_input_of_any_tool_breaks_a_decision(text: str) -> None:
    rules = {"disallowed_tools": RULES[:5], "ask_tools": ["Read(./a/**)"], "allowed_tools": RULES}
    for tool, key in (("WebFetch", "url"), ("Write", "file_path"), ("Glob", "pattern")):
        for given_value in (text, f"https://{text}", None, [text]):
            call = (tool, {key: given_value})
            assert letter(decided(call)) in "D?A"
            assert letter(decided(call, **rules)) in "D?A"  # type: ignore[arg-type]  # options


AUTHORITIES = st.lists(
    st.sampled_from(["example.com", "evil.org", "a", ".", "@", ":", "80", "/", "?", "#", "\\"])
    | st.sampled_from(
        ["[::1]", "%40", "%2e", "é", "。", "ß", "xn--", "_", "-", "*", " ", ";", "&"]
    ),
    min_size=1,
    max_size=6,
).map("".join)


@pytest.mark.requirement("permissions:rules")
@given(st.sampled_from(["https://", "http://", "HTTPS://", "https:/", "//", ""]), AUTHORITIES)
def test_the_host_that_is_decided_about_is_the_one_that_is_asked(start: str, rest: str) -> None:
    decided_about = host_of(start + rest)
    with suppress(httpx.InvalidURL):
        asked = httpx.URL(start + rest).raw_host.decode().rstrip(".").lower()
        assert decided_about is None or not asked or decided_about == asked.strip("[]")
