"""Differences of failures: broken responses, refused requests, fallbacks."""

import json
import re
from itertools import islice, pairwise

from app.providers.answer import answer_frames
from app.providers.script import Step
from tests.traces.differences_hooks import feedback
from tests.traces.made import (
    answer,
    assistant,
    being_asked,
    blocks_of,
    events_of,
    note,
    put_messages,
    put_requests,
    retry,
    said,
    spend_instead,
    synthetic,
    turn_into,
    words,
)
from tests.traces.normal import Form, Json, Like
from tests.traces.order import answered
from tests.traces.scenario import Scenario
from tests.traces.spending import total
from tests.traces.turns import (
    USAGE,
    is_synthetic,
    responses_of,
    result_message,
    turns_of,
)

LOST_TEXT = "API Error: Connection lost mid-response. The response above may be incomplete."
API_ERROR = "<long:api_error_text>"
MAX_RETRIES = 2
"""Of the recordings in which a stream is cut."""
_CHARS_A_TOKEN = 4

# -- B26: a broken response is discarded whole ------------------------------------------------


def broken_responses_are_discarded(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(list(turns_of(form.messages)), scenario.turns, strict=True):
        step = told.steps[0]
        if step.cut is None:
            continue
        if step.times is None:
            _always_broken(form, turn, step)
        elif any("event" in message for message in turn):
            _broken_behind_previews(form, turn, step, told.steps[1])
        elif any("tool" in block for block in step.blocks):
            _broken_behind_a_call(form, turn, step, told.steps[1])


def _always_broken(form: Form, turn: list[Json], step: Step) -> None:
    """Take out the last request, which the reference makes without streaming."""
    session_id = turn[0]["session_id"]
    retries = [retry(session_id, attempt + 1, MAX_RETRIES) for attempt in range(MAX_RETRIES)]
    (block,) = blocks_of(step)
    whole = assistant(session_id, 1, block)
    whole["message"] |= {"stop_reason": "end_turn", "usage": dict(USAGE)}
    failed = synthetic(session_id, 1, API_ERROR, "server_error", "stop_sequence")
    failed["keys"] = sorted([*failed["keys"], "request_id"])  # an answer had begun to come
    put_messages(form, turn, [*retries, whole], [*retries, failed])
    if form.requests.pop() != {**form.requests[0], "stream": False}:
        raise ValueError("the last request is another one")
    lost = [{**USAGE, "output_tokens": 1}] * (MAX_RETRIES + 1)
    spend_instead(form, turn[-1], [USAGE], [])
    turn_into(
        turn[-1],
        {
            "is_error": False,
            "stop_reason": "end_turn",
            "terminal_reason": "completed",
            "result": block["text"],
            "usage": total([*lost, USAGE]),
        },
        {
            "is_error": True,
            "stop_reason": "stop_sequence",
            "terminal_reason": "api_error",
            "result": API_ERROR,
            "usage": total(lost),
        },
        without="ttft_ms",
        has="api_error",
    )
    turn[-1]["api_error"] = "connection_failed"


def _broken_behind_a_call(form: Form, turn: list[Json], step: Step, last: Step) -> None:
    """Put a second try in place of the call that the reference takes from a broken response."""
    session_id = turn[0]["session_id"]
    (result,) = [message for message in turn if answered(message)]
    call, *rest = blocks_of(step)
    lost = synthetic(session_id, 2, LOST_TEXT, "server_error", "tool_use")
    kept = assistant(session_id, 1, call)
    put_messages(
        form,
        turn,
        [kept, lost, result, *answer(session_id, 3, last)],
        [
            retry(session_id, 1, MAX_RETRIES),
            *answer(session_id, 1, step),
            result,
            *answer(session_id, 2, last),
        ],
    )
    asked = form.requests[0]["messages"]
    told = said("user", *result["message"]["content"])
    put_requests(
        form,
        [asked, [*asked, said("assistant", call), told]],
        [asked, asked, [*asked, said("assistant", call, *rest), told]],
    )
    _spend_on_both_tries(form, turn[-1], step, theirs=11)


def _broken_behind_previews(form: Form, turn: list[Json], step: Step, last: Step) -> None:
    session_id = turn[0]["session_id"]
    text, call = blocks_of(step)
    shown, end = _events_until_cut(session_id, step), events_of(session_id, 1, step)[-1]
    requesting = being_asked(session_id)
    put_messages(
        form,
        turn,
        [
            requesting,
            *shown,
            end,
            assistant(session_id, 1, text),
            note(session_id, "<long:20+ words>"),
            requesting,
            *events_of(session_id, 2, last),
            *answer(session_id, 2, last),
        ],
        [
            requesting,
            *shown,
            _void(session_id),
            retry(session_id, 1, MAX_RETRIES),
            requesting,
            *events_of(session_id, 2, step, tool=2),
            *answer(session_id, 2, step, tool=2),
            _bash_without_output(session_id),
            requesting,
            *events_of(session_id, 3, last),
            *answer(session_id, 3, last),
        ],
    )
    asked = form.requests[0]["messages"]
    (block,) = _bash_without_output(session_id)["message"]["content"]
    ran = said("assistant", text, {**call, "id": "tool-2"})
    put_requests(
        form,
        [asked, [*asked, said("assistant", text), said("user")]],
        [asked, asked, [*asked, ran, said("user", block)]],
    )
    _spend_on_both_tries(form, turn[-1], step, theirs=14)


def _events_until_cut(session_id: str, step: Step) -> list[Json]:
    cut = Step(blocks=step.blocks, chunk=step.chunk)
    events = events_of(session_id, 1, cut)
    kept, chars = [], _chars_until_cut(step)
    for event in events:
        delta = event["event"].get("delta", {})
        for name in delta.keys() & {"text", "partial_json"}:
            delta[name] = delta[name][:chars]
            chars -= len(delta[name])
        kept.append(event)
        if delta.get("partial_json"):
            break
    return kept


def _void(session_id: str) -> Json:
    return {
        "type": "service_preview_aborted",
        "session_id": session_id,
        "keys": ["message_id", "reason", "session_id", "type"],
        "message_id": "msg-1",
        "reason": "broken",
    }


def _bash_without_output(session_id: str) -> Json:
    block = {
        "type": "tool_result",
        "tool_use_id": "tool-2",
        "is_error": False,
        "content": "(Bash completed with no output)",
    }
    fields = ["interrupted", "isImage", "noOutputExpected", "stderr", "stdout"]
    told = result_message(session_id, block, {"keys": fields})
    verdict = {"decision": "accept", "source": "config", "reason_type": "rule"}
    told["tool_result_meta"] = [{"id": "tool-2", "permission_decision": verdict}]
    return {**told, "keys": sorted([*told["keys"], "tool_result_meta"])}


def _spend_on_both_tries(form: Form, result: Json, step: Step, *, theirs: int) -> None:
    """Count the lost try, which they estimate at so many tokens, and the one that was whole."""
    lost = {**USAGE, "output_tokens": _estimate(step)}
    now = [lost, USAGE, USAGE]
    spend_instead(form, result, [{**USAGE, "output_tokens": theirs}, USAGE], now)
    was = total([{**USAGE, "output_tokens": 1}, USAGE])
    turn_into(result, {"usage": was}, {"usage": total(now)})


def _estimate(step: Step) -> int:
    return -(-_chars_until_cut(step) // _CHARS_A_TOKEN)


def _chars_until_cut(step: Step) -> int:
    frames = islice(answer_frames(step, message_id="msg_x", model="m"), step.cut)
    deltas = [json.loads(frame.split(b"data: ")[1]).get("delta", {}) for frame in frames]
    return sum(len(text) for delta in deltas for kind, text in delta.items() if kind != "type")


# -- B26: no hidden requests ------------------------------------------------------------------

_SENT_AGAIN = 6
"""How often the reference sends a request that was refused as wrong, some with changes."""


def refused_requests_are_sent_once(form: Form, scenario: Scenario) -> None:
    if not scenario.turns:
        return
    step = scenario.turns[0].steps[0]
    if step.http != 400 or step.message.startswith("prompt is too long"):
        return
    first = form.requests[0]
    other = {**first, "thinking": {"type": "adaptive"}}
    if form.requests[:_SENT_AGAIN] != [first, first, other] * 2:
        raise ValueError("the reference sends it again in another way")
    del form.requests[1:_SENT_AGAIN]


# -- B23: what a lost try has cost is the run's -----------------------------------------------


def lost_tries_count(form: Form, scenario: Scenario) -> None:
    """Count a lost try's output in the run's usage as the reference does in the session's."""
    for turn, told in zip(turns_of(form.messages), scenario.turns, strict=True):
        step = told.steps[0]
        if step.cut is not None and (step.times is None or len(step.blocks) == 1):
            lost = step.times or MAX_RETRIES + 1
            turn[-1]["usage"]["output_tokens"] += lost * (_estimate(step) - 1)


# -- B5: an API failure is an error -----------------------------------------------------------


def failures_are_errors(form: Form, _: Scenario) -> None:
    for turn in turns_of(form.messages):
        result = turn[-1]
        if (result["subtype"], result["is_error"]) != ("success", True):
            continue
        finished = [response[0]["message"]["stop_reason"] for response in responses_of(turn)]
        text = turn[-2]["message"]["content"][0]["text"]
        if not is_synthetic(turn[-2]) or result["stop_reason"] != "stop_sequence":
            raise ValueError("a failure that is told in another way")
        turn_into(
            result,
            {"subtype": "success", "result": text},
            {"subtype": "error_during_execution", "errors": [text]},
        )
        result["stop_reason"] = finished[-1] if finished else None


# -- 2: our own words -------------------------------------------------------------------------


def failures_have_our_words(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(turns_of(form.messages), scenario.turns, strict=True):
        if turn[-1]["subtype"] == "error_during_execution" and is_synthetic(turn[-2]):
            (block,) = turn[-2]["message"]["content"]
            if turn[-1]["errors"] != [block["text"]]:
                raise ValueError("a failure that is told in two ways")
            said_so = _our_words(told.steps[len(list(responses_of(turn)))])
            turn[-1]["errors"] = [said_so]
            block["text"] = said_so


def _our_words(step: Step) -> Like:
    if step.http is None:
        return Like(r"API error: .*(reached|early|broke).*", "API error: it cannot be reached")
    said_so = f"API error {step.http}: {step.message}"
    return Like(re.escape(said_so), said_so)


def notes_are_sent_as_they_are_told(form: Form, scenario: Scenario) -> None:
    """Put the note after an empty answer into its request, where recordings do not show it."""
    if any("output_format" in start.options for start in scenario.starts):
        return  # those notes have entries of their own
    notes = [
        told
        for before, told in pairwise(form.messages)
        if told.get("isSynthetic")
        and before.get("subtype") != "compact_boundary"  # a summary
        and not feedback(told)  # has an entry of its own
    ]
    for place, told in enumerate(notes, 1):
        (block,) = told["message"]["content"]
        form.requests[place]["messages"][-1]["content"].append(words(block["text"]))


def results_hold_no_reminders(form: Form, _: Scenario) -> None:
    """Take out what the reference adds to results for models without messages of the system."""
    told = {
        answered(message): message["message"]["content"][0]
        for message in form.messages
        if answered(message)
    }
    for request in form.requests:
        for message in request["messages"]:
            for block in message["content"]:
                if request["model"] == _WITHOUT and block.get("content") == "<long:20+ words>":
                    block["content"] = told[block["tool_use_id"]]["content"]


_WITHOUT = "claude-haiku-4-5"
