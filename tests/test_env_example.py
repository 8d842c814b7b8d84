import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import BaseModel

from app.settings.settings import PLAIN_NAMES, Settings

CHECKOUT = Path(__file__).parents[1]
LINES = (CHECKOUT / ".env.example").read_text().splitlines()


def listed() -> dict[str, str]:
    pairs = [re.fullmatch(r"#([A-Z][A-Z0-9_]*)=(.*)", line) for line in LINES]
    return {pair[1]: pair[2] for pair in pairs if pair}


def test_every_setting_is_listed_under_its_names_and_nothing_else_is() -> None:
    names = set(PLAIN_NAMES)
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names |= {f"TREADLE_{name}__{inner}".upper() for inner in kind.model_fields}
        else:
            names.add(f"TREADLE_{name}".upper())
    assert set(listed()) == names


def test_every_setting_is_explained() -> None:
    for before, line in pairwise(LINES):
        if line.startswith("#") and not line.startswith("# "):
            assert before.startswith("#"), f"{line} has no line that explains it"


def test_the_defaults_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = Settings().model_dump()
    for name, value in listed().items():
        monkeypatch.setenv(name, value.strip("'"))
    assert Settings().model_dump() == defaults


def test_the_file_is_the_generated_one() -> None:
    command = [sys.executable, "scripts/env_example.py", "--check"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
