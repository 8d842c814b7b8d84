"""A model request that failed: made again, made to another model, or the end of the run."""

from contextlib import aclosing
from decimal import Decimal
from typing import Any

import orjson
import pytest

from app.agent.loop import run_agent
from app.agent.retries import RetryRules, retry_delay_s
from app.domain.messages import (
    ApiRetryMessage,
    ModelFallbackMessage,
    encode_message,
)
from app.domain.model import ModelRequest
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
    ScriptedModel,
    call,
    effects,
    kinds,
    play,
    prompt,
    response,
    run_info,
    text,
)

DONE = response(text("done"))


def overloaded(**more: Any) -> ModelError:
    return ModelOverloaded("busy", category="overloaded", status=529, **more)


def request_blocks(request: ModelRequest) -> list[tuple[str, list[Any]]]:
    return [(m.role, [orjson.loads(block) for block in m.blocks]) for m in request.messages]


# -- tries ------------------------------------------------------------------------------------


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
    assert retry_delay_s(attempt, error, jitter, RetryRules()) == pytest.approx(delay_s)


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


# -- tries that another host has made ----------------------------------------------------------


@pytest.mark.requirement("loop:retries")
async def test_a_host_that_takes_over_goes_on_counting_the_tries_of_a_request() -> None:
    run = run_info(max_retries=2)
    journal = Journal()
    first = effects([overloaded(), overloaded()])
    async with aclosing(run_agent(journal.state(run), first)) as batches:
        async for advance in batches:
            journal.store(run, advance)
            if len(journal.rows) == 4:  # init, prompt, and two tries
                break
    model = ScriptedModel([overloaded(), DONE])
    await play(effects(model), run, journal)
    assert len(model.requests) == 1
    assert journal.result().subtype == "error_during_execution"


async def test_a_run_after_one_that_failed_has_all_its_tries() -> None:
    journal = await play(effects([overloaded()] * 2), run_info(max_retries=1))
    model = ScriptedModel([overloaded(), DONE])
    await play(effects(model, prompts=[prompt("again")]), run_info("run_2", max_retries=1), journal)
    assert len(model.requests) == 2
    assert journal.result().subtype == "success"


# -- fallback ---------------------------------------------------------------------------------

OTHER = "other-model"


def switch(journal: Journal) -> dict[str, Any]:
    [told] = [m for m in journal.messages() if isinstance(m, ModelFallbackMessage)]
    return told.model_dump(exclude={"uuid", "session_id"})


@pytest.mark.requirement("loop:fallback")
async def test_a_model_found_overloaded_three_times_is_replaced_for_the_rest_of_the_run() -> None:
    model = ScriptedModel([*[overloaded()] * 3, response(call("a")), DONE])
    journal = await play(effects(model), run_info(fallback_model=OTHER))
    asked = [request.model for request in model.requests]
    assert asked == [MODEL, MODEL, MODEL, OTHER, OTHER]
    assert kinds(journal.messages()) == [
        *("init", "prompt", "api_retry", "api_retry", "model_fallback"),
        *("tool_use", "tool_result", "text", "success"),
    ]
    assert switch(journal) == {
        "type": "system",
        "subtype": "model_fallback",
        "trigger": "overloaded",
        "original_model": MODEL,
        "fallback_model": OTHER,
        "content": f"{MODEL} is overloaded: {OTHER} answers for the rest of this run. "
        f"The next run begins with {MODEL} again.",
    }
    again = ScriptedModel([DONE])
    await play(effects(again), run_info("run_2", fallback_model=OTHER), journal)
    assert [request.model for request in again.requests] == [MODEL]


FALLBACKS: list[tuple[ModelError, str | None, int]] = [
    (ModelOverloaded("oops", category="server_error", status=500), "server_error", 1),
    (ModelRejected("what", category="model_not_found", status=404), "model_not_found", 1),
    (ModelRejected("no", category="unknown", status=400), "last_resort", 1),
    (ModelUnreachable("gone", category="unknown"), "last_resort", 6),
    (overloaded(should_retry=False), "overloaded", 1),
    (ModelThrottled("slow", category="rate_limit", status=429), None, 6),
    (ModelUnauthorized("who", category="authentication_failed", status=401), None, 6),
    (ModelUnauthorized("who", category="authentication_failed", status=403), None, 1),
    (ModelRejected("pay", category="billing_error", status=402), None, 1),
    (ModelRejected("big", category="invalid_request", status=413), None, 1),
    (ModelRejected("a flood", category="unknown"), None, 1),
    (ContextTooLong("long", category="invalid_request", status=400), None, 1),
]


@pytest.mark.requirement("loop:fallback")
@pytest.mark.parametrize(
    ("error", "trigger", "tries"),
    FALLBACKS,
    ids=[f"{type(error).__name__}-{error.status}-{trigger}" for error, trigger, _ in FALLBACKS],
)
async def test_what_another_model_may_mend_is_asked_of_it(
    error: ModelError, trigger: str | None, tries: int
) -> None:
    model = ScriptedModel([*[error] * tries, DONE])
    journal = await play(effects(model), run_info(max_retries=5, fallback_model=OTHER))
    assert [request.model for request in model.requests][:tries] == [MODEL] * tries
    if trigger is None:
        assert journal.result().subtype == "error_during_execution"
        assert len(model.requests) == tries
    else:
        assert switch(journal)["trigger"] == trigger
        assert [request.model for request in model.requests][tries:] == [OTHER]
        assert journal.result().subtype == "success"


@pytest.mark.requirement("loop:fallback")
async def test_a_fallback_has_its_own_tries_and_no_fallback_of_its_own() -> None:
    model = ScriptedModel([overloaded()] * 9)
    run = run_info(fallback_model=OTHER, max_retries=4, overloads_before_fallback=2)
    journal = await play(effects(model), run)
    assert [request.model for request in model.requests] == [*[MODEL] * 2, *[OTHER] * 5]
    retries = [m.attempt for m in journal.messages() if isinstance(m, ApiRetryMessage)]
    assert retries == [1, 1, 2, 3, 4]
    assert journal.result().subtype == "error_during_execution"


async def test_a_host_that_takes_over_after_the_switch_stays_with_the_fallback() -> None:
    run = run_info(fallback_model=OTHER)
    journal = Journal()
    first = effects([ModelOverloaded("oops", category="server_error", status=500)])
    async with aclosing(run_agent(journal.state(run), first)) as batches:
        async for advance in batches:
            journal.store(run, advance)
            if isinstance(advance.batch.entries[-1].message, ModelFallbackMessage):
                break
    model = ScriptedModel([DONE])
    await play(effects(model), run, journal)
    assert [request.model for request in model.requests] == [OTHER]


@pytest.mark.requirement("loop:budget")
async def test_a_spent_budget_is_not_overrun_by_a_fallback() -> None:
    lost = ModelOverloaded(
        "oops", category="server_error", status=500, usage=Usage(input_tokens=5_000)
    )
    model = ScriptedModel([lost, DONE])
    journal = await play(effects(model), run_info(fallback_model=OTHER, max_budget_usd="0.05"))
    assert len(model.requests) == 1
    assert journal.result().subtype == "error_max_budget_usd"
