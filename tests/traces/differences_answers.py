"""Differences of answers that end a run in another way: limits, refusals, pauses, budgets."""

from collections.abc import Sequence
from itertools import accumulate

from app.providers.script import END_OF_SCRIPT, Step
from tests.traces.made import (
    answer,
    blocks_of,
    note,
    put_messages,
    put_requests,
    said,
    spend_instead,
    synthetic,
    turn_into,
    words,
)
from tests.traces.normal import Form, Json
from tests.traces.scenario import Scenario
from tests.traces.spending import total
from tests.traces.turns import USAGE, responses_of, turns_of

API_ERROR = "<long:api_error_text>"
LIMIT_NOTES = 3
"""How often the reference asks a model to go on that met its output limit."""

# -- B7: the output limit ends the run --------------------------------------------------------


def output_limits_end_runs(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(list(turns_of(form.messages)), scenario.turns, strict=True):
        if told.steps[0].stop_reason == "max_tokens" and not _calls(told.steps[0]):
            _end_at_limit(form, turn, told.steps)


def _calls(step: Step) -> bool:
    return any("tool" in block for block in step.blocks)


def _end_at_limit(form: Form, turn: list[Json], steps: Sequence[Step]) -> None:
    session_id, result = turn[0]["session_id"], turn[-1]
    played = _until_whole(steps)
    is_given_up = played[-1].stop_reason == "max_tokens"
    theirs: list[Json] = []
    for number, step in enumerate(played, 1):
        theirs += answer(session_id, number, step)
        if number < len(played):
            theirs.append(note(session_id, "<long:30+ words>"))
    if is_given_up:
        number = len(played) + 1
        theirs.append(
            synthetic(session_id, number, API_ERROR, "max_output_tokens", "stop_sequence")
        )
    put_messages(form, turn, theirs, answer(session_id, 1, steps[0]))
    _only_the_first_request(form, [said("assistant", *blocks_of(step)) for step in played[:-1]])
    texts = [blocks_of(step)[-1]["text"] for step in (steps[0], played[-1])]
    was = {
        "is_error": is_given_up,
        "num_turns": len(played),
        "stop_reason": "stop_sequence" if is_given_up else "end_turn",
        "terminal_reason": "api_error" if is_given_up else "completed",
        "result": API_ERROR if is_given_up else texts[1],
        "usage": total([USAGE] * len(played)),
    }
    now = {
        "is_error": False,
        "num_turns": 1,
        "stop_reason": "max_tokens",
        "terminal_reason": "completed",
        "result": texts[0],
        "usage": dict(USAGE),
    }
    gone, new = ("api_error", "ttft_ms") if is_given_up else ("", "")
    turn_into(result, was, now, without=gone, has=new)
    spend_instead(form, result, [USAGE] * len(played), [USAGE])


def _until_whole(steps: Sequence[Step]) -> list[Step]:
    played: list[Step] = []
    for step in steps[: LIMIT_NOTES + 1]:
        played.append(step)
        if step.stop_reason != "max_tokens":
            break
    return played


def _only_the_first_request(form: Form, answers: Sequence[Json]) -> None:
    asked = form.requests[0]["messages"]
    theirs = accumulate(answers, lambda sent, told: [*sent, told, said("user")], initial=asked)
    put_requests(form, list(theirs), [asked])


# -- B6: a refusal ends the run ---------------------------------------------------------------


def refusals_end_runs(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(list(turns_of(form.messages)), scenario.turns, strict=True):
        if told.steps[0].stop_reason == "refusal":
            following = told.steps[1] if len(told.steps) > 1 else END_OF_SCRIPT
            _end_at_refusal(form, turn, told.steps[0], following)


def _end_at_refusal(form: Form, turn: list[Json], step: Step, following: Step) -> None:
    session_id, result = turn[0]["session_id"], turn[-1]
    told = answer(session_id, 1, step)
    retried = [_notice(session_id), note(session_id, "<long:40+ words>")]
    if told:
        retried += answer(session_id, 2, following)
        text = following.blocks[-1]["text"]
        was = {"is_error": False, "stop_reason": "end_turn", "terminal_reason": "completed"}
    else:
        failed = synthetic(session_id, 1, API_ERROR, "invalid_request", "refusal")
        failed["keys"] = sorted({*failed["keys"]} - {"api_error"})
        del failed["api_error"]
        retried += [_given_up(session_id), failed]
        text = API_ERROR
        was = {"is_error": True, "stop_reason": "refusal", "terminal_reason": "api_error"}
    put_messages(form, turn, [*told, *retried], told)
    asked = form.requests[0]["messages"]
    again = [*asked, said("assistant", *blocks_of(step)), said("user")] if told else asked
    put_requests(form, [asked, again], [asked])
    turn_into(
        result,
        {
            **was,
            "num_turns": 2,
            "result": text,
            "safety_stops": 1 if told else 2,
            "usage": total([USAGE] * 2),
        },
        {
            "is_error": False,
            "stop_reason": "refusal",
            "terminal_reason": "completed",
            "num_turns": 1,
            "result": blocks_of(step)[-1]["text"] if told else "",
            "safety_stops": 1,
            "usage": dict(USAGE),
        },
    )
    spend_instead(form, result, [USAGE] * 2, [USAGE])


_SYSTEM = {"session_id", "subtype", "type", "uuid"}


def _notice(session_id: str) -> Json:
    return {
        "type": "system",
        "session_id": session_id,
        "keys": sorted(_SYSTEM | {"content", "level"}),
        "subtype": "informational",
        "content": "<long:10+ words>",
        "level": "notice",
    }


def _given_up(session_id: str) -> Json:
    told: Json = {
        "original_model": "claude-sonnet-5",
        "api_refusal_category": None,
        "api_refusal_explanation": None,
        "refused_user_message_uuid": "<uuid>",
        "content": "",
    }
    return {
        "type": "system",
        "session_id": session_id,
        "keys": sorted(_SYSTEM | {"request_id", *told}),
        "subtype": "model_refusal_no_fallback",
        **told,
    }


# -- B7: a paused response is gone on with ----------------------------------------------------


def paused_responses_go_on(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(list(turns_of(form.messages)), scenario.turns, strict=True):
        if told.steps[0].stop_reason != "pause_turn":
            continue
        first, second = told.steps
        session_id = turn[0]["session_id"]
        theirs = answer(session_id, 1, first)
        put_messages(form, turn, theirs, [*theirs, *answer(session_id, 2, second)])
        asked = form.requests[0]["messages"]
        put_requests(form, [asked], [asked, [*asked, said("assistant", *blocks_of(first))]])
        texts = [blocks_of(step)[-1]["text"] for step in (first, second)]
        turn_into(
            turn[-1],
            {"num_turns": 1, "stop_reason": "pause_turn", "result": texts[0], "usage": USAGE},
            {
                "num_turns": 2,
                "stop_reason": "end_turn",
                "result": texts[1],
                "usage": total([USAGE] * 2),
            },
        )
        spend_instead(form, turn[-1], [USAGE], [USAGE] * 2)


# -- B8, B29: budgets -------------------------------------------------------------------------


def answers_are_successes(form: Form, scenario: Scenario) -> None:
    """Let a run succeed whose last answer asks for nothing, whatever it cost."""
    for turn, told in zip(turns_of(form.messages), scenario.turns, strict=True):
        responses = list(responses_of(turn))
        if turn[-1]["subtype"] != "error_max_budget_usd" or _calls(told.steps[len(responses) - 1]):
            continue
        budget = scenario.starts[told.start].options["max_budget_usd"]
        turn_into(
            turn[-1],
            {
                "subtype": "error_max_budget_usd",
                "is_error": True,
                "terminal_reason": "budget_exhausted",
                "errors": [f"Reached maximum budget (${budget})"],
            },
            {
                "subtype": "success",
                "is_error": False,
                "terminal_reason": "completed",
                "result": responses[-1][-1]["message"]["content"][0]["text"],
                "api_error_status": None,
            },
            has="ttft_ms",
        )


def budgets_begin_anew(form: Form, scenario: Scenario) -> None:
    """Let the run after one that spent its budget ask the model: the budget is each run's own."""
    turns = list(turns_of(form.messages))
    for place, (turn, told) in enumerate(zip(turns, scenario.turns, strict=True)):
        if turn[-1]["subtype"] != "error_max_budget_usd" or len(turn) > 2:
            continue
        number = sum(len(list(responses_of(before))) for before in turns[:place]) + 1
        put_messages(form, turn, [], answer(turn[0]["session_id"], number, told.steps[0]))
        turn_into(turn[-1], {"stop_reason": None}, {"stop_reason": "end_turn"})
        spend_instead(form, turn[-1], [], [USAGE])
        _ask_again(form, scenario.turns[place - 1].steps[0], form.prompts[told.taken[0][0]])


def _ask_again(form: Form, spent: Step, prompt: str) -> None:
    asked = form.requests[0]["messages"]
    (call,) = blocks_of(spent)
    refused = {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": "<long:30+ words>",
        "is_error": True,
    }
    again = [*asked, said("assistant", call), said("user", refused, words(prompt))]
    put_requests(form, [asked], [asked, again])
