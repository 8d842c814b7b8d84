"""What is shown of servers, and what comes back."""

import pytest
from pydantic import TypeAdapter

from app.domain.mcp_options import (
    MASK,
    McpServers,
    masked,
    shown_servers,
    still_masked,
    unmasked,
)
from app.domain.options import AgentOptions

SERVERS = TypeAdapter(McpServers)
STORED = {
    "p": {"command": "x", "env": {"A": "secret", "B": ""}},
    "s": {
        "type": "http",
        "url": "https://a.test/",
        "headers": {"K": "Bearer ${TOKEN} x", "L": "l"},
    },
}


@pytest.mark.requirement("mcp:masked")
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("secret", MASK),
        ("", ""),
        ("${TOKEN}", "${TOKEN}"),
        ("Bearer ${TOKEN} x", MASK + "${TOKEN}" + MASK),
        ("${A}${B}", "${A}${B}"),
        ("$TOKEN", MASK),
    ],
)
def test_names_of_variables_stay_and_words_do_not(value: str, shown: str) -> None:
    assert masked(value) == shown


@pytest.mark.requirement("mcp:masked")
@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--token=abc", "--port=80"], ["--token=[masked]", "--port=80"]),
        (["--api-key", "abc", "x"], ["--api-key", MASK, "x"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["GITHUB_TOKEN=abc", "KEY=", "a=b"], ["GITHUB_TOKEN=[masked]", "KEY=", "a=b"]),
        (["-H", "Authorization: Bearer abc"], ["-H", "Authorization: [masked]"]),
        (["-H", "X-Api-Key:abc", "-c", "a: b"], ["-H", "X-Api-Key:[masked]", "-c", "a: b"]),
        (["https://h/p?apiKey=abc&a=b"], ["https://h/p?apiKey=[masked]&a=b"]),
        (["postgres://ann:pw@h/db"], ["postgres://[masked]@h/db"]),
        (["--monkey=abc", "--keyboard", "us", "tokenize"],) * 2,
    ],
)
def test_what_looks_like_a_secret_is_masked_in_arguments(args: list[str], shown: list[str]) -> None:
    stored = {"p": {"command": "x", "args": args}}
    assert shown_servers(stored)["p"]["args"] == shown
    old = SERVERS.validate_python(stored)
    assert unmasked(SERVERS.validate_python(shown_servers(stored)), old) == old


@pytest.mark.requirement("mcp:masked")
def test_a_secret_in_a_url_is_masked_and_stands_for_itself_at_the_same_place_alone() -> None:
    server = {"type": "http", "url": "https://a.test/m?key=abc&a=b#t", "headers": {"K": "secret"}}
    old = SERVERS.validate_python({"s": server})
    shown = shown_servers({"s": server})
    assert shown["s"]["url"] == f"https://a.test/m?key={MASK}&a=b#t"
    assert unmasked(SERVERS.validate_python(shown), old) == old
    changed = {"s": {**shown["s"], "url": "https://a.test/m?key=new&a=b#t"}}
    assert (
        unmasked(SERVERS.validate_python(changed), old)["s"].place["url"].endswith("?key=new&a=b#t")
    )
    elsewhere = {"s": {**shown["s"], "url": f"https://b.test/m?key={MASK}&a=b#t"}}
    kept = unmasked(SERVERS.validate_python(elsewhere), old)["s"]
    assert list(still_masked(kept)) == [("headers", "K"), ("url", "")]


@pytest.mark.requirement("mcp:masked")
def test_what_is_shown_can_be_sent_back() -> None:
    shown = shown_servers(STORED)
    assert shown == {
        "p": {"command": "x", "env": {"A": MASK, "B": ""}},
        "s": {**STORED["s"], "headers": {"K": MASK + "${TOKEN}" + MASK, "L": MASK}},
    }
    stored = SERVERS.validate_python(STORED)
    assert unmasked(SERVERS.validate_python(shown), stored) == stored
    new = {"p": {**shown["p"], "env": {"A": "other", "C": "more"}, "enabled": False}}
    (back,) = unmasked(SERVERS.validate_python(new), stored).values()
    assert (dict(back.secrets), back.enabled) == ({"A": "other", "C": "more"}, False)
    moved = SERVERS.validate_python({"p": {**shown["p"], "command": "y"}, "q": shown["p"]})
    assert unmasked(moved, stored) == moved  # neither is the server that has the values
    assert "secret" not in repr(AgentOptions(mcp_servers=stored))
