"""The last batch of a run: how each ending looks on the wire."""

from contextlib import aclosing
from decimal import Decimal
from typing import Any

import orjson
import pytest

from app.agent.broken_off import (
    CUT_TEXT,
    INTERRUPT_MARKER,
    INTERRUPT_MARKER_TOOLS,
    INTERRUPTED_TEXT,
    UNMADE_TEXT,
    abandoned,
    interrupted,
)
from app.agent.loop import run_agent
from app.agent.result_batch import plain_usd
from app.agent.results import LOST_TEXT
from app.agent.tool_step import BUDGET_TEXT
from app.domain.messages import UserMessage, encode_message
from app.domain.runs import EndReason, Outcome
from app.domain.subagent_stats import SubagentStats
from app.domain.usage import Usage
from tests.fakes.effects import (
    MODEL,
    SESSION,
    FakeClock,
    Journal,
    ScriptedModel,
    ScriptedToolbox,
    call,
    effects,
    kinds,
    play,
    prompt,
    response,
    run_info,
    text,
)

DONE = response(text("part one"), text("part two"))


def wire(journal: Journal) -> dict[str, Any]:
    """The result as a client reads it."""
    body: dict[str, Any] = orjson.loads(encode_message(journal.result()))
    return body


async def stored(journal: Journal, script: list[Any], batches: int, **options: Any) -> None:
    """Run until so many batches are stored; then the host is gone."""
    run = run_info(**options)
    world = effects(script, clock=FakeClock(prefix=f"first-{len(journal.rows)}"))
    async with aclosing(run_agent(journal.state(run), world)) as stream:
        for _ in range(batches):
            journal.store(run, await anext(stream))


@pytest.mark.requirement("wire:result")
async def test_a_success_says_everything_that_a_client_reads() -> None:
    clock = FakeClock()
    journal = await play(
        effects(
            [response(call("a"), call("b")), DONE], clock=clock, prompts=[prompt("go", uuid="mine")]
        )
    )
    usage = {
        "input_tokens": 200,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 0},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    }
    by_model = {
        MODEL: {
            "inputTokens": 200,
            "outputTokens": 20,
            "cacheReadInputTokens": 0,
            "cacheCreationInputTokens": 0,
            "webSearchRequests": 0,
            "costUSD": 0.0022,
            "contextWindow": 200_000,
            "maxOutputTokens": 8_000,
            "thinkingTokens": 0,
            "cacheCreationEphemeral5mInputTokens": 0,
            "cacheCreationEphemeral1hInputTokens": 0,
            "canonicalModel": MODEL,
            "costBasis": "list",
        }
    }
    found = wire(journal)
    assert found.pop("uuid")
    assert found == {
        "type": "result",
        "subtype": "success",
        "session_id": SESSION,
        "is_error": False,
        "duration_ms": 0,
        "duration_api_ms": 40,
        "num_turns": 2,
        "stop_reason": "end_turn",
        "terminal_reason": "completed",
        "total_cost_usd": 0.0022,
        "usage": usage,
        "modelUsage": by_model,
        "model_usage_since_last_result": by_model,
        "api_error_status": None,
        "permission_denials": [],
        "subagent_stats": SubagentStats().model_dump(),
        "safety_stops": 0,
        "result": "part two",
        "ttft_ms": 7,
        "user_message_uuid": "mine",
        "user_message_uuids": ["mine"],
    }
    assert journal.batches[-1].outcome == Outcome(
        subtype="success",
        end_reason="completed",
        is_error=False,
        stop_reason="end_turn",
        terminal_reason="completed",
        num_turns=2,
        result_text="part two",
    )


@pytest.mark.requirement("wire:session-totals")
async def test_costs_are_the_sessions_and_usage_is_the_runs() -> None:
    journal = await play(effects([response(text("one"))]))
    await play(effects([response(text("two"))]), run_info("run_2"), journal)
    found = journal.result()
    assert found.total_cost_usd == pytest.approx(0.0022)
    assert found.modelUsage[MODEL].inputTokens == 200
    assert found.usage.input_tokens == 100
    assert found.model_usage_since_last_result[MODEL].inputTokens == 100
    assert found.num_turns == 1


@pytest.mark.requirement("loop:max-turns")
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_tools_of_the_last_allowed_round_run_and_then_it_is_over(limit: int) -> None:
    tools = ScriptedToolbox()
    model = ScriptedModel([*[response(call(f"c{i}")) for i in range(3)], DONE])
    journal = await play(effects(model, tools=tools), run_info(max_turns=limit))
    found = wire(journal)
    assert (len(model.requests), len(tools.started())) == (limit, limit)
    assert (found["subtype"], found["terminal_reason"]) == ("error_max_turns", "max_turns")
    assert found["errors"] == [f"Reached maximum number of turns ({limit})"]
    assert (found["num_turns"], found["stop_reason"], found["is_error"]) == (
        limit,
        "tool_use",
        True,
    )
    assert "result" not in found
    assert "ttft_ms" not in found
    outcome = journal.batches[-1].outcome
    assert outcome is not None
    assert outcome.end_reason == "max_turns"


@pytest.mark.requirement("loop:num-turns")
@pytest.mark.parametrize("limit", [4, 5, None])
async def test_three_rounds_and_a_text_need_four_turns_and_are_four(limit: int | None) -> None:
    script = [*[response(call(f"c{i}")) for i in range(3)], DONE]
    journal = await play(effects(script), run_info(max_turns=limit))
    assert (journal.result().subtype, journal.result().num_turns) == ("success", 4)


@pytest.mark.requirement("loop:budget")
async def test_calls_past_the_budget_are_not_made_and_are_told_why() -> None:
    tools = ScriptedToolbox()
    asked = response(call("a"), call("b", "Change"), usage=Usage(input_tokens=6_000))
    journal = await play(effects([asked], tools=tools), run_info(max_budget_usd=0.06))
    assert tools.started() == []
    assert kinds(journal.messages())[-3:] == ["tool_result", "tool_result", "error_max_budget_usd"]
    told = BUDGET_TEXT.replace("{budget}", "0.06")
    assert [block.content for block in journal.results().values()] == [told, told]
    assert {block.is_error for block in journal.results().values()} == {True}
    found = wire(journal)
    assert found["errors"] == ["Reached maximum budget ($0.06)"]
    assert (found["terminal_reason"], found["stop_reason"]) == ("budget_exhausted", "tool_use")
    assert (found["num_turns"], found["total_cost_usd"]) == (1, 0.06)
    outcome = journal.batches[-1].outcome
    assert outcome is not None
    assert outcome.end_reason == "max_budget_run"


@pytest.mark.requirement("loop:budget")
async def test_the_budget_is_the_runs_own() -> None:
    journal = await play(effects([response(text("one"), usage=Usage(input_tokens=9_000))]))
    run = run_info("run_2", max_budget_usd=0.06)
    await play(effects([response(call("a")), DONE]), run, journal)
    assert journal.result().subtype == "success"
    assert journal.result().total_cost_usd == pytest.approx(0.0922)


@pytest.mark.requirement("loop:budget")
async def test_an_answer_past_the_budget_is_a_success() -> None:
    asked = response(text("dear"), usage=Usage(input_tokens=90_000))
    journal = await play(effects([asked]), run_info(max_budget_usd=0.06))
    assert (journal.result().subtype, journal.result().result) == ("success", "dear")


@pytest.mark.requirement("loop:refusal")
async def test_a_refusal_is_a_success_that_says_so() -> None:
    model = ScriptedModel([response(text("I will not."), stop_reason="refusal")])
    journal = await play(effects(model))
    found, outcome = journal.result(), journal.batches[-1].outcome
    assert len(model.requests) == 1
    assert (found.subtype, found.is_error) == ("success", False)
    assert (found.stop_reason, found.result) == ("refusal", "I will not.")
    assert outcome is not None
    assert outcome.end_reason == "refusal"


@pytest.mark.requirement("loop:max-tokens")
async def test_the_output_limit_is_a_success_that_says_so() -> None:
    model = ScriptedModel([response(text("so fa"), stop_reason="max_tokens")])
    journal = await play(effects(model))
    assert len(model.requests) == 1
    assert (journal.result().subtype, journal.result().stop_reason) == ("success", "max_tokens")
    assert journal.result().result == "so fa"


@pytest.mark.requirement("loop:interrupt")
async def test_a_cancel_while_tools_run_closes_their_calls_and_marks_the_conversation() -> None:
    journal = Journal()
    await stored(journal, [response(call("a"), call("b", "Change"))], 3)
    assert list(journal.results()) == ["a"]
    journal.store(run_info(), interrupted(journal.state(run_info()), effects()))
    assert kinds(journal.messages())[-3:] == ["tool_result", "note", "error_during_execution"]
    closed, marker = journal.messages()[-3:-1]
    assert isinstance(closed, UserMessage)
    assert isinstance(marker, UserMessage)
    assert closed.message.model_dump()["content"] == [
        {"type": "tool_result", "tool_use_id": "b", "content": INTERRUPTED_TEXT, "is_error": True}
    ]
    assert closed.tool_result_meta == [{"id": "b", "non_execution_kind": "user-rejected"}]
    assert marker.message.model_dump()["content"] == [
        {"type": "text", "text": INTERRUPT_MARKER_TOOLS}
    ]
    assert marker.isSynthetic is None
    found = wire(journal)
    assert (found["subtype"], found["is_error"]) == ("error_during_execution", True)
    assert (found["terminal_reason"], found["stop_reason"]) == ("aborted_tools", "tool_use")
    assert "result" not in found
    assert len(found["errors"]) == 1
    outcome = journal.batches[-1].outcome
    assert outcome is not None
    assert outcome.end_reason == "cancelled"


@pytest.mark.requirement("loop:interrupt")
async def test_a_cancel_while_the_model_answers_leaves_the_prompt_and_a_marker() -> None:
    journal = Journal()
    await stored(journal, [], 1)
    journal.store(run_info(), interrupted(journal.state(run_info()), effects()))
    assert kinds(journal.messages()) == ["init", "prompt", "note", "error_during_execution"]
    found = journal.result()
    assert (found.terminal_reason, found.stop_reason, found.num_turns) == (
        "aborted_streaming",
        None,
        0,
    )
    model = ScriptedModel([DONE])
    await play(effects(model, prompts=[prompt("anew")]), run_info("run_2"), journal)
    [request] = model.requests
    [message] = request.messages
    assert [orjson.loads(block)["text"] for block in message.blocks] == [
        "hello",
        INTERRUPT_MARKER,
        "anew",
    ]


@pytest.mark.parametrize(
    ("end_reason", "began"), [("deadline", CUT_TEXT), ("worker_lost", LOST_TEXT)]
)
async def test_of_a_run_that_cannot_go_on_calls_that_began_not_are_told_so(
    end_reason: EndReason, began: str
) -> None:
    journal = Journal()
    await stored(journal, [response(call("a", "Change"), call("b", "Change"))], 2)
    state = journal.state(run_info())
    ended = abandoned(state, effects(), end_reason=end_reason, why="over", unbegun={"b"})
    journal.store(run_info(), ended)
    told = {key: result.content for key, result in journal.results().items()}
    assert told == {"a": began, "b": UNMADE_TEXT}


@pytest.mark.requirement("loop:abandoned")
async def test_a_run_that_is_given_up_has_its_costs_and_no_stop_reason() -> None:
    journal = Journal()
    await stored(journal, [response(call("a", "Change"))], 2)
    state = journal.state(run_info())
    journal.store(
        run_info(), abandoned(state, effects(), end_reason="worker_lost", why="Lost 3 times.")
    )
    assert kinds(journal.messages())[-2:] == ["tool_result", "error_during_execution"]
    assert journal.results()["a"].content == LOST_TEXT
    found = wire(journal)
    assert (found["stop_reason"], found["errors"]) == (None, ["Lost 3 times."])
    assert "terminal_reason" not in found
    assert (found["num_turns"], found["total_cost_usd"]) == (1, 0.0011)
    outcome = journal.batches[-1].outcome
    assert outcome is not None
    assert (outcome.end_reason, outcome.stop_reason) == ("worker_lost", None)
    model = ScriptedModel([DONE])
    await play(effects(model, prompts=[prompt("anew")]), run_info("run_2"), journal)
    assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("amount", "words"), [("0.0600", "0.06"), ("2", "2"), ("100", "100"), ("1E-7", "0.0000001")]
)
def test_amounts_are_written_plainly(amount: str, words: str) -> None:
    assert plain_usd(Decimal(amount)) == words
