"""Model requests beside the conversation: which model, how often, and what they cost."""

import asyncio
from decimal import Decimal

import pytest

from app.agent.retries import RetryRules
from app.domain.model import SideRequest
from app.domain.thinking import Abilities
from app.domain.usage import LedgerRow, Usage
from app.errors import BudgetSpent, ModelOverloaded, ModelRejected
from app.runs.side_model import MAX_RETRIES, SmallModel
from app.wiring.host_parts import SystemStamps
from tests.fakes.effects import (
    MODEL,
    Answer,
    FakeClock,
    ScriptedModel,
    SmallModels,
    Stalled,
    response,
    text,
)

ASK = SideRequest("You answer.", "What is it?")


def small(*script: Answer, names: tuple[str, ...] = ("small", MODEL)) -> SmallModel:
    clock = FakeClock()
    models = SmallModels(frozenset({MODEL, "small"}))
    return SmallModel(
        ScriptedModel(script), names, SystemStamps(clock, models), RetryRules(), "session"
    )


def asked(side: SmallModel) -> list[str]:
    assert isinstance(side.model, ScriptedModel)
    return [request.model for request in side.model.requests]


async def test_the_small_model_is_asked_and_what_it_cost_is_settled_once() -> None:
    side = small(response(text("a fish")))
    answer = await side.ask(ASK)
    assert answer.blocks == (text("a fish"),)
    assert isinstance(side.model, ScriptedModel)
    (request,) = side.model.requests
    assert (request.model, request.system, request.max_tokens) == ("small", ("You answer.",), 8_000)
    assert (request.is_cached, request.tools, request.thinking) == (False, (), None)
    (row,) = side.settle()
    assert (row.purpose, row.model, row.cost_usd) == ("tool", MODEL, Decimal("0.0011"))
    assert side.settle() == ()


async def test_a_small_model_that_the_provider_does_not_know_is_not_asked_again() -> None:
    unknown = ModelRejected("no such model", category="model_not_found", status=404)
    side = small(unknown, response(text("yes")), response(text("yes")))
    await side.ask(ASK)
    await side.ask(ASK)
    assert asked(side) == ["small", MODEL, MODEL]
    with pytest.raises(ModelRejected):
        await small(unknown, names=(MODEL,)).ask(ASK)


async def test_a_busy_provider_is_asked_again_but_not_for_ever() -> None:
    busy = ModelOverloaded(
        "busy", category="overloaded", status=529, usage=Usage(input_tokens=1000)
    )
    side = small(busy, response(text("yes")))
    await side.ask(ASK)
    told = [(row.estimated, row.cost_usd) for row in side.settle()]
    assert told == [(True, Decimal("0.01")), (False, Decimal("0.0011"))]
    side = small(*[busy] * 9)
    with pytest.raises(ModelOverloaded):
        await side.ask(ASK)
    assert len(asked(side)) == MAX_RETRIES + 1


async def test_a_request_that_is_cut_off_is_settled_with_an_estimate() -> None:
    stalled = Stalled()
    side = small(stalled)
    task = asyncio.create_task(side.ask(ASK))
    async with asyncio.timeout(30):
        await stalled.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stalled.was_closed
    assert side.settle() == (
        LedgerRow("small", Usage(), Decimal(0), "tool", http_status=None, estimated=True),
    )


async def test_a_run_without_money_asks_nothing() -> None:
    side = small(response(text("yes")), response(text("yes")))
    side.allow(Decimal("0.001"))
    await side.ask(ASK)
    for _ in range(2):
        with pytest.raises(BudgetSpent):
            await side.ask(ASK)
        side.settle()
    side.allow(None)
    await side.ask(ASK)


@pytest.mark.parametrize(
    ("abilities", "is_forced", "thinking"),
    [
        (Abilities(), True, {"type": "disabled"}),
        (Abilities(adaptive=False, budget=False, off=None), True, None),
        (Abilities(off="between_tools"), False, None),
        (Abilities(off=None), False, None),
    ],
)
async def test_a_model_is_forced_to_a_tool_only_where_it_can_be(
    abilities: Abilities, is_forced: bool, thinking: object
) -> None:
    class Able(SmallModels):
        def abilities(self, model: str) -> Abilities:
            assert model
            return abilities

    side = small(response(text("yes")))
    side.stamps = SystemStamps(FakeClock(), Able())
    choice = {"type": "tool", "name": "web_search"}
    await side.ask(SideRequest("s", "p", tools=(b'{"name":"web_search"}',), tool_choice=choice))
    assert isinstance(side.model, ScriptedModel)
    (request,) = side.model.requests
    assert (request.tool_choice, request.thinking) == (choice if is_forced else None, thinking)


def test_a_request_that_a_lost_host_had_under_way_is_estimated_at_a_window() -> None:
    assert small().lost() == LedgerRow(
        "small",
        Usage(input_tokens=25_000),
        Decimal("0.25"),
        "tool",
        http_status=None,
        estimated=True,
    )
