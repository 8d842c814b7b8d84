"""What the parser of commands is given to read is bounded: the event loop waits for it."""

from typing import Any

import pytest

from app.permissions.shell import _parsed, parse_shell


class Counted(bytes):
    """Counts what of it was handed out."""

    taken = 0

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        self.taken += len(part)
        return part


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize("unit", [")", "a=("])
def test_a_hostile_text_is_not_read_again_and_again(unit: str) -> None:
    data = Counted((unit * 20_000).encode())
    assert _parsed(data) is None
    assert data.taken < 6_000_000
    assert parse_shell(unit * 20_000).is_broken


@pytest.mark.requirement("permissions:rules")
@pytest.mark.parametrize(
    "text",
    [
        "cat > a.py <<'EOF'\n" + "print('hello world', x[1])\n" * 1_200 + "EOF\n",
        "cat > a.py <<EOF\n" + "server $name listens on ${port}; a line\n" * 620 + "EOF\n",
        'for f in *.py; do if [ -f $f ]; then echo "$f" | grep -c x; fi; done\n' * 60,
    ],
    ids=["quoted", "expanded", "loops"],
)
def test_an_honest_text_is_understood_however_long(text: str) -> None:
    script = parse_shell(text)
    assert not script.is_broken
    assert script.commands


@pytest.mark.requirement("permissions:rules")
def test_a_short_hostile_text_is_read_the_less() -> None:
    data = Counted(b")" * 3_000)
    assert _parsed(data) is None
    assert data.taken < 1_000_000
