"""Differences of subagents: when they begin, what is said of them, and our own words."""

import re

from tests.traces.fields import OF_SUBAGENTS
from tests.traces.made import INPUT_TOKEN_USD, MODEL, OUTPUT_TOKEN_USD
from tests.traces.normal import Form, Json, Like
from tests.traces.scenario import Scenario
from tests.traces.side_by_side import in_background
from tests.traces.spending import add_spend
from tests.traces.turns import USAGE, index_of

_OUR_KEYS = (
    *("agentId", "agentType", "canContinueAgent", "content", "prompt", "resolvedModel", "status"),
    *("toolsUsed", "totalDurationMs", "totalTokens", "totalToolUseCount", "usage"),
)
_THEIRS = frozenset({"harnessNoteCount", "harnessSectionHash", "harnessTailCount", "toolStats"})
"""Of their product."""
_SPENT = "Budget limit reached"
_LONG = "<long:40+ words>"
_API_ERROR = "Agent terminated early due to an API error: "


def final_snapshots(form: Form, _: Scenario) -> None:
    """Give blocks of subagents their response's final usage, a tenth of its input, and reason."""
    with_calls = {
        message["message"]["id"]
        for message in _said_by_subagents(form)
        if message["message"]["content"][0]["type"] == "tool_use"
    }
    for message in _said_by_subagents(form):
        body = message["message"]
        if body["stop_reason"] is not None or body["usage"]["output_tokens"] != 1:
            raise ValueError("no snapshot")
        body["usage"]["output_tokens"] = body["usage"]["input_tokens"] // 10
        body["stop_reason"] = "tool_use" if body["id"] in with_calls else "end_turn"


def _said_by_subagents(form: Form) -> list[Json]:
    return [
        message
        for message in form.messages
        if message["type"] == "assistant" and message["parent_tool_use_id"] is not None
    ]


def thoughts_are_asked_alike(form: Form, _: Scenario) -> None:
    for request in form.requests:
        if request.get("thinking", {}).get("display") == "omitted":
            request["thinking"] = {**request["thinking"], "display": "updates"}


def own_words(form: Form, scenario: Scenario) -> None:
    """Put our words, and our keys, in for what becomes of a call."""
    for message in form.messages:
        told = message.get("tool_use_result")
        if isinstance(told, dict) and {"agentId", "toolsUsed"} <= {*told["keys"]}:
            is_quiet = scenario.name == "agent_nested"  # its subagent used no tool of theirs
            if {*told["keys"]} != {*_OUR_KEYS, *_THEIRS} - ({"toolStats"} if is_quiet else set()):
                raise ValueError("the reference tells something else")
            message["tool_use_result"] = {"keys": sorted(_OUR_KEYS)}
        if scenario.name == "agent_error":
            _put_failure(message)
    asked = [m for request in form.requests for m in request["messages"]]
    for message in asked if scenario.name == "agent_error" else ():
        _put_failure({"message": message})


def _put_failure(message: Json) -> None:
    failed = Like(re.escape(_API_ERROR) + ".+", f"{_API_ERROR}it was not there at all.")
    if message.get("tool_use_result") == _LONG:
        message["tool_use_result"] = Like(f"Error: {failed.pattern}", f"Error: {failed.example}")
    if message.get("summary") == _LONG:
        message["summary"] = failed
    for block in message.get("message", {}).get("content", ()):
        if block["type"] == "tool_result":
            if block["content"] != _LONG:
                raise ValueError("another failure")
            block["content"] = failed


def runs_end_with_their_main_thread(form: Form, _: Scenario) -> None:
    """Put a result that was held back for subagents in the background behind its run's last words.

    It has the sums of that moment: of the recordings' responses each has cost the same.
    """
    results = [m for m in form.messages if m["type"] == "result"]
    if not in_background(form.messages) or index_of(form.messages, results[1]) != (
        index_of(form.messages, results[0]) + 1
    ):
        return
    held, last = results[0], results[-1]
    if held["total_cost_usd"] != last["total_cost_usd"] or held["modelUsage"] != last["modelUsage"]:
        raise ValueError("the results were not held back")
    main = [m for m in form.messages if m["type"] == "assistant" and not m["parent_tool_use_id"]]
    ends = main[held["num_turns"] - 1]
    del form.messages[index_of(form.messages, held)]
    form.messages.insert(index_of(form.messages, ends) + 1, held)
    if held["subagent_stats"] != last["subagent_stats"]:
        raise ValueError("the results were not held back")
    held["subagent_stats"] = {**held["subagent_stats"], "completed": 0}
    # Of the subagent's responses the first had come by then, and the next run's had not.
    late = len({m["message"]["id"] for m in _said_by_subagents(form)}) - 1 + last["num_turns"]
    for _number in range(late):
        spent = {name: -tokens for name, tokens in USAGE.items()}
        cost_usd = USAGE["input_tokens"] * INPUT_TOKEN_USD
        cost_usd += USAGE["output_tokens"] * OUTPUT_TOKEN_USD
        add_spend([held], 0, MODEL, spent, -cost_usd)


def budgets_end_subagents(form: Form, scenario: Scenario) -> None:
    """Put in how a subagent ends at the run's budget: first its call, then its task, then it."""
    if scenario.name != "agent_budget":
        return
    outer, inner, result = form.messages[-3:]
    init = form.messages[0]
    parent = {"parent_tool_use_id": outer["message"]["content"][0]["tool_use_id"]}
    begun = next(m for m in form.messages if m.get("subtype") == "task_started")
    whose = {
        "agent_id": begun["task_id"],
        "subagent_type": begun["subagent_type"],
        "task_description": begun["description"],
    }
    inner |= {**parent, **whose, "keys": sorted({*inner["keys"], *OF_SUBAGENTS})}
    outer["message"]["content"][0]["content"] = _SPENT
    accepted = {"decision": "accept", "source": "config", "reason_type": "rule"}
    outer |= {
        "tool_use_result": f"Error: {_SPENT}",
        "tool_result_meta": [{"id": parent["parent_tool_use_id"], "permission_decision": accepted}],
        "keys": sorted({*outer["keys"], "tool_result_meta"}),
    }
    task = {"type": "system", "session_id": init["session_id"], "task_id": "task-1"}
    keys = ["run_id", "session_id", "subtype", "type", "uuid"]
    updated = {**task, "subtype": "task_updated", "patch": {"status": "killed"}, "keys": keys}
    ended = {
        **task,
        "subtype": "task_notification",
        "tool_use_id": parent["parent_tool_use_id"],
        "status": "stopped",
        "summary": _SPENT,
        "keys": sorted([*keys, "output_file", "tool_use_id"]),
    }
    form.messages[-3:-1] = [inner, updated, ended, outer]
    stats = result["subagent_stats"]
    if stats["killed"]["system"] or any(stats["killed"].values()) or stats["completed"]:
        raise ValueError("the reference counts its end")
    result["subagent_stats"] = {**stats, "killed": {**stats["killed"], "system": 1}}
