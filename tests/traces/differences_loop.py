"""Differences of the loop: responses, results, turns, budgets, words."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from app.providers.script import Step
from tests.traces.normal import Form, Json, Like
from tests.traces.order import READ_ONLY, answered, numbers_of_groups, reorder_results, uses
from tests.traces.scenario import Scenario
from tests.traces.spending import total
from tests.traces.turns import (
    USAGE,
    index_of,
    is_aborted,
    responses_of,
    result_message,
    turns_of,
)

# -- B1: blocks carry the final state of their response ---------------------------------------


def final_snapshots(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(turns_of(form.messages), scenario.turns, strict=True):
        for response, step in zip(responses_of(turn), told.steps, strict=False):
            final = {**USAGE, **step.usage}
            calls_tools = any("tool" in block for block in step.blocks)
            reason = step.stop_reason or ("tool_use" if calls_tools else "end_turn")
            for message in response:
                body = message["message"]
                snapshot = {**final, "output_tokens": 1}
                if body.get("stop_reason", "") is None and body["usage"] == snapshot:
                    body |= {"stop_reason": reason, "usage": dict(final)}


def previews_come_first(form: Form, _: Scenario) -> None:
    """Put the blocks of a response, and estimates of them, behind all events of it."""
    shown: list[Json] = []
    waiting: list[Json] = []
    is_open = False
    for before, message in pairwise([{}, *form.messages]):
        kind = message.get("event", {}).get("type")
        is_open = (is_open or kind == "message_start") and kind != "message_stop"
        if is_open and message.get("subtype") == "thinking_tokens":
            if before["event"].get("content_block", {}).get("type") != "thinking":
                raise ValueError("an estimate at another moment")
            waiting.append(message)
            continue
        if is_open and message["type"] == "assistant" and not is_aborted(message):
            _check_moment(message, before, "content_block_delta")
            waiting.append(message)
            continue
        if is_open and before.get("type") == "assistant" and not is_aborted(before):
            _check_moment(before, message, "content_block_stop")
        shown.append(message)
        if kind == "message_stop":
            shown += waiting
            waiting = []
    form.messages[:] = shown


def _check_moment(block: Json, event: Json, kind: str) -> None:
    # The reference shows a block between its last delta and its end.
    is_of_block = event["api_message_id"] == block["message"]["id"]
    if event["event"]["type"] != kind or not is_of_block:
        raise ValueError("a block at another moment")


# -- B2, B10: the order of results ------------------------------------------------------------


def requests_in_call_order(form: Form, _: Scenario) -> None:
    completed = [answered(message) for message in form.messages if answered(message)]
    for request in form.requests:
        messages = request["messages"]
        for asked, told in pairwise(messages):
            calls = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
            results = [block for block in told["content"] if block["type"] == "tool_result"]
            ids = [block["tool_use_id"] for block in results]
            if ids and ids == [each for each in completed if each in ids]:
                results.sort(key=lambda block: calls.index(block["tool_use_id"]))
                told["content"][: len(results)] = results


def bash_in_call_order(form: Form, _: Scenario) -> None:
    rejected = {
        answered(message) for message in form.messages if message.get("tool_use_result") == REJECTED
    }

    def groups(calls: Sequence[Json]) -> list[Any]:
        overlapping = numbers_of_groups(calls, READ_ONLY | {"Bash"})
        keyed = zip(overlapping, calls, strict=True)
        return [
            n if call["name"] == "Bash" and call["id"] not in rejected else call["id"]
            for n, call in keyed
        ]

    form.messages[:] = reorder_results(form.messages, groups)


REJECTED = "User rejected tool use"


# -- B4: turns are responses ------------------------------------------------------------------


def turns_are_responses(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(turns_of(form.messages), scenario.turns, strict=True):
        result = turn[-1]
        limit = scenario.starts[told.start].options["max_turns"]
        users = sum(
            m["type"] == "user" and "isReplay" not in m and m["parent_tool_use_id"] is None
            for m in turn
        )
        theirs = limit + 1 if result.get("subtype") == "error_max_turns" else users + 1
        if result.get("num_turns") == theirs:
            result["num_turns"] = len(list(responses_of(turn))) or _empty(turn, told.steps)


def _empty(turn: Sequence[Json], steps: Sequence[Step]) -> int:
    """Give how many responses without content there were, which no message shows."""
    if steps[0].blocks or steps[0].faults:
        return 0
    return 1 + sum(bool(message.get("isSynthetic")) for message in turn)


# -- B8: a spent budget refuses the calls -----------------------------------------------------


def budget_refuses_calls(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(list(turns_of(form.messages)), scenario.turns, strict=True):
        if turn[-1].get("subtype") == "error_max_budget_usd":
            known = {answered(message) for message in turn}
            calls = [call["id"] for m in turn for call in uses(m) if call["id"] not in known]
            budget = scenario.starts[told.start].options["max_budget_usd"]
            at = index_of(form.messages, turn[-1])
            form.messages[at:at] = [_refusal(call, turn[0], budget) for call in calls]
            _refuse_in_requests(form, calls, budget)


def _refusal(call_id: str, init: Json, budget: float) -> Json:
    block = {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": _spent(budget),
        "is_error": True,
    }
    return result_message(init["session_id"], block, _spent(budget, "Error: "))


def _refuse_in_requests(form: Form, calls: Sequence[str], budget: float) -> None:
    # The reference answers them when the session is resumed, and says something else.
    for request in form.requests:
        for message in request["messages"]:
            for block in message["content"]:
                if block.get("tool_use_id") in calls and block["content"] == "<long:30+ words>":
                    block["content"] = _spent(budget)


def _spent(budget: float, prefix: str = "") -> Like:
    names_it = rf".*\${budget}\b.*"
    return Like(f"{prefix}{names_it}", f"{prefix}The budget of ${budget} is spent.")


def budget_counts_every_response(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(turns_of(form.messages), scenario.turns, strict=True):
        used = [{**USAGE, **step.usage} for step in told.steps]
        used = used[: len(list(responses_of(turn)))]
        is_over = turn[-1].get("subtype") == "error_max_budget_usd"
        if is_over and turn[-1]["usage"] == total(used[:-1]):
            turn[-1]["usage"] = total(used)


# -- B9 ---------------------------------------------------------------------------------------


def nothing_unasked(form: Form, _: Scenario) -> None:
    for request in form.requests:
        for name, value in _UNASKED[request["model"]].items():
            if request.pop(name, None) != value:
                raise ValueError(f"the reference sends another {name}")


_UNASKED: Mapping[str, Mapping[str, Any]] = {
    "claude-sonnet-5": {
        "thinking": {"type": "adaptive", "display": "updates"},
        "output_config": {"effort": "high"},
    },
    "claude-haiku-4-5": {
        "thinking": {"type": "enabled", "budget_tokens": 31999, "display": "updates"},
    },
}
"""What the reference sends of its own accord, by model."""


# -- 2: our own words -------------------------------------------------------------------------

_OWN_WORDS: Mapping[tuple[str, str], Like] = {
    (
        "read_missing",
        "File does not exist. Note: your current working directory is <cwd>.",
    ): Like(r".*not exist.*<cwd>.*", "That file does not exist; you are in <cwd>."),
    (
        "read_missing",
        "Error: File does not exist. Note: your current working directory is <cwd>.",
    ): Like(r"Error: .*not exist.*<cwd>.*", "Error: That file does not exist; you are in <cwd>."),
    ("par_raise", "<long:60+ words>"): Like(r".*\bkaboom\b.*", "kaboom"),
    ("bad_input_missing", "<long:20+ words>"): Like(
        r"(InputValidation)?Error: .*\bcommand\b.*", "Error: command is missing"
    ),
    ("garbage_json", "InputValidationError: JSON parse failed (22 bytes)"): Like(
        r"(InputValidation)?Error: .*JSON.*", "InputValidationError: this is no JSON"
    ),
}
"""By scenario and the reference's words: what ours must say."""

_OWN_WORDS_ANYWHERE: Mapping[str, Like] = {
    REJECTED: Like(r"Error: .*\bstopped\b.*", "Error: You stopped it."),
    **{
        f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={reason}": Like(
            r".*\bcancelled\b.*", "This was cancelled."
        )
        for reason in ("tool_use", "null")
    },
}
"""By the reference's words alone."""


def own_words(form: Form, scenario: Scenario) -> None:
    def put(value: Any) -> Any:  # any JSON value
        if isinstance(value, dict):
            return {key: put(item) for key, item in value.items()}
        if isinstance(value, list):
            return [put(item) for item in value]
        if not isinstance(value, str):
            return value
        words = _OWN_WORDS_ANYWHERE.get(value, value)
        return _OWN_WORDS.get((scenario.name, value), words)

    form.messages[:] = put(form.messages)
    form.requests[:] = put(form.requests)
