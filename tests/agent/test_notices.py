"""What is told beside the conversation, and thoughts on their way back to the model."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.agent.model_step import NUDGE_TEXT
from app.domain.blocks import Block, OtherBlock
from app.domain.messages import InitMessage
from app.domain.model import ModelRequest
from app.domain.notices import (
    InformationalMessage,
    RateLimitEvent,
    RateLimitInfo,
    ThinkingTokensMessage,
)
from app.domain.usage import Usage
from app.errors import ModelThrottled
from tests.fakes.effects import (
    Journal,
    RecordingPreviews,
    ScriptedModel,
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
REDACTED = OtherBlock.model_validate({"type": "redacted_thinking", "data": "Zm9v+/=="})


def limit(status: Any, resets_at: int | None = None) -> RateLimitInfo:
    return RateLimitInfo(status=status, resetsAt=resets_at)


def throttled(info: RateLimitInfo | None) -> ModelThrottled:
    error = ModelThrottled("slow down", category="rate_limit", status=429)
    error.rate_limit = info
    return error


def told(journal: Journal) -> list[RateLimitInfo]:
    return [m.rate_limit_info for m in journal.messages() if isinstance(m, RateLimitEvent)]


def said(request: ModelRequest) -> list[tuple[str, list[str]]]:
    """Roles and kinds of blocks."""
    return [(m.role, [orjson.loads(b)["type"] for b in m.blocks]) for m in request.messages]


# -- thinking ---------------------------------------------------------------------------------


@pytest.mark.requirement("wire:thinking-tokens")
async def test_each_thought_whose_text_is_known_has_an_estimate_just_before_it() -> None:
    answer = response(thinking("just thinking"), REDACTED, thinking(""), text("x"), thinking("hmm"))
    journal = await play(effects([answer]))
    assert kinds(journal.messages())[2:] == [
        *("thinking_tokens", "thinking", "redacted_thinking", "thinking", "text"),
        *("thinking_tokens", "thinking", "success"),
    ]
    estimates = [m for m in journal.messages() if isinstance(m, ThinkingTokensMessage)]
    assert [(m.estimated_tokens, m.estimated_tokens_delta) for m in estimates] == [(4, 4), (1, 1)]


THOUGHTS: list[list[Block]] = [[thinking("hm")], [REDACTED], [thinking("hm"), REDACTED]]


@pytest.mark.requirement("loop:thoughts-alone")
@pytest.mark.parametrize("thoughts", THOUGHTS)
async def test_a_response_of_thoughts_alone_is_not_sent_back(thoughts: list[Block]) -> None:
    model = ScriptedModel([response(*thoughts), DONE])
    await play(effects(model))
    assert said(model.requests[1]) == [("user", ["text", "text"])]
    assert orjson.loads(model.requests[1].messages[0].blocks[1])["text"] == NUDGE_TEXT


@pytest.mark.requirement("loop:thoughts-alone")
async def test_a_session_whose_answer_was_cut_in_a_thought_goes_on() -> None:
    journal = Journal()
    cut = response(text("So"), thinking("hm"), stop_reason="max_tokens")
    await play(effects([cut]), journal=journal)
    model = ScriptedModel([DONE, DONE])
    await play(effects(model, prompts=[prompt("and?")]), run_info("run_2"), journal)
    assert said(model.requests[0]) == [
        ("user", ["text"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
    ]


@pytest.mark.requirement("loop:thinking-bytes")
async def test_thoughts_before_a_call_go_back_byte_for_byte_on_this_host_and_the_next() -> None:
    odd = thinking('é "\\u00e9" \\ / \u2028 \N{BRAIN} \t</think>')
    odd = odd.model_copy(update={"signature": "EqoB/+==" * 500})
    sent: list[Block] = [odd, REDACTED, text("I look."), call("a")]
    whole = ScriptedModel([response(*sent), DONE])
    journal = await play(effects(whole))
    cut = Journal(rows=[row for row in journal.rows if b'"tool_result"' not in row[1]][:7])
    resumed = ScriptedModel([response(*sent), DONE], cursor=1)
    await play(effects(resumed, prompts=()), journal=cut)
    for request in (whole.requests[1], resumed.requests[0]):
        blocks = request.messages[1].blocks
        assert [orjson.loads(block) for block in blocks] == [b.model_dump() for b in sent]
    assert resumed.requests[0].messages[1].blocks == whole.requests[1].messages[1].blocks


@pytest.mark.requirement("loop:thinking")
async def test_every_request_of_a_run_asks_for_what_the_options_say() -> None:
    model = ScriptedModel([response(call("a")), DONE])
    run = run_info(
        effort="max",
        thinking={"type": "enabled", "budget_tokens": 2000},
        task_budget={"total": 9000},
        betas=["b-1"],
    )
    journal = await play(effects(model), run)
    for request in model.requests:
        assert request.effort == "max"
        assert request.thinking == {"type": "enabled", "budget_tokens": 2000}
        assert (request.task_budget_tokens, request.betas) == (9000, ("b-1",))
    init = journal.messages()[0]
    assert isinstance(init, InitMessage)
    assert init.betas == ["b-1"]


# -- what a person should know ----------------------------------------------------------------


@pytest.mark.requirement("wire:informational")
async def test_a_person_is_told_of_a_model_without_a_price_once_after_init() -> None:
    journal = await play(effects([DONE]), run_info(model="free"))
    assert kinds(journal.messages()) == ["init", "informational", "prompt", "text", "success"]
    note = journal.messages()[1]
    assert isinstance(note, InformationalMessage)
    assert (note.level, note.tag) == ("warning", "unpriced_model")
    assert "free" in note.content


async def test_a_fallback_without_a_price_is_told_of_too() -> None:
    journal = await play(effects([DONE]), run_info(fallback_model="free"))
    (note,) = [m for m in journal.messages() if isinstance(m, InformationalMessage)]
    assert (note.level, note.tag) == ("warning", "unpriced_model")
    assert "free" in note.content


async def test_a_run_of_which_there_is_nothing_to_know_says_nothing() -> None:
    journal = await play(effects([DONE]), run_info(effort="max", thinking={"type": "adaptive"}))
    assert kinds(journal.messages()) == ["init", "prompt", "text", "success"]


@pytest.mark.requirement("wire:status")
async def test_each_try_of_a_request_is_announced_to_those_who_look() -> None:
    previews = RecordingPreviews()
    await play(effects([throttled(None), response(call("a")), DONE], previews=previews))
    assert previews.requests == 3


# -- rate limits ------------------------------------------------------------------------------


@pytest.mark.requirement("wire:rate-limit")
@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([limit("allowed")] * 3, []),
        ([None, None, None], []),
        ([limit("allowed_warning")] * 3, [limit("allowed_warning")]),
        (
            [limit("allowed_warning"), limit("allowed"), limit("allowed_warning")],
            [limit("allowed_warning"), limit("allowed"), limit("allowed_warning")],
        ),
        ([limit("allowed_warning"), None, limit("allowed_warning")], [limit("allowed_warning")]),
    ],
)
async def test_a_limit_is_told_when_it_comes_near_and_when_it_is_far_again(
    answers: list[RateLimitInfo | None], expected: list[RateLimitInfo]
) -> None:
    calls = [response(call(f"c{n}")) for n in range(len(answers) - 1)]
    script = [
        replace(answer, rate_limit=info)
        for answer, info in zip([*calls, DONE], answers, strict=True)
    ]
    journal = await play(effects(script))
    assert told(journal) == expected
    assert journal.result().subtype == "success"


@pytest.mark.requirement("wire:rate-limit")
async def test_a_refusal_is_told_before_its_retry_and_again_when_it_names_another_time() -> None:
    refusals = [limit("rejected", 5), limit("rejected", 5), limit("rejected", 9), None]
    journal = await play(effects([*map(throttled, refusals), DONE]))
    assert told(journal) == [limit("rejected", 5), limit("rejected", 9)]
    assert kinds(journal.messages())[2:] == [
        *("rate_limit_event", "api_retry", "api_retry", "rate_limit_event", "api_retry"),
        *("api_retry", "text", "success"),
    ]


@pytest.mark.requirement("wire:rate-limit")
async def test_a_refusal_that_ends_the_run_is_told_before_its_end() -> None:
    run = run_info(max_retries=0)
    journal = await play(effects([throttled(limit("rejected", 5))]), run)
    assert kinds(journal.messages())[2:] == ["rate_limit_event", "text", "error_during_execution"]


@pytest.mark.requirement("wire:rate-limit")
async def test_a_host_that_takes_over_does_not_tell_again_but_the_next_run_does() -> None:
    near = limit("allowed_warning")
    script = [
        replace(response(call("a")), rate_limit=near),
        replace(DONE, rate_limit=near),
    ]
    journal = await play(effects(script))
    assert told(journal) == [near]
    cut = Journal(rows=journal.rows[:4])
    await play(effects(ScriptedModel(script, cursor=1), prompts=()), journal=cut)
    assert told(cut) == [near]
    await play(effects(script[1:]), run_info("run_2"), cut)
    assert told(cut) == [near, near]


@pytest.mark.requirement("wire:rate-limit")
async def test_an_empty_answer_tells_of_the_limit_too() -> None:
    near = limit("allowed_warning")
    script = [
        replace(response(), rate_limit=near),
        replace(response(), rate_limit=limit("allowed")),
    ]
    journal = await play(effects(script))
    assert told(journal) == [near, limit("allowed")]


# -- the budget -------------------------------------------------------------------------------


@pytest.mark.requirement("engine:budget-warning")
@pytest.mark.parametrize(
    ("tokens", "shares"),
    [
        ([700, 90], []),
        ([700, 100], [0.8]),
        ([700, 100, 100], [0.8]),
        ([700, 100, 150, 20], [0.8, 0.95]),
        ([960], [0.8, 0.95]),
        ([500, 500], []),  # spent: the run ends of it
    ],
)
async def test_the_log_says_when_a_run_passes_a_share_of_its_budget(
    tokens: list[int], shares: list[float]
) -> None:
    calls = [
        response(call(f"c{n}"), usage=Usage(input_tokens=count)) for n, count in enumerate(tokens)
    ]
    journal = await play(effects([*calls, DONE]), run_info(max_budget_usd="0.01"))
    told = [event for batch in journal.batches for event in batch.events]
    assert [event.data["share"] for event in told] == shares
    assert {(event.type, event.data["budget_usd"]) for event in told} <= {
        ("budget.warning", "0.01")
    }
