from decimal import Decimal
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.usage import LedgerRow, ModelSpend, Spend, Usage

USAGES = st.builds(Usage, *[st.integers(0, 1000)] * 7)
ROWS = st.builds(
    LedgerRow,
    model=st.sampled_from(["a", "b"]),
    usage=USAGES,
    cost_usd=st.none() | st.decimals(0, 10, places=6),
    purpose=st.sampled_from(["main", "compaction", "subagent"]),
    thread=st.none() | st.just("toolu_1"),
    duration_ms=st.integers(0, 1000),
)


def spend_of(rows: list[LedgerRow]) -> Spend:
    return reduce(Spend.plus, rows, Spend())


def test_usage_is_added_field_by_field() -> None:
    assert Usage(1, 2, 3, 4, 5, 6, 7) + Usage(10, 20, 30, 40, 50, 60, 70) == Usage(
        11, 22, 33, 44, 55, 66, 77
    )
    assert Usage(cache_write_5m_tokens=1, cache_write_1h_tokens=2).cache_write_tokens == 3


@pytest.mark.requirement("loop:ledger")
@given(st.lists(ROWS, max_size=6))
def test_money_is_the_sum_of_the_rows(rows: list[LedgerRow]) -> None:
    spend = spend_of(rows)
    assert spend.cost_usd == sum((row.cost_usd or Decimal(0) for row in rows), Decimal(0))
    assert spend.unpriced == any(row.cost_usd is None for row in rows)
    assert spend.api_ms == sum(row.duration_ms for row in rows)
    assert set(spend.by_model) == {row.model for row in rows}


@given(st.lists(ROWS, max_size=6), st.lists(ROWS, max_size=6))
def test_two_spans_merge_into_the_sum_of_their_rows(
    first: list[LedgerRow], second: list[LedgerRow]
) -> None:
    assert spend_of(first).merged(spend_of(second)) == spend_of([*first, *second])


def test_only_the_main_threads_requests_count_as_its_usage() -> None:
    one = Usage(input_tokens=1)
    rows = [
        LedgerRow("a", one, Decimal(1)),
        LedgerRow("a", one, Decimal(1), purpose="compaction"),
        LedgerRow("a", one, Decimal(1), purpose="subagent", thread="toolu_1"),
        LedgerRow("a", one, Decimal(1), thread="toolu_1"),
    ]
    spend = spend_of(rows)
    assert spend.main_thread == one
    assert spend.by_model == {"a": ModelSpend(Usage(input_tokens=4), Decimal(4))}
