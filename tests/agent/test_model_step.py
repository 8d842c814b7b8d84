"""One response: what is asked, what is kept of it, and what happens when it fails."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from decimal import Decimal
from typing import Any

import orjson
import pytest

from app.agent.loop import run_agent
from app.agent.model_step import NUDGE_TEXT, UNPARSED, retry_delay_s
from app.domain.blocks import Block, OtherBlock, ToolUseBlock
from app.domain.messages import ApiRetryMessage, AssistantMessage, UserMessage, encode_message
from app.domain.model import ModelRequest, ModelResponse, StreamPart
from app.domain.text import MAX_JSON_DEPTH
from app.domain.usage import Usage
from app.errors import (
    ContextTooLong,
    ModelError,
    ModelOverloaded,
    ModelRejected,
    ModelThrottled,
    ModelUnauthorized,
    ModelUnreachable,
)
from tests.fakes.effects import (
    MODEL,
    Answer,
    FakeClock,
    Journal,
    RecordingPreviews,
    ScriptedModel,
    Stalled,
    call,
    effects,
    kinds,
    play,
    prompt,
    response,
    run_info,
    text,
    thinking,
)

DONE = response(text("done"))


def overloaded(**more: Any) -> ModelError:
    return ModelOverloaded("busy", category="overloaded", status=529, **more)


def answers(journal: Journal) -> list[AssistantMessage]:
    return [m for m in journal.messages() if isinstance(m, AssistantMessage)]


def request_blocks(request: ModelRequest) -> list[tuple[str, list[Any]]]:
    return [(m.role, [orjson.loads(block) for block in m.blocks]) for m in request.messages]


# -- a response -------------------------------------------------------------------------------


@pytest.mark.requirement("wire:block-messages")
async def test_each_block_is_a_message_with_the_final_usage_of_its_response() -> None:
    usage = Usage(input_tokens=50, output_tokens=9, cache_read_tokens=3, thinking_tokens=2)
    asked = response(thinking("hm"), text("I look."), call("a"), usage=usage)
    journal = await play(effects([asked, DONE]))
    first = journal.batches[1]
    assert len(first.entries) == 3
    blocks = answers(journal)[:3]
    assert {m.message.id for m in blocks} == {"msg_1"}
    assert {m.message.stop_reason for m in blocks} == {"tool_use"}
    assert [[b.type for b in m.message.content] for m in blocks] == [
        ["thinking"],
        ["text"],
        ["tool_use"],
    ]
    assert len({m.uuid for m in blocks}) == 3
    assert all(m.message.usage.output_tokens == 9 for m in blocks)
    assert all(m.message.usage.cache_read_input_tokens == 3 for m in blocks)
    [row] = first.ledger
    assert (row.model, row.usage, row.cost_usd, row.estimated) == (
        MODEL,
        usage,
        Decimal("0.00059"),
        False,
    )


async def test_blank_texts_are_dropped_since_the_api_refuses_them_when_they_come_back() -> None:
    model = ScriptedModel([response(text(" \n"), call("a"), text("")), DONE])
    journal = await play(effects(model))
    assert kinds(journal.messages()) == [
        "init",
        "prompt",
        "tool_use",
        "tool_result",
        "text",
        "success",
    ]
    assert request_blocks(model.requests[1])[1] == (
        "assistant",
        [{"type": "tool_use", "id": "a", "name": "Look", "input": {}}],
    )


async def test_what_the_provider_sent_goes_back_to_it_unchanged() -> None:
    sent: list[Block] = [
        thinking("deep"),
        OtherBlock.model_validate({"type": "redacted_thinking", "data": "x", "note": None}),
        ToolUseBlock.model_validate(
            {
                "type": "tool_use",
                "id": "a",
                "name": "Look",
                "input": {"n": None},
                "caller": {"k": 1},
            }
        ),
    ]
    model = ScriptedModel([response(*sent), DONE])
    await play(effects(model))
    assert request_blocks(model.requests[1])[1] == ("assistant", [b.model_dump() for b in sent])


@pytest.mark.requirement("loop:duplicate-ids")
async def test_two_calls_with_one_id_are_both_answered_once() -> None:
    model = ScriptedModel([response(call("a", n=1), call("a", n=2), call("a_2", n=3)), DONE])
    journal = await play(effects(model))
    assert list(journal.results()) == ["a", "a_2", "a_2_2"]
    [_, asked, told] = request_blocks(model.requests[1])
    assert [(b["id"], b["input"]) for b in asked[1]] == [
        ("a", {"n": 1}),
        ("a_2", {"n": 2}),
        ("a_2_2", {"n": 3}),
    ]
    assert [b["tool_use_id"] for b in told[1]] == ["a", "a_2", "a_2_2"]


@pytest.mark.requirement("loop:duplicate-ids")
async def test_an_id_of_an_earlier_run_gets_a_suffix_so_that_the_request_stays_valid() -> None:
    odd = 'a","name":"'
    journal = await play(effects([response(call("a"), call(odd)), DONE]))
    model = ScriptedModel([response(call("a"), call(odd)), DONE])
    await play(effects(model), run_info("run_2"), journal)
    assert list(journal.results()) == ["a", odd, "a_2", f"{odd}_2"]
    ids = [
        block["id"]
        for _, blocks in request_blocks(model.requests[1])
        for block in blocks
        if block["type"] == "tool_use"
    ]
    assert ids == ["a", odd, "a_2", f"{odd}_2"]


async def test_a_message_id_that_comes_twice_does_not_mix_two_responses() -> None:
    script = [response(call("a"), message_id="same"), response(text("done"), message_id="same")]
    journal = await play(effects(script))
    assert journal.result().num_turns == 2
    state = journal.state(run_info("run_2"))
    assert [message.role for message in state.context] == ["user", "assistant", "user", "assistant"]


async def test_input_nested_too_deep_to_be_read_again_is_not_kept() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_JSON_DEPTH + 100):
        deep = {"a": deep}
    journal = await play(effects([response(call("a", **deep)), DONE]))
    [asked, _] = answers(journal)
    [block] = asked.message.content
    assert isinstance(block, ToolUseBlock)
    assert list(block.input) == [UNPARSED]


@pytest.mark.requirement("loop:pause-turn")
async def test_a_paused_response_goes_back_as_it_is_and_roles_still_alternate() -> None:
    pause = response(text("part one"), stop_reason="pause_turn")
    model = ScriptedModel([pause, pause, response(call("a")), response(text("end"))])
    journal = await play(effects(model))
    [_, second, third, fourth] = [request_blocks(request) for request in model.requests]
    assert second == [
        ("user", [{"type": "text", "text": "hello"}]),
        ("assistant", [{"type": "text", "text": "part one"}]),
    ]
    assert [(role, len(blocks)) for role, blocks in third] == [("user", 1), ("assistant", 2)]
    assert [(role, len(blocks)) for role, blocks in fourth] == [
        ("user", 1),
        ("assistant", 3),
        ("user", 1),
    ]
    assert (journal.result().num_turns, journal.result().result) == (4, "end")


# -- an empty response ------------------------------------------------------------------------


@pytest.mark.requirement("loop:empty-response")
async def test_an_empty_response_is_nudged_once() -> None:
    model = ScriptedModel([response(), DONE])
    journal = await play(effects(model, prompts=[prompt("go", uuid="mine")]))
    assert kinds(journal.messages()) == ["init", "prompt", "note", "text", "success"]
    nudge = journal.messages()[2]
    assert isinstance(nudge, UserMessage)
    assert nudge.isSynthetic is True
    assert request_blocks(model.requests[1]) == [
        ("user", [{"type": "text", "text": "go"}, {"type": "text", "text": NUDGE_TEXT}])
    ]
    result = journal.result()
    assert (result.num_turns, result.result, result.ttft_ms) == (2, "done", 7)
    assert result.usage.output_tokens == 20
    [answer] = answers(journal)
    assert answer.user_message_uuid == "mine"


@pytest.mark.requirement("loop:empty-response")
@pytest.mark.parametrize("empty", [response(), response(text("  ")), response(thinking("hm"))])
async def test_an_answer_that_is_empty_again_ends_as_an_empty_success(empty: Any) -> None:
    journal = await play(effects([empty, empty]))
    result = journal.result()
    assert (result.subtype, result.result, result.num_turns) == ("success", "", 2)
    assert (result.stop_reason, result.usage.output_tokens) == ("end_turn", 20)
    assert result.total_cost_usd == pytest.approx(0.0022)


@pytest.mark.requirement("loop:refusal")
@pytest.mark.parametrize(
    ("stop_reason", "end"), [("refusal", "refusal"), ("max_tokens", "completed")]
)
async def test_an_empty_response_with_a_reason_is_no_mistake(stop_reason: str, end: str) -> None:
    journal = await play(effects([response(stop_reason=stop_reason)]))
    result, outcome = journal.result(), journal.batches[-1].outcome
    assert (result.subtype, result.result, result.stop_reason) == ("success", "", stop_reason)
    assert result.num_turns == 1
    assert outcome is not None
    assert outcome.end_reason == end


async def test_an_empty_response_past_the_budget_is_not_followed_by_a_request() -> None:
    model = ScriptedModel([response(usage=Usage(input_tokens=5_000))])
    journal = await play(effects(model), run_info(max_budget_usd="0.05"))
    assert journal.result().subtype == "error_max_budget_usd"
    assert len(model.requests) == 1


# -- failures ---------------------------------------------------------------------------------


@pytest.mark.requirement("loop:retries")
async def test_a_failed_request_is_made_again_after_waits_that_double() -> None:
    clock = FakeClock(random=0.5)
    model = ScriptedModel([*[overloaded()] * 8, DONE])
    journal = await play(effects(model, clock=clock))
    waits = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0]
    assert clock.waits_s == [wait * 1.125 for wait in waits]
    retries = [m for m in journal.messages() if isinstance(m, ApiRetryMessage)]
    assert [r.attempt for r in retries] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [r.retry_delay_ms for r in retries[:2]] == [562, 1125]
    assert retries[0].model_dump(exclude={"uuid", "session_id"}) == {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 1,
        "max_retries": 10,
        "retry_delay_ms": 562,
        "error_status": 529,
        "error": "overloaded",
    }
    assert all(request.messages == model.requests[0].messages for request in model.requests)
    assert journal.result().num_turns == 1
    assert journal.result().duration_ms == round(sum(clock.waits_s) * 1000)


async def test_a_retry_is_told_before_its_wait() -> None:
    clock = FakeClock()
    world = effects([overloaded(), DONE], clock=clock)
    journal = Journal()
    async with aclosing(run_agent(journal.state(run_info()), world)) as batches:
        await anext(batches)
        told = await anext(batches)
        assert kinds(entry.message for entry in told.batch.entries) == ["api_retry"]
        assert clock.waits_s == []


@pytest.mark.requirement("loop:retries")
@pytest.mark.parametrize(
    ("attempt", "retry_after_s", "jitter", "delay_s"),
    [
        (1, None, 0, 0.5),
        (3, None, 0, 2.0),
        (1, None, 1, 0.625),
        (3, 4.0, 0.5, 4.5),
        (1, 0.0, 1, 0.0),
    ],
)
def test_the_providers_word_wins_over_the_doubling(
    attempt: int, retry_after_s: float | None, jitter: float, delay_s: float
) -> None:
    error = ModelThrottled("slow", category="rate_limit", status=429, retry_after_s=retry_after_s)
    assert retry_delay_s(attempt, error, jitter) == pytest.approx(delay_s)


async def test_each_request_has_its_own_retries() -> None:
    script: list[Answer] = [overloaded(), response(call("a")), overloaded(), DONE]
    journal = await play(effects(script), run_info(max_retries=1))
    retries = [m.attempt for m in journal.messages() if isinstance(m, ApiRetryMessage)]
    assert retries == [1, 1]
    assert journal.result().subtype == "success"


FAILURES: list[tuple[ModelError, str, str, int | None, str]] = [
    (ModelRejected("no", category="unknown", status=400), "unknown", "api_error", 400, " 400"),
    (
        ModelRejected("pay", category="billing_error", status=400),
        "billing_error",
        "api_error",
        400,
        " 400",
    ),
    (
        ModelUnauthorized("who", category="authentication_failed", status=403),
        "authentication_failed",
        "api_error",
        403,
        " 403",
    ),
    (
        ModelRejected("what", category="model_not_found", status=404),
        "model_not_found",
        "api_error",
        404,
        " 404",
    ),
    (
        ModelRejected("big", category="invalid_request", status=413),
        "invalid_request",
        "image_error",
        413,
        " 413",
    ),
    (
        ContextTooLong("long", category="invalid_request", status=400),
        "invalid_request",
        "prompt_too_long",
        400,
        " 400",
    ),
    (overloaded(), "server_error", "api_error", 529, " 529"),
    (
        ModelOverloaded("oops", category="server_error", status=500),
        "server_error",
        "api_error",
        500,
        " 500",
    ),
    (
        ModelThrottled("slow", category="rate_limit", status=429),
        "rate_limit",
        "api_error",
        429,
        " 429",
    ),
    (
        ModelUnauthorized("who", category="authentication_failed", status=401),
        "authentication_failed",
        "api_error",
        401,
        " 401",
    ),
    (ModelUnreachable("gone", category="unknown"), "server_error", "api_error", None, ""),
]


@pytest.mark.requirement("loop:api-failure")
@pytest.mark.parametrize(
    ("error", "category", "terminal_reason", "status", "shown"),
    FAILURES,
    ids=[f"{type(error).__name__}-{error.status}-{error.category}" for error, *_ in FAILURES],
)
async def test_a_failure_for_good_is_an_error_during_execution(
    error: ModelError, category: str, terminal_reason: str, status: int | None, shown: str
) -> None:
    journal = await play(effects([error]), run_info(max_retries=0))
    assert kinds(journal.messages()) == ["init", "prompt", "text", "error_during_execution"]
    words = f"API error{shown}: {error.message}"
    notice = orjson.loads(encode_message(journal.messages()[2]))
    assert notice["error"] == category
    assert notice["is_api_error_message"] is True
    assert notice.get("api_error_status") == status
    assert notice["message"]["model"] == "<synthetic>"
    assert notice["message"]["content"] == [{"type": "text", "text": words}]
    assert notice["message"]["stop_reason"] == "stop_sequence"
    assert notice["message"]["usage"]["output_tokens"] == 0
    result = orjson.loads(encode_message(journal.result()))
    assert "result" not in result
    assert (result["is_error"], result["errors"]) == (True, [words])
    assert (result["terminal_reason"], result.get("api_error_status")) == (terminal_reason, status)
    assert (result["stop_reason"], result["num_turns"]) == (None, 0)
    outcome = journal.batches[-1].outcome
    assert outcome is not None
    assert (outcome.end_reason, outcome.errors) == ("model_error", (words,))


@pytest.mark.requirement("loop:api-failure")
async def test_retries_are_used_up_before_an_outage_ends_the_run() -> None:
    model = ScriptedModel([response(call("a")), *[overloaded()] * 3])
    journal = await play(effects(model), run_info(max_retries=2))
    assert len(model.requests) == 4
    assert kinds(journal.messages())[-4:] == [
        "api_retry",
        "api_retry",
        "text",
        "error_during_execution",
    ]
    assert (journal.result().stop_reason, journal.result().num_turns) == ("tool_use", 1)


@pytest.mark.parametrize(
    ("error", "requests"),
    [
        (ModelRejected("no", category="unknown", status=400), 1),
        (ModelUnauthorized("who", category="authentication_failed", status=403), 1),
        (ModelUnauthorized("who", category="authentication_failed", status=401), 3),
        (
            ModelUnauthorized(
                "who", category="authentication_failed", status=401, should_retry=False
            ),
            1,
        ),
        (ModelUnreachable("gone", category="unknown"), 3),
        (overloaded(should_retry=False), 1),
        (ModelRejected("no", category="unknown", status=400, should_retry=True), 3),
    ],
)
async def test_only_what_may_pass_later_is_tried_again(error: ModelError, requests: int) -> None:
    model = ScriptedModel([error] * 3)
    await play(effects(model), run_info(max_retries=2))
    assert len(model.requests) == requests


@pytest.mark.requirement("loop:api-failure")
async def test_the_notice_of_a_failure_never_reaches_the_model_but_its_prompt_stays() -> None:
    journal = await play(effects([ModelRejected("no", category="unknown", status=400)]))
    model = ScriptedModel([DONE])
    await play(effects(model, prompts=[prompt("again")]), run_info("run_2"), journal)
    assert request_blocks(model.requests[0]) == [
        ("user", [{"type": "text", "text": "hello"}, {"type": "text", "text": "again"}])
    ]


@pytest.mark.requirement("loop:ledger")
async def test_a_lost_response_that_was_billed_has_an_estimated_row() -> None:
    lost = ModelUnreachable(
        "cut", category="unknown", usage=Usage(input_tokens=900), request_id="req_9", status=200
    )
    journal = await play(effects([lost, DONE]))
    [(_, row), (_, whole)] = journal.ledger
    assert (row.model, row.usage.input_tokens, row.cost_usd) == (MODEL, 900, Decimal("0.009"))
    assert (row.estimated, row.http_status, row.request_id) == (True, 200, "req_9")
    assert whole.estimated is False
    assert kinds(e.message for e in journal.batches[1].entries) == ["api_retry"]
    assert journal.result().total_cost_usd == pytest.approx(0.0101)
    assert journal.result().usage.input_tokens == 1_000


async def test_what_a_final_failure_cost_is_in_its_result() -> None:
    lost = ModelRejected("no", category="unknown", status=400, usage=Usage(input_tokens=900))
    journal = await play(effects([lost]))
    assert journal.result().total_cost_usd == pytest.approx(0.009)
    assert len(journal.batches[-1].ledger) == 1


@pytest.mark.requirement("loop:budget")
async def test_lost_responses_that_use_up_the_budget_end_the_retries() -> None:
    lost = ModelUnreachable("cut", category="unknown", usage=Usage(input_tokens=900))
    model = ScriptedModel([lost] * 5)
    journal = await play(effects(model), run_info(max_budget_usd="0.018"))
    assert len(model.requests) == 2
    result = journal.result()
    assert (result.subtype, result.errors) == (
        "error_max_budget_usd",
        ["Reached maximum budget ($0.018)"],
    )
    assert result.total_cost_usd == pytest.approx(0.018)


async def test_a_model_without_a_price_costs_nothing_known() -> None:
    world = effects([ModelRejected("no", category="unknown", usage=Usage(input_tokens=9))])
    journal = await play(world, run_info(model="free@2026"))
    usage = journal.result().modelUsage["free@2026"]
    assert (usage.costUSD, usage.costBasis, usage.canonicalModel) == (0, "unknown", "free")


# -- the request ------------------------------------------------------------------------------


@pytest.mark.requirement("loop:effort")
async def test_a_request_carries_the_options_and_nothing_that_was_not_set() -> None:
    model = ScriptedModel([DONE])
    await play(effects(model), run_info(system_prompt="Be short."))
    [request] = model.requests
    assert (request.model, request.max_tokens, request.system) == (MODEL, 8_000, ("Be short.",))
    assert request.effort is None
    assert [orjson.loads(tool)["name"] for tool in request.tools] == ["Look", "Change", "Edit"]
    assert set(orjson.loads(request.tools[0])) == {"name", "description", "input_schema"}


@pytest.mark.requirement("loop:effort")
async def test_an_effort_that_is_set_is_sent() -> None:
    model = ScriptedModel([DONE])
    await play(effects(model), run_info(effort="max"))
    assert model.requests[0].effort == "max"


# -- previews ---------------------------------------------------------------------------------


async def test_events_of_a_response_are_previews_and_never_journalled() -> None:
    previews = RecordingPreviews()
    journal = await play(effects([DONE], previews=previews))
    assert [part.message_id for part in previews.published] == ["msg_1"]
    assert previews.aborted == []
    assert kinds(journal.messages()) == ["init", "prompt", "text", "success"]


@pytest.mark.requirement("loop:cancel-closes-model")
async def test_cancelling_closes_the_models_stream_and_takes_its_preview_back() -> None:
    stalled, previews = Stalled(), RecordingPreviews()
    playing = asyncio.ensure_future(play(effects([stalled], previews=previews)))
    await asyncio.wait_for(stalled.began.wait(), 5)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert stalled.was_closed
    assert previews.aborted == ["msg_1"]


async def test_a_request_that_fails_before_it_answers_has_no_preview_to_take_back() -> None:
    previews = RecordingPreviews()
    await play(effects([overloaded(), DONE], previews=previews))
    assert previews.aborted == []


async def test_a_stream_that_ends_without_an_answer_is_a_bug_that_shows() -> None:
    class Silent(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart | ModelResponse]:
            self.requests.append(request)
            yield StreamPart({"type": "message_start"}, "msg_1")

    with pytest.raises(RuntimeError, match="without a response"):
        await play(effects(Silent([])))
