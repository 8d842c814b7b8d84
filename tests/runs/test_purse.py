"""One budget of several runs."""

from decimal import Decimal

import pytest

from app.runs.purse import NEXT_TO_NOTHING, Purse, Share

ONE = Decimal(1)


def usd(text: str) -> Decimal:
    return Decimal(text)


@pytest.mark.parametrize(
    ("budget", "spent", "is_spent"),
    [
        (None, "1000", False),
        ("0.5", "0.499999", False),
        ("0.5", "0.5", True),
        ("0.5", "0.7", True),
    ],
)
def test_a_budget_is_spent_once_all_runs_together_have_reached_it(
    budget: str | None, spent: str, is_spent: bool
) -> None:
    purse = Purse(None if budget is None else usd(budget), {"root": usd(spent) / 2})
    purse.add("child", usd(spent) / 2)
    assert purse.is_spent is is_spent


def test_what_is_added_adds_up_and_what_is_set_stands() -> None:
    purse = Purse(ONE)
    purse.add("a", usd("0.1"))
    purse.add("a", usd("0.2"))
    purse.set("b", usd("0.5"))
    purse.set("b", usd("0.4"))
    assert (purse.spent, purse.total_usd) == ({"a": usd("0.3"), "b": usd("0.4")}, usd("0.7"))


def test_a_run_hears_of_what_the_others_have_spent_and_not_of_its_own() -> None:
    purse = Purse(ONE, {"root": usd("0.3"), "child": usd("0.2"), "other": usd("0.1")})
    assert purse.others_usd("root", ONE) == usd("0.3")
    assert purse.others_usd("child", ONE) == usd("0.4")
    assert purse.others_usd("new", ONE) == usd("0.6")


def test_a_run_that_follows_is_charged_what_was_spent_since_it_was_given_the_rest() -> None:
    purse = Purse(ONE, {"root": usd("0.3"), "child": usd("0.1")})
    left = usd("0.6")
    assert purse.others_usd("follow", left) == 0
    purse.add("child", usd("0.25"))
    purse.add("follow", usd("0.2"))
    assert purse.others_usd("follow", left) == usd("0.25")
    assert not purse.is_spent
    purse.add("follow", usd("0.15"))
    assert purse.others_usd("follow", left) + purse.spent["follow"] == left
    assert purse.is_spent


def test_a_run_that_follows_a_spent_budget_has_nothing_to_spend() -> None:
    purse = Purse(ONE, {"root": usd("0.9"), "child": usd("0.4")})
    assert purse.others_usd("follow", NEXT_TO_NOTHING) >= NEXT_TO_NOTHING


@pytest.mark.parametrize(("whole", "own"), [(None, None), (None, ONE), (ONE, None)])
def test_without_a_limit_others_take_nothing_away(
    whole: Decimal | None, own: Decimal | None
) -> None:
    assert Purse(whole, {"child": usd("5")}).others_usd("root", own) == 0


def test_a_share_finds_its_purse_when_it_is_asked() -> None:
    purses: dict[str, Purse] = {}
    share = Share(lambda: purses.get("root"), "root", ONE)
    assert share.others_usd() == 0
    purses["root"] = Purse(ONE, {"root": usd("0.5"), "child": usd("0.2")})
    assert share.others_usd() == usd("0.2")
