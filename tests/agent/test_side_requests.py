"""What a run asks beside its conversation is its money too."""

from contextlib import aclosing
from dataclasses import dataclass, field
from decimal import Decimal

from app.agent.loop import run_agent
from app.agent.lost_request import lost_request
from app.domain.model import ModelResponse, SideRequest
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.domain.usage import LedgerRow, Usage
from tests.fakes.effects import (
    LOOK,
    Journal,
    ScriptedToolbox,
    call,
    effects,
    play,
    response,
    run_info,
    text,
)


@dataclass
class Purse:
    """Hands out rows that a test put there."""

    rows: list[LedgerRow] = field(default_factory=list)
    allowed: list[Decimal | None] = field(default_factory=list)

    async def ask(self, request: SideRequest) -> ModelResponse:
        raise AssertionError(request)

    def lost(self) -> LedgerRow:
        return LedgerRow("small", Usage(), Decimal("0.25"), "tool", estimated=True)

    def allow(self, left_usd: Decimal | None) -> None:
        self.allowed.append(left_usd)

    def settle(self) -> tuple[LedgerRow, ...]:
        rows, self.rows = tuple(self.rows), []
        return rows


def tool_that_asks(purse: Purse, cost_usd: str) -> ScriptedToolbox:
    async def run(given: ToolCall, _: ToolMemory) -> ToolResult:
        usage = Usage(input_tokens=5, web_search_requests=2)
        purse.rows.append(LedgerRow("small", usage, Decimal(cost_usd), "tool"))
        return ToolResult(f"{given.id} asked")

    return ScriptedToolbox(run=run)


ROUND = (response(call("a"), call("b")), response(text("done")))


async def test_rows_are_stored_with_the_results_and_counted_in_the_end() -> None:
    purse = Purse()
    journal = await play(effects(ROUND, tools=tool_that_asks(purse, "0.5"), side=purse))
    rows = [row for batch in journal.batches for row in batch.ledger if row.purpose == "tool"]
    assert len(rows) == 2
    with_results = [bool(batch.entries) for batch in journal.batches if batch.ledger]
    assert all(with_results)
    result = journal.result()
    assert result.total_cost_usd == 1.0022
    assert result.modelUsage["small"].webSearchRequests == 4
    assert result.usage.input_tokens == 200, "the wire's usage is the main thread's"
    assert result.usage.server_tool_use["web_search_requests"] == 4


async def test_what_tools_spend_ends_a_run_that_has_no_more() -> None:
    purse = Purse()
    run = run_info(max_budget_usd=1)
    world = effects(ROUND, tools=tool_that_asks(purse, "0.5"), side=purse)
    journal = await play(world, run)
    assert journal.result().subtype == "error_max_budget_usd"
    assert purse.allowed == [Decimal("0.9989")]


async def test_rows_that_no_result_came_with_are_stored_before_the_next_step() -> None:
    purse = Purse([LedgerRow("small", Usage(), Decimal("0.25"), "tool")])
    journal = await play(effects([response(text("hi"))], side=purse))
    assert [row.purpose for row in journal.batches[0].ledger] == ["tool"]
    assert journal.result().total_cost_usd == 0.2511


async def test_what_a_lost_host_may_have_asked_is_estimated_for_each_call_that_asks() -> None:
    asking = ToolSpec("Ask", "Asks.", {"type": "object"}, read_only=True, asks_model=True)
    tools = ScriptedToolbox(offered=(asking, LOOK))
    begun = effects([response(call("a", "Ask"), call("b"), call("c", "Ask"))], tools=tools)
    journal, run = Journal(), run_info()
    async with aclosing(run_agent(journal.state(run), begun)) as advances:
        async for advance in advances:
            journal.store(run, advance)
            if advance.state.open_calls:
                break
    world = effects(tools=tools, side=Purse())
    batch = lost_request(journal.state(run), world)
    assert batch is not None
    assert [(row.purpose, row.estimated, row.cost_usd) for row in batch.ledger] == [
        ("tool", True, Decimal("0.25"))
    ] * 2
    assert lost_request(journal.state(run), effects(side=Purse())) is None, "no such tool here"
