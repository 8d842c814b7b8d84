"""One response: what is asked, what is kept of it, and what happens when it fails."""

import asyncio
import re
from decimal import Decimal
from typing import Any

import orjson
import pytest

from app.agent.model_step import NUDGE_TEXT
from app.agent.tool_step import REFUSAL_TEXT
from app.domain.blocks import UNPARSED, Block, OtherBlock, ToolUseBlock
from app.domain.messages import AssistantMessage, UserMessage
from app.domain.model import ModelRequest
from app.domain.text import MAX_JSON_DEPTH
from app.domain.tools import ToolSpec
from app.domain.usage import Usage
from app.errors import (
    ModelError,
    ModelOverloaded,
)
from tests.fakes.effects import (
    MODEL,
    Journal,
    RecordingPreviews,
    ScriptedModel,
    ScriptedToolbox,
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
    assert kinds(entry.message for entry in first.entries) == [
        "thinking_tokens",
        "thinking",
        "text",
        "tool_use",
    ]
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
    odd, plain = 'a","name":"', "a___name___"
    journal = await play(effects([response(call("a"), call(odd)), DONE]))
    model = ScriptedModel([response(call("a"), call(odd)), DONE])
    await play(effects(model), run_info("run_2"), journal)
    assert list(journal.results()) == ["a", plain, "a_2", f"{plain}_2"]
    ids = [
        block["id"]
        for _, blocks in request_blocks(model.requests[1])
        for block in blocks
        if block["type"] == "tool_use"
    ]
    assert ids == ["a", plain, "a_2", f"{plain}_2"]


@pytest.mark.requirement("loop:odd-names")
@pytest.mark.parametrize("name", ["../../x", "", "n" * 10_000, "Bash\u2400", "Вash", "a b"])
async def test_a_name_that_no_tool_can_have_is_told_as_it_is_and_sent_back_as_one(
    name: str,
) -> None:
    model = ScriptedModel([response(call("a", name)), DONE])
    journal = await play(effects(model))
    [asked, _] = answers(journal)
    assert asked.message.content[0].model_dump()["name"] == name
    assert journal.results()["a"].is_error is True
    [_, (_, [sent]), _] = request_blocks(model.requests[1])
    assert re.fullmatch("[a-zA-Z0-9_-]{1,128}", sent["name"])


async def test_thoughts_at_the_end_of_an_answer_are_not_sent_back() -> None:
    journal = await play(effects([response(thinking("a"), text("so"), thinking("b"))]))
    model = ScriptedModel([DONE])
    await play(effects(model, prompts=[prompt("go")]), run_info("run_2"), journal)
    [_, (_, sent), _] = request_blocks(model.requests[0])
    assert [block["type"] for block in sent] == ["thinking", "text"]


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


async def test_a_valid_call_is_told_with_the_defaults_that_its_tool_names() -> None:
    looks = ToolSpec("Look", "looks", {}, told_defaults={"far": False, "n": 0})
    calls = [call("a", n=1), call("b", wrong=1), call("c", name="Other")]
    model = ScriptedModel([response(*calls), DONE])
    await play(effects(model, tools=ScriptedToolbox(offered=[looks])))
    [_, asked, _] = request_blocks(model.requests[1])
    assert [b["input"] for b in asked[1]] == [{"far": False, "n": 1}, {"wrong": 1}, {}]


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


@pytest.mark.requirement("loop:empty-response")
async def test_a_response_of_thoughts_alone_is_told_but_not_sent_back() -> None:
    model = ScriptedModel([response(thinking("hm")), response(thinking("hm"))])
    journal = await play(effects(model))
    assert kinds(journal.messages()) == [
        *("init", "prompt", "thinking_tokens", "thinking", "note"),
        *("thinking_tokens", "thinking", "success"),
    ]
    nudged = ("user", [{"type": "text", "text": "hello"}, {"type": "text", "text": NUDGE_TEXT}])
    assert request_blocks(model.requests[1]) == [nudged]
    later = ScriptedModel([DONE])
    await play(effects(later, prompts=[prompt("go")]), run_info("run_2"), journal)
    nudged[1].append({"type": "text", "text": "go"})
    assert request_blocks(later.requests[0]) == [nudged]


async def test_a_paused_response_of_thoughts_alone_goes_back_to_be_gone_on_with() -> None:
    model = ScriptedModel([response(thinking("hm"), stop_reason="pause_turn"), DONE])
    await play(effects(model))
    assert [role for role, _ in request_blocks(model.requests[1])] == ["user", "assistant"]


@pytest.mark.requirement("loop:refusal")
async def test_calls_of_a_refusal_are_not_made_and_each_has_its_result() -> None:
    tools = ScriptedToolbox()
    refused = response(text("No."), call("a"), call("b"), stop_reason="refusal")
    model = ScriptedModel([refused])
    journal = await play(effects(model, tools=tools))
    assert tools.started() == []
    assert [(r.is_error, r.content) for r in journal.results().values()] == [
        (True, REFUSAL_TEXT)
    ] * 2
    result = journal.result()
    assert (result.subtype, result.result, result.stop_reason) == ("success", "No.", "refusal")
    assert result.safety_stops == 1
    assert len(model.requests) == 1


@pytest.mark.requirement("loop:max-tokens")
@pytest.mark.parametrize("limit", ["max_tokens", "model_context_window_exceeded"])
async def test_a_call_that_the_output_limit_cut_off_before_its_input_is_marked(limit: str) -> None:
    cut = response(call("a", n=1), call("b"), stop_reason=limit)
    journal = await play(effects([cut, DONE]))
    inputs = [m.message.content[0].model_dump()["input"] for m in answers(journal)[:2]]
    assert inputs == [{"n": 1}, {UNPARSED: {"raw": "", "len": 0}}]


@pytest.mark.requirement("loop:max-tokens")
@pytest.mark.parametrize("limit", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("words", ["half an ans", ""])
async def test_an_answer_that_met_a_limit_is_a_success_that_says_so(limit: str, words: str) -> None:
    journal = await play(effects([response(text(words), stop_reason=limit)]))
    result = journal.result()
    assert (result.subtype, result.result, result.stop_reason) == ("success", words, limit)
    assert (result.num_turns, result.safety_stops) == (1, 0)


async def test_an_empty_response_past_the_budget_is_not_followed_by_a_request() -> None:
    model = ScriptedModel([response(usage=Usage(input_tokens=5_000))])
    journal = await play(effects(model), run_info(max_budget_usd="0.05"))
    assert journal.result().subtype == "error_max_budget_usd"
    assert len(model.requests) == 1


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
