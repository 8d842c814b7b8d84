"""A suggestion after the result: when it comes, what it costs, what a lost one leaves."""

from typing import Any

import orjson
import pytest

from app.agent.lost_request import lost_request
from app.agent.suggest_step import MAX_CHARS, TASK, closed_by_result, suggest, suggestion_in
from app.domain.notices import PromptSuggestionMessage
from app.domain.usage import Usage
from app.errors import ModelOverloaded
from tests.fakes.effects import (
    Answer,
    Journal,
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
NEXT = response(text(' "Now the tests."\nor the docs'))


def asked(model: ScriptedModel) -> list[str]:
    """The last block of each request."""
    last = [orjson.loads(request.messages[-1].blocks[-1]) for request in model.requests]
    return [str(block.get("text", block["type"])) for block in last]


@pytest.mark.requirement("loop:suggestion")
async def test_the_result_is_stored_first_and_the_outcome_comes_with_the_suggestion() -> None:
    model = ScriptedModel([response(call("a")), DONE, NEXT])
    journal = await play(
        effects(model, prompts=[prompt()]), run_info(prompt_suggestions=True, effort="high")
    )
    assert kinds(journal.messages())[-3:] == ["text", "success", "prompt_suggestion"]
    before, last = journal.batches[-2:]
    assert (before.outcome, kinds(e.message for e in before.entries)) == (None, ["text", "success"])
    assert last.outcome is not None
    assert (last.outcome.subtype, last.outcome.result_text) == ("success", "done")
    (told,) = last.entries
    assert isinstance(told.message, PromptSuggestionMessage)
    assert told.message.suggestion == "Now the tests."
    assert [row.purpose for row in last.ledger] == ["suggestion"]
    assert asked(model) == ["hello", "tool_result", TASK]
    main, small = model.requests[-2:]
    assert small.messages[: len(main.messages)] == main.messages  # and so it is cached
    assert (small.system, small.tools) == (main.system, main.tools)
    assert (small.effort, small.max_tokens < main.max_tokens) == (None, True)


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ([DONE], {}),
        ([response(text("no"), stop_reason="refusal")], {"prompt_suggestions": True}),
        ([DONE], {"prompt_suggestions": True, "max_budget_usd": "0.0000001"}),
        ([response(call("a"))], {"prompt_suggestions": True, "max_turns": 1}),
    ],
    ids=["nobody asked", "refusal", "budget spent", "error"],
)
async def test_nothing_follows_these_results(script: list[Answer], options: Any) -> None:
    journal = await play(effects(script, prompts=[prompt()]), run_info(**options))
    assert journal.result().subtype in {"success", "error_max_turns"}
    assert journal.batches[-1].outcome is not None


@pytest.mark.parametrize(
    ("answer", "rows"),
    [
        (response(call("b")), 1),
        (response(text("-")), 1),
        (response(text("No."), stop_reason="refusal"), 1),
        (ModelOverloaded("busy", category="overloaded", status=529), 0),
        (ModelOverloaded("cut", category="unknown", usage=Usage(input_tokens=5)), 1),
    ],
    ids=["a call", "nothing", "refusal", "failure", "billed failure"],
)
async def test_a_run_ends_well_without_a_suggestion(answer: Answer, rows: int) -> None:
    world = effects([DONE, answer], prompts=[prompt()])
    journal = await play(world, run_info(prompt_suggestions=True))
    assert journal.result().subtype == "success"
    outcome, ledger = journal.batches[-1].outcome, journal.batches[-1].ledger
    assert outcome is not None
    assert (outcome.subtype, len(ledger)) == ("success", rows)


async def test_one_that_takes_too_long_is_given_up_and_estimated() -> None:
    state = (await stopped_after_result()).state(run_info(prompt_suggestions=True))
    stalled = Stalled()
    (ended,) = [a async for a in suggest(state, effects([stalled]), within_s=0.01)]
    assert stalled.was_closed
    (row,) = ended.batch.ledger
    assert (row.purpose, row.estimated, row.usage.input_tokens > 0) == ("suggestion", True, True)
    assert (ended.state.is_over, ended.batch.entries) == (True, ())


async def stopped_after_result() -> Journal:
    """A journal whose host died with the result as its last row."""
    whole = await play(effects([DONE, NEXT], prompts=[prompt()]), run_info(prompt_suggestions=True))
    return Journal(whole.rows[:-1], whole.ledger[:-1])


@pytest.mark.requirement("loop:suggestion-takeover")
async def test_another_host_counts_the_lost_request_and_asks_again() -> None:
    journal, run = await stopped_after_result(), run_info(prompt_suggestions=True)
    world = effects([NEXT])
    lost = lost_request(journal.state(run), world)
    assert lost is not None
    assert [(row.purpose, row.estimated) for row in lost.ledger] == [("suggestion", True)]
    journal.store(run, lost)
    await play(world, run, journal)
    assert kinds(journal.messages()).count("success") == 1
    assert journal.batches[-1].outcome is not None
    assert [row.purpose for _, row in journal.ledger] == ["main", "suggestion", "suggestion"]


async def test_whoever_stops_a_run_after_its_result_ends_it_as_that_says() -> None:
    journal, run = await stopped_after_result(), run_info(prompt_suggestions=True)
    state = journal.state(run)
    assert not state.is_over
    batch = closed_by_result(state)
    assert (batch.entries, batch.ledger) == ((), ())
    assert batch.outcome is not None
    assert (batch.outcome.end_reason, batch.outcome.num_turns) == ("completed", 1)
    assert state.apply(batch).is_over
    with pytest.raises(ValueError, match="no result"):
        closed_by_result(Journal().state(run))


async def test_after_a_structured_output_it_stands_behind_its_result() -> None:
    output = {"type": "json_schema", "schema": {"type": "object"}}
    given = call("out", "StructuredOutput", n=1)
    model = ScriptedModel([response(given), NEXT])
    run = run_info(prompt_suggestions=True, output_format=output)
    journal = await play(effects(model, prompts=[prompt()]), run)
    assert kinds(journal.messages())[-2:] == ["success", "prompt_suggestion"]
    kinds_asked = [orjson.loads(block)["type"] for block in model.requests[-1].messages[-1].blocks]
    assert kinds_asked == ["tool_result", "text"]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ((text(""),), ""),
        ((thinking("hm"), text("\n\n  Go on.  ")), "Go on."),
        ((text("x" * 999),), "x" * MAX_CHARS),
        ((text("'Try it'"),), "Try it"),
    ],
)
def test_one_line_of_the_answer_is_taken(blocks: Any, expected: str) -> None:
    assert suggestion_in(response(*blocks)) == expected
