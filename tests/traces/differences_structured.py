"""Differences of structured output."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from tests.traces.normal import COST_DIGITS, Form, Json, Like
from tests.traces.order import READ_ONLY, numbers_of_groups, reorder_results
from tests.traces.scenario import Scenario
from tests.traces.spending import total
from tests.traces.turns import USAGE, index_of, responses_of, turns_of

TOOL = "StructuredOutput"
ATTEMPTS = 5
EXHAUSTED = "error_max_structured_output_retries"


# -- B10 --------------------------------------------------------------------------------------


def output_waits_for_bash(form: Form, _: Scenario) -> None:
    """Put the output's result behind those of the Bash calls before it."""

    def groups(calls: Sequence[Json]) -> list[Any]:
        if not any(call["name"] == TOOL for call in calls):
            return [call["id"] for call in calls]
        return numbers_of_groups(calls, READ_ONLY | {"Bash"})

    form.messages[:] = reorder_results(form.messages, groups)


# -- B23 --------------------------------------------------------------------------------------


def usage_counts_every_attempt(form: Form, scenario: Scenario) -> None:
    for turn, told in zip(turns_of(form.messages), scenario.turns, strict=False):
        used = [{**USAGE, **step.usage} for step in told.steps]
        used = used[: len(list(responses_of(turn)))]
        if turn[-1].get("subtype") == EXHAUSTED and turn[-1]["usage"] == total(used[:-1]):
            turn[-1]["usage"] = total(used)


# -- B11 --------------------------------------------------------------------------------------


def words_are_no_output(form: Form, scenario: Scenario) -> None:
    """Ask for the output until the attempts are used up, where the reference asks once."""
    for turn, told in zip(list(turns_of(form.messages)), scenario.turns, strict=False):
        asks = scenario.starts[told.start].options.get("output_format") is not None
        result = turn[-1]
        if not asks:
            continue
        texts = [step.blocks[0].get("text", "") for step in told.steps[:ATTEMPTS]]
        if not _is_success_in_words(result, texts):
            continue
        _, _, nudge, answer, _ = turn  # init, then two answers in words
        at = index_of(form.messages, result)
        form.messages[at:at] = [
            message
            for number, text in enumerate(texts[2:], 1)
            for message in (deepcopy(nudge), _answer(answer, text, number))
        ]
        _ask_again(form, nudge, texts[1:-1])
        _exhaust(result)


def _is_success_in_words(result: Json, texts: Sequence[str]) -> bool:
    told = {
        "subtype": "success",
        "is_error": False,
        "num_turns": 2,
        "terminal_reason": "completed",
        "result": texts[-1] if len(texts) < 2 else texts[1],
        "api_error_status": None,
    }
    keys = {"api_error_status", "result", "ttft_ms"}
    return all(result.get(k, "") == v for k, v in told.items()) and keys <= set(result["keys"])


def _answer(like: Json, text: str, number: int) -> Json:
    message = deepcopy(like)
    message["message"]["content"] = [{"type": "text", "text": text}]
    newest = int(message["message"]["id"].removeprefix("msg-"))
    message["message"]["id"] = f"msg-{newest + number}"
    return message


def _ask_again(form: Form, nudge: Json, texts: Sequence[str]) -> None:
    newest = form.requests[-1]
    for text in texts:
        newest = deepcopy(newest)
        newest["messages"] += [
            {"role": "assistant", "content": [{"type": "text", "text": text}]},
            {"role": "user", "content": deepcopy(nudge["message"]["content"])},
        ]
        form.requests.append(newest)


def _exhaust(result: Json) -> None:
    times = ATTEMPTS / 2  # of the two attempts that the reference made
    (spend,) = result["modelUsage"].values()
    for name in ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"):
        spend[name] = int(spend[name] * times)
    spend["costUSD"] = round(spend["costUSD"] * times, COST_DIGITS)
    result["usage"] = {name: int(count * times) for name, count in result["usage"].items()}
    result["total_cost_usd"] = round(result["total_cost_usd"] * times, COST_DIGITS)
    keys = set(result["keys"]) - {"api_error_status", "result", "ttft_ms"} | {"errors"}
    result["keys"] = sorted(keys)
    del result["result"], result["api_error_status"]
    result |= {
        "subtype": EXHAUSTED,
        "is_error": True,
        "num_turns": ATTEMPTS,
        "terminal_reason": "structured_output_retry_exhausted",
        "errors": [Like(rf".*\b{ATTEMPTS} attempts\b.*", f"None came in {ATTEMPTS} attempts.")],
    }


# -- 2: our own words -------------------------------------------------------------------------

_ACCEPTED = "Structured output provided successfully"
_FITS = Like(r".*\bfits\b.*", "It fits.")
_OWN_WORDS: Mapping[str, Like] = {
    _ACCEPTED: _FITS,
    "Output does not match required schema: root: must have required property 'n'": Like(
        r".*: root: .*'n'.*", "It does not fit: root: 'n' is missing"
    ),
    "Output does not match required schema: /n: must be integer": Like(
        r".*: /n: .*\binteger\b.*", "It does not fit: /n: no integer"
    ),
    "Error: Output does not match required schema: /n: must be integer": Like(
        r"Error: .*: /n: .*\binteger\b.*", "Error: It does not fit: /n: no integer"
    ),
}


def own_words(form: Form, scenario: Scenario) -> None:
    if not any("output_format" in start.options for start in scenario.starts):
        return

    def put(value: Any) -> Any:  # any JSON value
        if isinstance(value, dict):
            return {key: put(item) for key, item in value.items()}
        if isinstance(value, list):
            return [put(item) for item in value]
        return _OWN_WORDS.get(value, value) if isinstance(value, str) else value

    form.messages[:] = put(form.messages)
    form.requests[:] = put(form.requests)
