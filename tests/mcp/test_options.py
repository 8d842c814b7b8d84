"""What is shown of servers, and what comes back."""

import pytest
from pydantic import TypeAdapter

from app.domain.mcp_options import MASK, McpServers, masked, shown_servers, unmasked
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
