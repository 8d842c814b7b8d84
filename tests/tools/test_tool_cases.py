"""The built-in tools behave as the cases say."""

import pytest

from tests.tools import cases
from tests.tools.desk import Desk

CASES = cases.load()


@pytest.mark.platform
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
async def test_a_case_of_tool_behaviour_holds(case: cases.Json, desk: Desk) -> None:
    results = await cases.run(case, desk)
    cases.check(case, results, desk)
