"""The one table of differences between the golden traces and our service.

Each entry rewrites a trace's normal form into what we give instead, and cites the decision that
says so (`README.md` beside the traces lists them). An entry applies only where the trace holds
what its decision says of the reference: anything else stays, and then disagrees with us.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.traces.fields import KEYS
from tests.traces.normal import Form, Json, Like, form_of_trace
from tests.traces.order import READ_ONLY, answered, numbers_of_groups, reorder_results, uses
from tests.traces.scenario import Line, Scenario


@dataclass(frozen=True, slots=True)
class Difference:
    cites: str
    """`B` and a number; `2` is the decision on contract strings and our own words."""
    says: str
    rewrite: Callable[[Form, Scenario], None]


def expected_form(lines: Sequence[Line], scenario: Scenario) -> Form:
    """Give the normal form that our service has for a trace."""
    form = form_of_trace(lines)
    for difference in DIFFERENCES:
        difference.rewrite(form, scenario)
    return form


# -- B1: blocks carry the final state of their response ---------------------------------------


def _final_snapshots(form: Form, scenario: Scenario) -> None:
    for turn, prompt in zip(_turns(form), scenario.prompts, strict=True):
        for response, step in zip(_responses(turn), prompt.steps, strict=False):
            final = {**_USAGE, **step.usage}
            calls_tools = any("tool" in block for block in step.blocks)
            reason = step.stop_reason or ("tool_use" if calls_tools else "end_turn")
            for message in response:
                body = message["message"]
                snapshot = {**final, "output_tokens": 1}
                if body.get("stop_reason", "") is None and body["usage"] == snapshot:
                    body |= {"stop_reason": reason, "usage": dict(final)}


_USAGE: Mapping[str, int] = {
    "input_tokens": 100,
    "output_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}


def _no_thinking_tokens(form: Form, _: Scenario) -> None:
    # The reference estimates each thinking block for live readers, just before it.
    kept: list[Json] = []
    for message in form.messages:
        if _is_thinking(message):
            estimate = kept.pop()
            if not _estimates(estimate, message):
                raise ValueError("a thinking block without its estimate")
        kept.append(message)
    form.messages[:] = kept


def _estimates(estimate: Json, message: Json) -> bool:
    tokens = estimate.get("estimated_tokens")
    return (
        estimate.get("subtype") == "thinking_tokens"
        and estimate["session_id"] == message["session_id"]
        and estimate["keys"] == ["session_id", "subtype", "type", "uuid"]
        and tokens is not None
        and tokens == estimate.get("estimated_tokens_delta")
    )


def _is_thinking(message: Json) -> bool:
    return any(block["type"] == "thinking" for block in message.get("message", _EMPTY)["content"])


_EMPTY: Json = {"content": []}


# -- B2, B10: the order of results ------------------------------------------------------------


def _requests_in_call_order(form: Form, _: Scenario) -> None:
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


def _bash_in_call_order(form: Form, _: Scenario) -> None:
    def groups(calls: Sequence[Json]) -> list[Any]:
        overlapping = numbers_of_groups(calls, READ_ONLY | {"Bash"})
        keyed = zip(overlapping, calls, strict=True)
        return [n if call["name"] == "Bash" else call["id"] for n, call in keyed]

    form.messages[:] = reorder_results(form.messages, groups)


# -- B4: turns are responses ------------------------------------------------------------------


def _turns_are_responses(form: Form, scenario: Scenario) -> None:
    for turn, prompt in zip(_turns(form), scenario.prompts, strict=True):
        result = turn[-1]
        limit = scenario.starts[prompt.start].options["max_turns"]
        users = sum(message["type"] == "user" for message in turn)
        theirs = limit + 1 if result.get("subtype") == "error_max_turns" else users + 1
        if result.get("num_turns") == theirs:
            result["num_turns"] = len(list(_responses(turn)))


# -- B8: a spent budget refuses the calls -----------------------------------------------------


def _budget_refuses_calls(form: Form, scenario: Scenario) -> None:
    for turn, prompt in zip(_turns(form), scenario.prompts, strict=True):
        if turn[-1].get("subtype") == "error_max_budget_usd":
            told = {answered(message) for message in turn}
            open_calls = [call for m in turn for call in uses(m) if call["id"] not in told]
            budget = scenario.starts[prompt.start].options["max_budget_usd"]
            at = next(i for i, message in enumerate(form.messages) if message is turn[-1])
            refusals = [_refusal(call, turn[0], budget) for call in open_calls]
            form.messages[at:at] = refusals


def _refusal(call: Json, init: Json, budget: float) -> Json:
    names_it = rf".*\${budget}\b.*"
    block = {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": Like(names_it, f"The budget of ${budget} is spent."),
        "is_error": True,
    }
    return {
        **_user(init["session_id"], [block]),
        "keys": sorted(KEYS["user"] - {"tool_result_meta"}),
        "tool_use_result": Like(f"Error: {names_it}", f"Error: The budget of ${budget} is spent."),
    }


def _budget_counts_every_response(form: Form, scenario: Scenario) -> None:
    for turn, prompt in zip(_turns(form), scenario.prompts, strict=True):
        used = [{**_USAGE, **step.usage} for step in prompt.steps]
        used = used[: len(list(_responses(turn)))]
        is_over = turn[-1].get("subtype") == "error_max_budget_usd"
        if is_over and turn[-1]["usage"] == _sum(used[:-1]):
            turn[-1]["usage"] = _sum(used)


def _sum(usages: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    return {name: sum(usage[name] for usage in usages) for name in _USAGE}


# -- B9, B25 ----------------------------------------------------------------------------------


def _nothing_unasked(form: Form, _: Scenario) -> None:
    unasked = {
        "thinking": {"type": "adaptive", "display": "updates"},
        "output_config": {"effort": "high"},
    }
    for request in form.requests:
        for name, value in unasked.items():
            if request.pop(name, None) != value:
                raise ValueError(f"the reference sends another {name}")


def _prompts_are_replayed(form: Form, _: Scenario) -> None:
    shown = []
    prompts = iter(form.prompts)
    for message in form.messages:
        shown.append(message)
        if message.get("subtype") == "init":
            block = {"type": "text", "text": next(prompts)}
            shown.append({**_user(message["session_id"], [block]), "isReplay": True})
    form.messages[:] = shown


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


def _own_words(form: Form, scenario: Scenario) -> None:
    def put(value: Any) -> Any:  # any JSON value
        if isinstance(value, dict):
            return {key: put(item) for key, item in value.items()}
        if isinstance(value, list):
            return [put(item) for item in value]
        return _OWN_WORDS.get((scenario.name, value), value) if isinstance(value, str) else value

    form.messages[:] = put(form.messages)
    form.requests[:] = put(form.requests)


DIFFERENCES = (
    Difference("B1", "blocks carry their response's final usage and reason", _final_snapshots),
    Difference("B1", "estimates of a response under way are no messages", _no_thinking_tokens),
    Difference("B2", "requests hold results in the order of calls", _requests_in_call_order),
    Difference("B10", "Bash calls never overlap", _bash_in_call_order),
    Difference("B4", "num_turns counts responses", _turns_are_responses),
    Difference("B8", "a run's usage has the response that spent it", _budget_counts_every_response),
    Difference("B8", "calls beyond the budget get a result that names it", _budget_refuses_calls),
    Difference("B9", "neither effort nor thinking is sent unset", _nothing_unasked),
    Difference("B25", "prompts are replayed after init", _prompts_are_replayed),
    Difference("2", "error sentences are our own", _own_words),
)
"""In the order in which they apply."""


def _turns(form: Form) -> Iterator[list[Json]]:
    """Yield the messages of each run: from an `init` to the next."""
    turn: list[Json] = []
    for message in form.messages:
        if message.get("subtype") == "init" and turn:
            yield turn
            turn = []
        turn.append(message)
    yield turn


def _responses(turn: Sequence[Json]) -> Iterator[list[Json]]:
    """Yield the assistant messages of each response."""
    by_id: dict[str, list[Json]] = {}
    for message in turn:
        if message["type"] == "assistant":
            by_id.setdefault(message["message"]["id"], []).append(message)
    yield from by_id.values()


def _user(session_id: str, content: list[Json]) -> Json:
    return {
        "type": "user",
        "session_id": session_id,
        "keys": sorted(KEYS["user"] - {"tool_result_meta", "tool_use_result"}),
        "parent_tool_use_id": None,
        "message": {"keys": ["content", "role"], "content": content},
    }
