"""Every case of the rooms A and B has its test, and every test that is named exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.security_cases import LATER, PARTLY, SHOWN

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| ([A-Z]{1,2}\d\d) \|", re.MULTILINE)


def spec() -> dict[str, list[str]]:
    """The ids of each section, by its letter."""
    text = (TESTS / "spec" / "security_cases.md").read_text()
    sections = re.split(r"^## (?=[A-Z]\. )", text, flags=re.MULTILINE)[1:]
    return {section[0]: ROW.findall(section) for section in sections}


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_bytes())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
    }


def test_every_case_of_files_and_of_the_sandbox_is_shown_or_waits_for_something() -> None:
    rows = spec()
    wanted = {*rows["A"], *rows["B"]}
    assert (len(rows["A"]), len(rows["B"])) == (22, 27)
    assert wanted - SHOWN.keys() == LATER.keys()
    assert not SHOWN.keys() & LATER.keys()
    assert PARTLY.keys() <= SHOWN.keys()
    assert SHOWN.keys() <= {case for ids in rows.values() for case in ids}
    # What may wait, and nothing else.
    assert {"F22", "SB12", "SB23", "SB25"} == LATER.keys()


@pytest.mark.parametrize("case", SHOWN)
def test_a_case_is_shown_by_tests_that_exist(case: str) -> None:
    assert SHOWN[case]
    for named in SHOWN[case]:
        path, name = named.split("::")
        assert name in functions(path), named
