"""The table of traces is whole, and says of each what its comparison really cites."""

from pathlib import Path

import pytest

from tests.traces.differences import decisions_of
from tests.traces.scenario import FOLDER, read_trace, scenario_of, trace_names
from tests.traces.table import OWNERS, TRACES

NAMES: Path = FOLDER.parent / "trace_names.txt"
"""Every trace that was ever recorded."""


def test_the_table_lists_every_trace_once_and_in_order() -> None:
    assert list(TRACES) == NAMES.read_text().split()


def test_a_trace_is_compared_or_left_to_a_work_that_owns_it() -> None:
    left = {name for name, said in TRACES.items() if said in OWNERS}
    assert left | set(trace_names()) == set(TRACES)
    assert not left & set(trace_names())


@pytest.mark.parametrize("name", trace_names())
def test_the_table_names_the_decisions_that_the_comparison_cites(name: str) -> None:
    lines = read_trace(name)
    cited = sorted(decisions_of(lines, scenario_of(lines)), key=_place)
    assert TRACES[name] == " ".join(cited)


def _place(decision: str) -> int:
    return int(decision.removeprefix("B")) if decision != "2" else 1000
