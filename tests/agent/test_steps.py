"""`next_step` as a table of cases: the state is a journal, in words."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from app.agent.begin_step import begin
from app.agent.model_step import answered, nudge
from app.agent.results import note_entry, result_entry
from app.agent.state import LoopState
from app.agent.steps import (
    MAX_PAUSES,
    AskModel,
    Finish,
    Nudge,
    RefuseTools,
    RunTools,
    Start,
    Step,
    next_step,
)
from app.domain.blocks import TextBlock, ToolUseBlock
from app.domain.journal import Batch
from app.domain.model import ModelResponse
from app.domain.tools import ToolResult
from app.domain.usage import Usage
from tests.fakes.effects import call, effects, play, response, run_info, text, thinking

CENTS_1 = Usage(input_tokens=1_000)
DONE = ToolResult("done")

Part = ModelResponse | str | ToolUseBlock
"""A response; a result for the call; a note of the user's side."""


async def state_after(parts: Sequence[Part], **options: Any) -> LoopState:
    world = effects()
    state = LoopState(run_info(**options))
    async for advance in begin(state, world):
        state = advance.state
    for index, part in enumerate(parts):
        match part:
            case ModelResponse():
                state = state.apply(answered(replace(part, id=f"msg_{index}"), state, world))
            case ToolUseBlock(id=call_id):
                state = state.apply(Batch((result_entry(call_id, DONE, state, world),)))
            case str():
                state = state.apply(Batch((note_entry(part, state, world),)))
    return state


A, B, C = call("a"), call("b"), call("c", n=1)
ONE_CENT_EACH: dict[str, Any] = {"max_budget_usd": Decimal("0.01")}
PAUSE = response(text("so far"), stop_reason="pause_turn")

CASES: list[tuple[str, Sequence[Part], dict[str, Any], Step]] = [
    ("after the prompts, the model", [], {}, AskModel()),
    ("a text ends the run", [response(text("hi"))], {}, Finish("completed")),
    ("calls are run", [response(text("hm"), A, B)], {}, RunTools((A, B))),
    ("only open calls are run", [response(A, B), A], {}, RunTools((B,))),
    (
        "blocks decide, not the stop reason",
        [response(A, stop_reason="end_turn")],
        {},
        RunTools((A,)),
    ),
    ("a call at the limit is closed", [response(C, stop_reason="max_tokens")], {}, RunTools((C,))),
    (
        "a refusal's calls are not made",
        [response(A, stop_reason="refusal")],
        {},
        RefuseTools((A,), "refusal"),
    ),
    ("nor gone on from", [response(A, stop_reason="refusal"), A], {}, Finish("completed")),
    ("results go to the model", [response(A), A], {}, AskModel()),
    ("a steered note goes to the model", [response(text("hi")), "more"], {}, AskModel()),
    ("below the limit", [response(A), A], {"max_turns": 2}, AskModel()),
    ("at the limit the tools still run", [response(A)], {"max_turns": 1}, RunTools((A,))),
    ("after the limit's tools", [response(A), A], {"max_turns": 1}, Finish("max_turns")),
    ("two rounds of two", [response(A), A, response(B), B], {"max_turns": 2}, Finish("max_turns")),
    ("parallel calls are one round", [response(A, B), A, B], {"max_turns": 2}, AskModel()),
    ("text alone needs no turn", [response(text("hi"))], {"max_turns": 1}, Finish("completed")),
    (
        "a final text after the last round but one",
        [response(A), A, response(text("hi"))],
        {"max_turns": 2},
        Finish("completed"),
    ),
    (
        "calls past the budget are refused",
        [response(A, B, usage=CENTS_1)],
        ONE_CENT_EACH,
        RefuseTools((A, B), "budget"),
    ),
    ("below the budget", [response(A)], ONE_CENT_EACH, RunTools((A,))),
    (
        "past the budget no request",
        [response(A, usage=CENTS_1), A],
        ONE_CENT_EACH,
        Finish("budget"),
    ),
    (
        "the budget is named before the turns",
        [response(A, usage=CENTS_1), A],
        {**ONE_CENT_EACH, "max_turns": 1},
        Finish("budget"),
    ),
    (
        "a final text is a success, whatever it cost",
        [response(text("hi"), usage=CENTS_1)],
        ONE_CENT_EACH,
        Finish("completed"),
    ),
    ("a paused response goes on", [PAUSE], {}, AskModel()),
    ("a pause is no turn", [PAUSE], {"max_turns": 1}, AskModel()),
    ("the last pause that goes on", [PAUSE] * MAX_PAUSES, {}, AskModel()),
    ("pauses end", [PAUSE] * (MAX_PAUSES + 1), {}, Finish("completed")),
    ("calls end a row of pauses", [*[PAUSE] * MAX_PAUSES, response(A), A, PAUSE], {}, AskModel()),
    (
        "calls of a paused response end the row as well",
        [*[PAUSE] * MAX_PAUSES, response(A, stop_reason="pause_turn"), A, PAUSE],
        {},
        AskModel(),
    ),
    ("a paused response with calls", [response(A, stop_reason="pause_turn")], {}, RunTools((A,))),
    (
        "a pause past the budget",
        [response(text("so"), stop_reason="pause_turn", usage=CENTS_1)],
        ONE_CENT_EACH,
        Finish("budget"),
    ),
    ("only thoughts are an empty answer", [response(thinking("hm"))], {}, Nudge()),
    (
        "words of an earlier response are no answer",
        [response(text("I look."), A), A, response(thinking("hm"))],
        {},
        Nudge(),
    ),
    ("the nudge goes to the model", [response()], {}, AskModel()),
    ("one nudge a run", [response(), response(thinking("hm"))], {}, Finish("completed")),
    (
        "no nudge past the budget",
        [response(thinking("hm"), usage=CENTS_1)],
        ONE_CENT_EACH,
        Finish("budget"),
    ),
    (
        "a refusal ends the run",
        [response(thinking("no"), stop_reason="refusal")],
        {},
        Finish("completed"),
    ),
    (
        "the output limit ends the run",
        [response(thinking("hm"), stop_reason="max_tokens")],
        {},
        Finish("completed"),
    ),
    (
        "a text cut at the output limit ends the run",
        [response(text("so fa"), stop_reason="max_tokens")],
        {},
        Finish("completed"),
    ),
]


@pytest.mark.requirement("loop:max-turns")
@pytest.mark.requirement("loop:budget")
@pytest.mark.parametrize(
    ("parts", "options", "step"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
async def test_the_next_step_follows_from_the_journal(
    parts: Sequence[Part], options: dict[str, Any], step: Step
) -> None:
    assert next_step(await state_after(parts, **options)) == step


def test_a_run_without_an_init_starts() -> None:
    assert next_step(LoopState(run_info())) == Start()


async def test_a_nudge_is_given_once() -> None:
    world = effects()
    state = await state_after([response(thinking("hm"))])
    async for advance in nudge(state, world):
        state = advance.state
    assert next_step(state) == AskModel()
    assert (state.responses, state.was_nudged) == (1, True)


async def test_counters_restart_with_a_run_so_that_limits_are_its_own() -> None:
    journal = await play(effects([response(A)]), run_info(max_turns=1))
    assert journal.result().subtype == "error_max_turns"
    state = journal.state(run_info("run_2", max_turns=1))
    async for advance in begin(state, effects()):
        state = advance.state
    assert next_step(state) == AskModel()


async def test_text_beside_thoughts_is_an_answer() -> None:
    state = await state_after([response(TextBlock(text="hi"), thinking("hm"))])
    assert next_step(state) == Finish("completed")
