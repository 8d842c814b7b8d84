"""Promises and tests know each other. Markers are read from the source, so no plugin is needed."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parent


def marked_tests() -> dict[str, set[str]]:
    """Give the tests that show each promise, as `file::name`."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for promise in map(_promise, node.decorator_list):
                    if promise is not None:
                        found[promise].add(f"{path.relative_to(TESTS)}::{node.name}")
    return found


def _promise(decorator: ast.expr) -> str | None:
    """Give the id of `@pytest.mark.requirement("id")`. Ids are literal: one can search for them."""
    match decorator:
        case ast.Call(
            func=ast.Attribute(attr="requirement"), args=[ast.Constant(value=str(promise))]
        ):
            return promise
        case ast.Call(func=ast.Attribute(attr="requirement")):
            raise AssertionError(f"a marker without a literal id: {ast.unparse(decorator)}")
        case _:
            return None


def test_every_promise_has_a_test() -> None:
    assert sorted(set(REQUIREMENTS) - set(marked_tests())) == []


def test_every_marker_names_a_promise() -> None:
    unknown = {
        promise: sorted(tests)
        for promise, tests in marked_tests().items()
        if promise not in REQUIREMENTS
    }
    assert unknown == {}


def test_only_tests_carry_markers_so_that_each_one_is_run() -> None:
    names = {name.split("::")[1] for tests in marked_tests().values() for name in tests}
    assert {name for name in names if not name.startswith(("test_", "Test"))} == set()
