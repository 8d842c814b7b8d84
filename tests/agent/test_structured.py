"""Structured output in the loop: what counts, when it ends, and what a resumed run knows of it."""

from contextlib import aclosing
from typing import Any

import orjson
import pytest

from app.agent.loop import run_agent
from app.agent.structured import (
    KEPT,
    MAX_KEPT_CHARS,
    MISSING_TEXT,
    OUTPUT_TOOL,
    RETRACTED_TEXT,
    raw_input,
)
from app.agent.tool_step import BUDGET_TEXT
from app.domain.blocks import UNPARSED
from app.domain.messages import UserMessage, encode_message
from app.domain.tools import ToolCall, ToolMemory, ToolResult, ToolSpec
from app.domain.usage import Usage
from app.errors import ModelOverloaded, ModelRejected
from tests.fakes.effects import (
    CHANGE,
    LOOK,
    Broken,
    DenyThese,
    FakeClock,
    Journal,
    ScriptedModel,
    ScriptedToolbox,
    call,
    effects,
    kinds,
    play,
    response,
    run_info,
    text,
    thinking,
)

FORMAT = {"type": "json_schema", "schema": {"type": "object", "required": ["n"]}}
OUTPUT = ToolSpec(OUTPUT_TOOL, "Takes the output.", {"type": "object"}, read_only=True)


async def taken(call: ToolCall, _memory: ToolMemory) -> ToolResult:
    if call.name == OUTPUT_TOOL and "n" not in call.input:
        return ToolResult(f"{call.id} lacks n", is_error=True)
    return ToolResult("done")


def toolbox() -> ScriptedToolbox:
    return ScriptedToolbox(offered=(LOOK, CHANGE, OUTPUT), run=taken)


def good(call_id: str, **more: Any) -> Any:
    return call(call_id, OUTPUT_TOOL, n=1, **more)


def bad(call_id: str, **given: Any) -> Any:
    return call(call_id, OUTPUT_TOOL, **given)


async def played(*script: Any, model: ScriptedModel | None = None, **options: Any) -> Journal:
    world = effects(model or list(script), tools=toolbox(), gate=DenyThese((OUTPUT_TOOL,)))
    return await play(world, run_info(output_format=FORMAT, **options))


def ended(journal: Journal) -> tuple[str, str | None, int]:
    result = journal.result()
    return result.subtype, result.terminal_reason, result.num_turns


EXHAUSTED = ("error_max_structured_output_retries", "structured_output_retry_exhausted")


@pytest.mark.requirement("output:success")
async def test_a_valid_call_ends_the_run_and_needs_no_permission() -> None:
    model = ScriptedModel([response(text("Here."), good("a", z="é"))])
    journal = await played(model=model)
    result = journal.result()
    assert kinds(journal.messages()) == [
        "init",
        "prompt",
        "text",
        "tool_use",
        "tool_result",
        "success",
    ]
    assert (result.structured_output, result.result) == ({"n": 1, "z": "é"}, '{"n":1,"z":"é"}')
    assert (result.stop_reason, result.terminal_reason) == ("tool_use", "completed")
    outcome = journal.batches[-1].outcome
    assert outcome is not None
    assert (outcome.result_text, outcome.end_reason) == ('{"n":1,"z":"é"}', "completed")
    meta = journal.messages()[-2]
    assert isinstance(meta, UserMessage)
    assert meta.tool_result_meta == [
        {"id": "a", "permission_decision": {"decision": "accept", "source": "config"}}
    ]


@pytest.mark.requirement("output:success")
async def test_the_other_calls_of_the_response_are_still_carried_out() -> None:
    journal = await played(response(good("a"), call("b", "Change"), call("c", "Nope")))
    assert sorted(journal.results()) == ["a", "b", "c"]
    assert journal.result().structured_output == {"n": 1}


async def test_of_several_valid_calls_the_last_one_counts() -> None:
    journal = await played(response(good("a", v=1), bad("x"), good("b", v=2), bad("y")))
    assert journal.result().structured_output == {"n": 1, "v": 2}


@pytest.mark.requirement("output:attempts")
async def test_invalid_calls_are_told_why_and_tried_again() -> None:
    journal = await played(response(bad("a")), response(bad("b")), response(good("c")))
    assert journal.results()["a"].content == "a lacks n"
    assert (journal.result().structured_output, journal.result().num_turns) == ({"n": 1}, 3)


@pytest.mark.requirement("output:attempts")
async def test_after_five_invalid_calls_the_run_ends_with_what_they_gave() -> None:
    model = ScriptedModel([response(bad(f"call-{i}", try_=i)) for i in range(9)])
    journal = await played(model=model)
    assert (ended(journal), len(model.requests)) == ((*EXHAUSTED, 5), 5)
    result = journal.result()
    assert (result.is_error, result.stop_reason) == (True, "tool_use")
    assert essence(result)["structured_output"] is None
    assert result.errors is not None
    [error] = result.errors
    assert "5 attempts" in error
    assert "call-4 lacks n" in error
    assert [f'{{"try_":{i}}}' in error for i in range(5)] == [False, False, True, True, True]
    outcome = journal.batches[-1].outcome
    assert outcome is not None
    assert outcome.end_reason == "structured_output"


@pytest.mark.requirement("output:attempts")
async def test_an_answer_in_words_is_asked_for_the_call_and_counts() -> None:
    model = ScriptedModel([response(text(f"word {i}")) for i in range(9)])
    journal = await played(model=model)
    assert (ended(journal), len(model.requests)) == ((*EXHAUSTED, 5), 5)
    assert kinds(journal.messages())[2:] == [*["text", "note"] * 4, "text", EXHAUSTED[0]]
    asked = [orjson.loads(m.blocks[-1])["text"] for m in model.requests[-1].messages[::2]]
    assert asked == ["hello", *[MISSING_TEXT] * 4]
    assert journal.result().errors is not None
    assert "word 2; word 3; word 4" in journal.result().errors[0]


@pytest.mark.requirement("output:attempts")
async def test_words_and_invalid_calls_count_together() -> None:
    script = [response(text("w")), response(bad("a"), bad("b")), response(text("w"))]
    journal = await played(*script, response(good("c")))
    assert journal.result().structured_output == {"n": 1}
    journal = await played(*script, response(bad("c")), response(good("d")))
    assert ended(journal) == (*EXHAUSTED, 4)


@pytest.mark.requirement("output:attempts")
async def test_attempts_are_counted_for_each_run_alone() -> None:
    journal = await played(*[response(bad(f"a{i}")) for i in range(5)])
    run = run_info("run_2", output_format=FORMAT)
    script = [*[response(bad(f"b{i}")) for i in range(4)], response(good("c"))]
    await play(effects(script, tools=toolbox()), run, journal)
    assert journal.result().structured_output == {"n": 1}
    plain = await play(effects([response(text("plain"))]), run_info("run_3"), journal)
    assert (plain.result().result, plain.result().structured_output) == ("plain", None)


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ([response(good("a"))], ("success", "completed", 1)),
        ([response(bad("a"))], ("error_max_turns", "max_turns", 1)),
        ([response(text("w"))], ("error_max_turns", "max_turns", 1)),
    ],
)
async def test_a_failed_attempt_is_a_round(script: list[Any], end: tuple[str, str, int]) -> None:
    assert ended(await played(*script, max_turns=1)) == end


COSTLY = Usage(input_tokens=9_000)


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ([response(good("a"), usage=COSTLY)], ("success", "completed", 1)),
        ([response(bad("a"), usage=COSTLY)], ("error_max_budget_usd", "budget_exhausted", 1)),
        ([response(text("w"), usage=COSTLY)], ("error_max_budget_usd", "budget_exhausted", 1)),
    ],
)
async def test_an_output_past_the_budget_is_taken_and_nothing_more_is_asked(
    script: list[Any], end: tuple[str, str, int]
) -> None:
    assert ended(await played(*script, max_budget_usd=0.06)) == end


async def test_other_calls_past_the_budget_are_refused_beside_the_output() -> None:
    journal = await played(
        response(call("b", "Change"), good("a"), usage=COSTLY), max_budget_usd=0.06
    )
    assert journal.results()["b"].content == BUDGET_TEXT.replace("{budget}", "0.06")
    assert journal.result().structured_output == {"n": 1}


async def test_a_refusal_is_not_asked_again_and_is_no_success() -> None:
    for blocks in ([text("I will not.")], [thinking("no")], []):
        journal = await played(response(*blocks, stop_reason="refusal"))
        assert ended(journal) == (*EXHAUSTED, 1)
        assert journal.result().stop_reason == "refusal"


async def test_a_text_cut_at_the_output_limit_is_a_failed_attempt() -> None:
    cut = response(text("so fa"), stop_reason="max_tokens")
    empty = response(stop_reason="max_tokens")
    journal = await played(cut, empty, response(good("a")))
    assert kinds(journal.messages())[2:6] == ["text", "note", "note", "tool_use"]
    assert (journal.result().structured_output, journal.result().num_turns) == ({"n": 1}, 3)
    journal = await played(*[empty] * 9)
    assert ended(journal) == (*EXHAUSTED, 5)


async def test_an_empty_response_is_nudged_once_and_counts_from_then_on() -> None:
    journal = await played(*[response()] * 9)
    assert ended(journal) == (*EXHAUSTED, 6)
    journal = await played(response(), response(), response(good("a")), max_turns=2)
    assert ended(journal) == ("success", "completed", 3)


async def test_without_a_format_a_tool_of_that_name_is_any_tool() -> None:
    world = effects([response(good("a")), response(text("done"))], tools=toolbox())
    journal = await play(world)
    assert (journal.result().result, journal.result().structured_output) == ("done", None)


SCRIPT = [
    response(text("word")),
    response(bad("a"), call("b", "Change")),
    response(),
    response(bad("c"), bad("d")),
    response(good("e"), call("f", "Look")),
]


@pytest.mark.requirement("output:resume")
@pytest.mark.parametrize("last", [SCRIPT[-1], response(bad("e")), response(text("no"))])
async def test_a_run_cut_anywhere_and_resumed_ends_as_the_uninterrupted_one(last: Any) -> None:
    script = [*SCRIPT[:-1], last]
    whole = await played(*script)
    expected = whole.result()
    for cut in range(1, len(whole.batches)):
        journal = Journal()
        run = run_info(output_format=FORMAT)
        model = ScriptedModel(script)
        world = effects(model, tools=toolbox(), clock=FakeClock(prefix="first"))
        async with aclosing(run_agent(journal.state(run), world)) as stream:
            for _ in range(cut):
                journal.store(run, await anext(stream))
        state = journal.state(run)
        model = ScriptedModel(script, cursor=state.responses)
        await play(effects(model, tools=toolbox(), prompts=[]), run, journal)
        assert essence(journal.result()) == essence(expected), cut


def essence(result: Any) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(encode_message(result))
    names = ("subtype", "structured_output", "errors", "num_turns", "total_cost_usd")
    return {name: body.get(name) for name in names}


def test_what_a_call_gave_is_kept_as_the_model_wrote_it() -> None:
    assert raw_input({UNPARSED: {"raw": '{"n": 1'}}) == '{"n": 1'
    assert raw_input({"b": 1, "a": "é"}) == '{"b":1,"a":"é"}'


async def test_long_attempts_are_cut_in_the_error() -> None:
    journal = await played(*[response(text("x" * 50_000)) for _ in range(5)])
    assert journal.result().errors is not None
    [error] = journal.result().errors
    assert KEPT * MAX_KEPT_CHARS < len(error) < KEPT * MAX_KEPT_CHARS + 1_000
    assert "(46000 more characters)" in error


# -- a fallback takes an output back ----------------------------------------------------------

OTHER = "other-model"


def broken(*parts: str, name: str = OUTPUT_TOOL) -> Broken:
    """A response that fails once a call with this input has come whole."""
    start = {"type": "tool_use", "id": "a", "name": name, "input": {}}
    deltas = ({"type": "input_json_delta", "partial_json": part} for part in parts)
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
    ]
    return Broken(events, ModelOverloaded("oops", category="server_error", status=500))


def refused() -> ModelRejected:
    return ModelRejected("no", category="invalid_request", status=400)


@pytest.mark.requirement("output:retracted")
async def test_a_run_whose_fallback_took_the_output_back_and_gave_none_lacks_its_output() -> None:
    journal = await played(broken('{"n"', ": 1}"), refused(), fallback_model=OTHER)
    assert kinds(journal.messages()) == [
        *("init", "prompt", "model_fallback", "text", "error_max_structured_output_retries")
    ]
    result = journal.result()
    assert (result.terminal_reason, result.api_error_status) == ("api_error", 400)
    assert [text[:40] for text in result.errors] == [RETRACTED_TEXT[:40], "API error 400: no"]
    outcome = journal.batches[-1].outcome
    assert outcome is not None
    assert outcome.end_reason == "structured_output"


@pytest.mark.requirement("output:retracted")
async def test_what_the_fallback_took_back_is_known_to_another_host() -> None:
    run = run_info(output_format=FORMAT, fallback_model=OTHER)
    journal = Journal()
    world = effects([broken("{}"), refused()], tools=toolbox())
    async with aclosing(run_agent(journal.state(run), world)) as advances:
        for _ in range(2):
            journal.store(run, await anext(advances))
    assert kinds(journal.messages())[-1] == "model_fallback"
    await play(effects([refused()], tools=toolbox(), prompts=[]), run, journal)
    assert journal.result().subtype == "error_max_structured_output_retries"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([broken("{}"), response(good("b"))], "success"),
        ([broken('{"n": '), refused()], "error_during_execution"),
        ([broken("[1]"), refused()], "error_during_execution"),
        ([broken("{}", name="Look"), refused()], "error_during_execution"),
    ],
    ids=["given again", "not whole", "no object", "another call"],
)
async def test_nothing_was_taken_back(script: list[Any], expected: str) -> None:
    journal = await played(*script, fallback_model=OTHER)
    assert journal.result().subtype == expected
