"""Compaction in the loop: when, what the model sees afterwards, and what goes wrong."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.agent.broken_off import interrupted
from app.agent.loop import run_agent
from app.agent.lost_request import lost_request
from app.agent.state import LoopState
from app.agent.steps import AskModel, Compact, next_step
from app.compaction.summary import LEFT_OUT, STRICTER, TASK
from app.compaction.window import Window
from app.domain.briefing import Briefing, News
from app.domain.compaction import CompactBoundaryMessage
from app.domain.messages import AssistantMessage, UserMessage
from app.domain.model import ModelRequest, ModelResponse
from app.domain.notices import StatusMessage
from app.domain.tools import FileSeen, ToolCall, ToolFacts, ToolMemory, ToolResult
from app.domain.usage import Usage
from app.errors import ContextTooLong, ModelError, ModelOverloaded, ModelRejected
from tests.agent.test_resume import assert_valid
from tests.fakes.effects import (
    Answer,
    FakeClock,
    Journal,
    ScriptedModel,
    ScriptedToolbox,
    Stalled,
    ToldPlace,
    call,
    effects,
    kinds,
    play,
    prompt,
    response,
    run_info,
    text,
)

SMALL = Window(10_000)
"""Compacts from 8,000 tokens on; a tail has 1,000."""
NOTES = response(text("<summary>the notes</summary>"), usage=Usage(input_tokens=7, output_tokens=3))


def looks(call_id: str, tokens: int) -> ModelResponse:
    return response(call(call_id), usage=Usage(input_tokens=tokens, output_tokens=10))


def too_long() -> ModelError:
    return ContextTooLong(
        "prompt is too long", category="invalid_request", status=400, error_type="x"
    )


def texts(request: ModelRequest) -> list[list[str]]:
    """Each message as its texts, its calls and the calls it answers."""
    shown = []
    for message in request.messages:
        blocks = [orjson.loads(block) for block in message.blocks]
        shown.append([b.get("text") or b.get("id") or f"={b['tool_use_id']}" for b in blocks])
    return shown


async def full_session(
    *last: Answer, window: Window = SMALL, **options: Any
) -> tuple[Journal, ScriptedModel]:
    """Three rounds that fill the window; then what the model says."""
    script = [looks("a", 1_000), looks("b", 6_000), looks("c", 7_900), *last]
    model = ScriptedModel(script)
    heavy = ScriptedToolbox(run=_much)
    journal = await play(effects(model, tools=heavy), run_info(window=window, **options))
    return journal, model


async def _much(called: ToolCall, _: ToolMemory) -> ToolResult:
    seen = ToolFacts(cwd=f"/workspace/{called.id}")
    return ToolResult("x" * 400, facts=seen)


@pytest.mark.requirement("loop:compaction")
async def test_a_full_window_is_compacted_before_the_next_request() -> None:
    journal, model = await full_session(NOTES, response(text("end")))
    assert kinds(journal.messages()) == [
        *("init", "prompt"),
        *("tool_use", "tool_result") * 3,
        *("status", "status", "compact_boundary", "note", "text", "success"),
    ]
    asked, after = model.requests[-2:]
    assert texts(asked)[:-1] == [["hello"], ["a"], ["=a"], ["b"]]
    assert texts(asked)[-1] == ["=b", TASK]
    (summary,), *tail = texts(after)
    assert "the notes" in summary
    assert tail == [["c"], ["=c"]]
    assert (asked.system, asked.tools) == (after.system, after.tools)
    for request in model.requests:
        assert_valid(request)


async def test_the_boundary_tells_what_stays_and_how_much_goes() -> None:
    journal, _ = await full_session(NOTES, response(text("end")))
    (at,) = [n for n, m in enumerate(journal.messages()) if isinstance(m, CompactBoundaryMessage)]
    asked, result, began, done, boundary, summary = journal.messages()[at - 4 : at + 2]
    assert isinstance(boundary, CompactBoundaryMessage)
    assert isinstance(began, StatusMessage)
    assert isinstance(done, StatusMessage)
    assert isinstance(summary, UserMessage)
    assert (began.status, began.compact_output_chars) == ("compacting", 0)
    assert (done.status, done.compact_result) == (None, "success")
    told = boundary.compact_metadata
    assert told.trigger == "auto"
    assert told.pre_tokens == 7_910 + 113  # as counted, and the newest result
    assert told.post_tokens < 500
    assert told.cumulative_dropped_tokens == told.pre_tokens - told.post_tokens
    segment, messages = told.preserved_segment, told.preserved_messages
    assert (segment.head_uuid, segment.tail_uuid) == (asked.uuid, result.uuid)
    assert segment.anchor_uuid == messages.anchor_uuid == summary.uuid
    assert messages.uuids == messages.all_uuids == [asked.uuid, result.uuid]
    assert boundary.logical_parent_uuid == result.uuid
    assert (summary.isSynthetic, summary.isReplay) == (True, None)


async def test_a_summary_is_paid_but_no_turn_and_no_usage_of_the_run() -> None:
    journal, _ = await full_session(NOTES, response(text("end")))
    result = journal.result()
    assert result.num_turns == 4
    assert result.usage.input_tokens == 1_000 + 6_000 + 7_900 + 100
    assert result.modelUsage["priced-model"].inputTokens == 1_000 + 6_000 + 7_900 + 100 + 7
    assert [row.purpose for _, row in journal.ledger] == [*["main"] * 3, "compaction", "main"]


async def test_what_the_session_knows_outlives_a_compaction() -> None:
    journal, _ = await full_session(NOTES, response(text("end")))
    later = journal.state(run_info("run_2"))
    assert later.memory.cwd == "/workspace/c"
    (at,) = [n for n, row in enumerate(journal.rows) if row[2] and "compacted" in row[2]]
    head = journal.messages().index(
        next(m for m in journal.messages() if isinstance(m, AssistantMessage) and has(m, "c"))
    )
    assert at - head == 5
    rest = Journal(journal.rows[head:], journal.ledger)
    assert rest.state(run_info("run_2")) == later
    assert rest.state(run_info()) == journal.state(run_info())


def has(message: AssistantMessage, call_id: str) -> bool:
    return getattr(message.message.content[0], "id", None) == call_id


@pytest.mark.requirement("loop:too-long")
async def test_a_prompt_that_is_too_long_is_compacted_and_sent_again() -> None:
    roomy = Window(1_000_000)
    journal, model = await full_session(too_long(), NOTES, response(text("end")), window=roomy)
    assert journal.result().subtype == "success"
    assert texts(model.requests[-1])[1:] == [["b"], ["=b"], ["c"], ["=c"]]


async def test_a_second_time_as_little_as_possible_stays_and_then_the_run_fails() -> None:
    roomy = Window(1_000_000)
    journal, model = await full_session(
        too_long(), NOTES, too_long(), NOTES, too_long(), window=roomy
    )
    result = journal.result()
    assert (result.subtype, result.terminal_reason) == (
        "error_during_execution",
        "prompt_too_long",
    )
    assert result.api_error_status == 400
    assert texts(model.requests[-3])[1:] == [["b"], ["=b"], ["c"], ["=c"]]
    assert texts(model.requests[-1])[1:] == [["c"], ["=c"]]


async def test_a_first_prompt_that_is_too_long_has_nothing_to_take_out() -> None:
    journal = await play(effects([too_long()]), run_info(window=SMALL))
    assert kinds(journal.messages()) == ["init", "prompt", "text", "error_during_execution"]
    assert journal.result().terminal_reason == "prompt_too_long"


@pytest.mark.parametrize(
    "answers",
    [
        [ModelRejected("no", category="unknown", status=400)],
        [response(call("z")), response(text(" "))],
        [too_long(), too_long()],
    ],
)
async def test_without_a_summary_the_run_ends(answers: Sequence[Answer]) -> None:
    journal, model = await full_session(*answers)
    assert len(model.requests) == 3 + len(answers)
    result = journal.result()
    assert (result.subtype, result.terminal_reason, result.is_error) == (
        "error_during_execution",
        "blocking_limit",
        True,
    )
    failed = journal.messages()[-3]
    assert isinstance(failed, StatusMessage)
    assert (failed.status, failed.compact_result) == (None, "failed")
    assert result.errors == [failed.compact_error]
    again = await play(effects([response(text("ok"))]), run_info("run_2"), journal)
    assert again.result().subtype == "success"


async def test_a_useless_answer_is_asked_for_once_more_in_stricter_words() -> None:
    journal, model = await full_session(response(call("z")), NOTES, response(text("end")))
    assert journal.result().subtype == "success"
    assert texts(model.requests[4])[-1][-1] == f"{TASK}{STRICTER}"
    assert [row.purpose for _, row in journal.ledger].count("compaction") == 2


async def test_a_summary_is_retried_as_any_request_is() -> None:
    busy = ModelOverloaded("busy", category="overloaded", status=529, usage=Usage(input_tokens=5))
    journal, _ = await full_session(busy, NOTES, response(text("end")))
    assert kinds(journal.messages())[8:12] == ["status", "api_retry", "status", "compact_boundary"]
    assert [row.purpose for _, row in journal.ledger].count("compaction") == 2
    assert journal.result().subtype == "success"


async def test_what_does_not_fit_into_a_summary_request_is_halved() -> None:
    journal, model = await full_session(too_long(), NOTES, response(text("end")))
    assert texts(model.requests[4]) == [[LEFT_OUT], ["b"], ["=b", TASK]]
    assert_valid(model.requests[4])
    assert journal.result().subtype == "success"


async def test_a_budget_that_a_summary_spends_ends_the_run() -> None:
    dear = replace(NOTES, usage=Usage(input_tokens=10_000))
    journal, model = await full_session(dear, max_budget_usd="0.2")
    assert journal.result().subtype == "error_max_budget_usd"
    assert len(model.requests) == 4


async def test_a_run_that_may_make_no_request_is_not_compacted_for_one() -> None:
    journal, model = await full_session(max_turns=3)
    assert journal.result().subtype == "error_max_turns"
    assert len(model.requests) == 3


async def test_without_compaction_a_full_window_blocks() -> None:
    off = Window(10_000, is_auto=False)
    journal, model = await full_session(looks("d", 8_740), window=off)
    assert len(model.requests) == 4
    assert kinds(journal.messages())[-2:] == ["text", "error_during_execution"]
    assert journal.result().terminal_reason == "blocking_limit"


async def test_a_conversation_that_stays_too_large_is_compacted_once_and_then_tried() -> None:
    async def huge(_: ToolCall, __: ToolMemory) -> ToolResult:
        return ToolResult("x" * 40_000)

    script = [looks("a", 1_000), looks("b", 2_000), NOTES, response(text("end"))]
    model = ScriptedModel(script)
    world = effects(model, tools=ScriptedToolbox(run=huge))
    journal = await play(world, run_info(window=SMALL))
    assert journal.result().subtype == "success"
    assert kinds(journal.messages()).count("compact_boundary") == 1


# -- stopping in the middle -------------------------------------------------------------------


async def stopped_while_compacting() -> tuple[Journal, LoopState, Stalled]:
    stalled = Stalled()
    script: list[Answer] = [looks("a", 1_000), looks("b", 6_000), looks("c", 8_000), stalled]
    journal, run = Journal(), run_info(window=SMALL)
    live = journal.state(run)
    async with asyncio.timeout(30), aclosing(run_agent(live, effects(script))) as advances:
        while not live.is_compacting:
            advance = await anext(advances)
            journal.store(run, advance)
            live = advance.state
        asking = asyncio.ensure_future(anext(advances))
        await stalled.began.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    return journal, live, stalled


async def test_a_host_that_is_lost_while_it_summarises_leaves_the_conversation_as_it_was() -> None:
    journal, _, stalled = await stopped_while_compacting()
    assert stalled.was_closed
    run = run_info(window=SMALL)
    state = journal.state(run)
    assert next_step(state) == Compact()
    lost = lost_request(state, effects())
    assert lost is not None
    (row,) = lost.ledger
    assert (row.purpose, row.estimated, row.usage.input_tokens) == ("compaction", True, 8_010)
    journal.store(run, lost)
    model = ScriptedModel([NOTES, response(text("end"))])
    await play(effects(model, clock=FakeClock(prefix="again")), run, journal)
    assert kinds(journal.messages())[8:] == [
        *("status", "status", "compact_boundary", "note", "text", "success")
    ]
    assert len(model.requests) == 2


async def test_a_cancel_ends_the_compaction_too() -> None:
    journal, live, _ = await stopped_while_compacting()
    journal.store(run_info(), interrupted(live, effects()))
    assert kinds(journal.messages())[8:] == [
        *("status", "status", "note", "error_during_execution")
    ]
    assert journal.ledger[-1][1].purpose == "compaction"
    state = journal.state(run_info("run_2", window=SMALL))
    assert not state.is_compacting
    assert len(state.context) == 6


# -- by command -------------------------------------------------------------------------------


async def after_a_talk(
    said: str, *answers: Answer, talk: Sequence[Answer] = (looks("a", 100), response(text("one")))
) -> tuple[Journal, ScriptedModel]:
    journal = await play(effects(talk))
    model = ScriptedModel(answers)
    world = effects(model, prompts=[prompt(said)], clock=FakeClock(prefix="by-command"))
    await play(world, run_info("run_2"), journal)
    return journal, model


@pytest.mark.requirement("loop:compact-command")
async def test_compact_is_a_run_of_its_own_without_an_answer() -> None:
    journal, model = await after_a_talk(" /compact  keep the\ncolours ", NOTES)
    assert kinds(journal.messages())[6:] == [
        *("status", "status", "init", "prompt", "compact_boundary", "note", "prompt", "success")
    ]
    result = journal.result()
    assert (result.result, result.num_turns, result.local_command) == ("", 0, "compact")
    told = orjson.loads(journal.rows[-1][1])
    assert not {"terminal_reason", "api_error_status", "ttft_ms"} & told.keys()
    assert told["stop_reason"] is None
    assert result.usage.input_tokens == 0
    (asked,) = model.requests
    assert texts(asked)[:-1] == [["hello"], ["a"]]
    assert texts(asked)[-1][1].endswith("keep the\ncolours")
    assert [len(batch.entries) for batch in journal.batches[-2:]] == [1, 7]
    assert journal.batches[-1].consumed == ("inbox-1",)


async def test_the_next_prompt_sees_summary_tail_and_that_there_was_a_command() -> None:
    journal, _ = await after_a_talk("/compact", NOTES)
    model = ScriptedModel([response(text("two"))])
    await play(effects(model, prompts=[prompt("next")]), run_info("run_3"), journal)
    (summary,), *tail, newest = texts(model.requests[0])
    assert "the notes" in summary
    assert tail == [["one"]]
    assert newest[1:] == [
        "/compact",
        "<local-command-stdout>Compacted</local-command-stdout>",
        "next",
    ]
    assert_valid(model.requests[0])


@pytest.mark.parametrize("said", ["/compact", "/compact now"])
async def test_there_is_nothing_to_compact_in_a_new_session(said: str) -> None:
    journal = await play(effects(prompts=[prompt(said)]))
    assert kinds(journal.messages()) == ["init", "prompt", "text", "success"]
    assert (journal.result().result, journal.result().local_command) == ("", "compact")
    model = ScriptedModel([response(text("hi"))])
    await play(effects(model, prompts=[prompt("next")]), run_info("run_2"), journal)
    assert texts(model.requests[0]) == [["next"]]


async def test_a_command_whose_summary_fails_says_so_and_changes_nothing() -> None:
    wrong = ModelRejected("no", category="unknown", status=400)
    journal, _ = await after_a_talk("/compact", wrong)
    assert kinds(journal.messages())[6:] == [
        *("status", "status", "init", "prompt", "text", "error_during_execution")
    ]
    assert journal.result().terminal_reason == "api_error"
    model = ScriptedModel([response(text("hi"))])
    await play(effects(model, prompts=[prompt("next")]), run_info("run_3"), journal)
    assert texts(model.requests[0]) == [["hello"], ["a"], ["=a"], ["one"], ["next"]]


@pytest.mark.parametrize(
    "said", ["/compacted", "please /compact", "/ compact", [{"type": "text", "text": "/com"}]]
)
async def test_other_prompts_are_for_the_model(said: Any) -> None:
    journal, model = await after_a_talk(said, response(text("yes")))
    assert journal.result().result == "yes"
    assert next_step(replace(journal.state(run_info("run_2")), result=None)) != AskModel()
    assert len(model.requests) == 1


async def test_a_command_that_is_sent_into_a_run_is_left_for_a_run_of_its_own() -> None:
    steer = replace(prompt("/compact"), is_steer=True)
    model = ScriptedModel([looks("a", 100), response(text("end"))])
    journal = await play(effects(model, prompts=[prompt(), steer]))
    assert kinds(journal.messages()).count("prompt") == 1
    assert texts(model.requests[-1]) == [["hello"], ["a"], ["=a"]]


# -- the briefing -----------------------------------------------------------------------------


async def test_what_the_model_was_told_of_its_place_stands_whole_behind_a_compaction() -> None:
    """Instructions that a call came by were told in a message that is gone: they open now."""
    place = ToldPlace(
        Briefing("Date: today", {"/workspace/CLAUDE.md": "Be kind."}),
        {"/workspace/b": News(files={"/workspace/sub/CLAUDE.md": "Be brief."})},
    )

    async def reads(called: ToolCall, _: ToolMemory) -> ToolResult:
        seen = {f"/workspace/{called.id}": FileSeen("0", 0)}
        return ToolResult("x" * 400, facts=ToolFacts(files=seen))

    script = [looks("a", 1_000), looks("b", 6_000), looks("c", 7_900), NOTES, response(text("e"))]
    model = ScriptedModel(script)
    world = effects(model, tools=ScriptedToolbox(run=reads), place=place)
    journal = await play(world, run_info(window=SMALL))
    before, asked, after = model.requests[2:]
    assert "Be brief" not in texts(before)[0][0]
    assert texts(asked)[0] == texts(before)[0]
    assert "Be kind" in texts(after)[0][0]
    assert "Be brief" in texts(after)[0][0]
    assert "the notes" in texts(after)[0][-1]
    run = run_info("run_2")
    at = next(n for n, row in enumerate(journal.rows) if row[2] and "compacted" in row[2])
    assert Journal(journal.rows[at - 5 :]).state(run) == Journal(journal.rows).state(run)
