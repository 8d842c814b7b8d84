"""The comparer notices every change to a trace, and every change to what our service did."""

import copy
import json
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.traces.agreeing import agreeing_record
from tests.traces.compare import compare_forms, disagreements
from tests.traces.differences import DIFFERENCES, differences_of, expected_form
from tests.traces.fields import KEYS, MESSAGE_KEYS
from tests.traces.normal import Form, Record, form_of_record, form_of_trace, is_left_out
from tests.traces.scenario import FOLDER, read_trace, scenario_of, trace_names
from tests.traces.side_by_side import thread_of
from tests.traces.story import Line

SIGNATURE = "c2lnbmF0dXJl"
"""Of every thought of a record that agrees."""
EVERY_KEY = MESSAGE_KEYS.union(*KEYS.values())

Path = tuple[str | int, ...]
Change = tuple[str, Any]
"""What was done, in words, and the changed value."""

SAYS_NOTHING = {
    # how a trace was seen, and the reference's own product
    *("dir", "kind", "n_tools", "tools", "mcp_servers", "apiKeySource", "thinking_display"),
    *("queued_turn_count", "result_index"),
    # what differs between two runs
    *("uuid", "timestamp", "cwd", "duration_ms", "duration_api_ms", "ttft_ms"),
    *("retry_delay_ms", "request_id"),
    # ids of callbacks
    *("callback_id", "request.tool_use_id", "request_id"),
    # estimates, and ids of messages
    *(
        "new_conversation_id",
        "pre_tokens",
        "post_tokens",
        "cumulative_dropped_tokens",
        "logical_parent_uuid",
    ),
    *("head_uuid", "anchor_uuid", "tail_uuid", "uuids", "all_uuids"),
    *("run_id", "runId", "end_time", "output_file", "tasks.task_id"),
    # of subagents: our own words, an early snapshot
    *("patch.error", "usage.total_tokens"),
    # what traces do not show
    *("claude_code_version", "agents", "skills", "slash_commands", "plugins", "output_style"),
    *("model_usage_since_last_result", "message.type", "message.role", "message.stop_sequence"),
    # the provider's affair: the signature comes in a delta
    "content_block.signature",
}
"""Names whose values are not compared. Whether ours are there still is."""

FREE_SWAPS = frozenset(
    {
        # two Bash: ours keep their order (B10), whatever the reference's was
        ("max_turns_2_parallel", "tool-4", "tool-3"),
        ("cb_parallel_deny", "tool-1", "tool-2"),
        ("cb_parallel_deny", "tool-2", "tool-3"),
        # a Bash and the output after it: the same (B10)
        ("so_parallel", "tool-2", "tool-1"),
        ("par_bash_sleep", "tool-1", "tool-2"),
        ("par_bash_sleep", "tool-2", "tool-3"),
        ("par_bash_fail_first", "tool-1", "tool-2"),
    }
)
"""Neighbours whose order in the trace says nothing."""

SIDE_BY_SIDE = {"agent_fg_two": {"tool-1": 1, "task-1": 1, "tool-2": 2, "task-2": 2}}
"""Traces with subagents that run at the same time: which calls and tasks are whose. Between two of
them the order says nothing; each one's own does."""
IN_BACKGROUND = {"agent_bg": "tool-1", "agent_stop_task": "tool-1"}
"""Traces with a subagent in the background, by its call: beside what its parent does the order of what
it does says nothing."""
OF_THEIRS = "Child job. "
"""What the requests of those subagents begin with."""


@pytest.mark.parametrize("name", trace_names())
def test_a_record_that_follows_the_trace_agrees_with_it(name: str) -> None:
    lines = read_trace(name)
    assert disagreements(lines, agreeing_record(lines)) == []


@pytest.mark.parametrize("name", trace_names())
def test_every_change_to_a_trace_is_noticed(name: str) -> None:
    lines = read_trace(name)
    ours = form_of_record(agreeing_record(lines))
    changes = changes_of_trace(lines)
    unnoticed = [said for said, changed in changes if agree(expected_of(changed), ours)]
    assert unnoticed == []


@pytest.mark.parametrize("name", trace_names())
def test_every_change_to_what_we_did_is_noticed(name: str) -> None:
    lines = read_trace(name)
    expected = expected_of(lines)
    changes = changes_of_record(name, agreeing_record(lines))
    unnoticed = [said for said, changed in changes if agree(expected, form_of(changed))]
    assert unnoticed == []


def test_orders_that_say_nothing_are_just_those_listed() -> None:
    for name, first, second in FREE_SWAPS:
        lines = read_trace(name)
        results = [i for i, line in enumerate(lines) if answers(line) in (first, second)]
        swapped = exchanged(lines, *results)
        assert [answers(line) for line in lines if answers(line)] != [
            answers(line) for line in swapped if answers(line)
        ]
        assert disagreements(swapped, agreeing_record(lines)) == []


def test_each_difference_cites_a_decision_and_changes_some_trace() -> None:
    listed = (FOLDER.parent / "README.md").read_text()
    traces = [read_trace(name) for name in trace_names()]
    used = [d.says for lines in traces for d in differences_of(lines, scenario_of(lines))]
    for difference in DIFFERENCES:
        assert f"\n| {difference.cites} |" in listed, difference
        assert difference.says in used, difference


def expected_of(lines: Sequence[Line]) -> Form | None:
    """Give a trace in the form that ours should have; None when it makes no sense any more."""
    try:
        return expected_form(lines, scenario_of(lines))
    except ValueError:
        return None


def form_of(record: Record) -> Form | None:
    """Give a record in normal form; None when it makes no sense any more."""
    try:
        return form_of_record(record)
    except ValueError:
        return None


def agree(expected: Form | None, actual: Form | None) -> bool:
    if expected is None or actual is None:
        return False
    return not any(compare_forms(expected, actual))


# -- changes to a trace -----------------------------------------------------------------------


def changes_of_trace(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    name = lines[0]["scenario"]
    compared = [i for i, line in enumerate(lines) if i and sort_of(line)]
    places = one_of_each(name, lines)
    for i in compared:
        yield f"line {i + 1} deleted", [*lines[:i], *lines[i + 1 :]]
        yield f"line {i + 1} doubled", [*lines[:i], lines[i], *lines[i:]]
        for said, changed in altered(lines[i], places[i]):
            if sort_of(lines[i]) == "prompt" and "keys" in said:
                continue  # the reference's own form of a prompt
            yield f"line {i + 1}: {said}", [*lines[:i], changed, *lines[i + 1 :]]
        following = next(
            (j for j in compared if j > i and sort_of(lines[j]) == sort_of(lines[i])), 0
        )
        is_free = (name, answers(lines[i]), answers(lines[following])) in FREE_SWAPS
        is_free |= are_side_by_side(name, lines[i], lines[following])
        if following and not is_free and not are_alike(lines[i], lines[following]):
            yield f"lines {i + 1} and {following + 1} swapped", exchanged(lines, i, following)


def sort_of(line: Line) -> str:
    """Which order a line takes part in; empty if it is not compared."""
    match line:
        case {"type": "_request"}:
            return "request"
        case {"type": "_note", "event": "tool_start" | "tool_end"}:
            return "tool event"
        case {"request": {"subtype": "hook_callback"}}:
            return "hook"
        case _ if is_left_out(line):
            return ""
        case {"dir": "send"}:
            return "prompt"
    return "message"


def answers(line: Line) -> str:
    content = line["message"]["content"] if line.get("type") == "user" and "message" in line else []
    return content[0].get("tool_use_id", "") if isinstance(content, list) and content else ""


def are_alike(first: Line, second: Line) -> bool:
    """Whether two requests are the same, the reference's own reminders aside."""
    if sort_of(first) != "request":
        return first == second
    one, other = (form_of_trace([{}, line]).requests for line in (first, second))
    return one == other


def exchanged(items: Sequence[Any], i: int, j: int) -> list[Any]:
    changed = list(items)
    changed[i], changed[j] = changed[j], changed[i]
    return changed


# -- changes to a record ----------------------------------------------------------------------


def changes_of_record(name: str, record: Record) -> Iterator[tuple[str, Record]]:
    once = ids_seen_once(record)
    for said, messages in changes_of_items(name, record.messages, once):
        yield f"message {said}", replace(record, messages=messages)
    for said, requests in changes_of_items(name, record.requests, once):
        yield f"request {said}", replace(record, requests=requests)
    for said, events in changes_of_items(name, record.tool_events, once):
        yield f"tool event {said}", replace(record, tool_events=events)
    for said, told in changes_of_items(name, record.hooks, once):
        yield f"hook {said}", replace(record, hooks=told)


def changes_of_items(
    name: str, items: Sequence[Any], once: tuple[str, ...]
) -> Iterator[tuple[str, list[Any]]]:
    places = one_of_each(name, items)
    for i, item in enumerate(items):
        yield f"{i} deleted", [*items[:i], *items[i + 1 :]]
        yield f"{i} doubled", [*items[: i + 1], fresh(item), *items[i + 1 :]]
        is_free = i and (are_ties(items[i - 1], item) or are_side_by_side(name, items[i - 1], item))
        if i and item != items[i - 1] and not is_free:
            yield f"{i - 1} and {i} swapped", exchanged(items, i - 1, i)
        for said, changed in altered(item, places[i], once):
            yield f"{i}: {said}", [*items[:i], changed, *items[i + 1 :]]


def fresh(item: Any) -> Any:
    return {**item, "uuid": "another"} if isinstance(item, dict) and "uuid" in item else item


def are_ties(first: Any, second: Any) -> bool:
    """Results of read-only calls that end at the same time may come in either order."""
    quick = ["a.txt\nb.txt", "1\talpha\n2\tbeta\n3\t", "1\tbravo\n2\t"]
    both = [m["message"]["content"][0] for m in (first, second) if _has_content(m)]
    return len(both) == 2 and all(block.get("content") in quick for block in both)


def are_side_by_side(name: str, first: Any, second: Any) -> bool:
    """Messages, or requests, of two subagents that run at the same time may come in either order."""
    if name in IN_BACKGROUND:
        return is_beside(first, second, IN_BACKGROUND[name])
    whose = SIDE_BY_SIDE.get(name)
    if whose is None or not (isinstance(first, dict) and isinstance(second, dict)):
        return False
    if "messages" in first and "messages" in second:
        return all(OF_THEIRS in json.dumps(request["messages"][0]) for request in (first, second))
    told = [whose.get(thread_of(each)) for each in (first, second) if "session_id" in each]
    return None not in told and len(set(told)) == 2


def is_beside(first: Any, second: Any, call: str) -> bool:
    """Whether just one of two messages, or any of two requests, is of the call's subagent."""
    pair = (first, second)
    if all("messages" in each for each in pair):
        return any(OF_THEIRS in json.dumps(each["messages"][0]) for each in pair)
    is_of = [
        each.get("parent_tool_use_id") == call or each.get("subtype") == "task_progress"
        for each in pair
    ]
    return len(set(is_of)) == 2


def _has_content(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("message"), dict)


def ids_seen_once(record: Record) -> tuple[str, ...]:
    """Ids and signatures that stand in one place: nothing else says that they should be others."""
    ids = [m["message"]["id"] for m in record.messages if m["type"] == "assistant"]
    everything = json.dumps([record.messages, record.requests])
    # A call of a subagent that was stopped has no result.
    ids += [
        block["id"]
        for m in record.messages
        if m["type"] == "assistant" and m["parent_tool_use_id"]
        for block in m["message"]["content"]
        if block["type"] == "tool_use" and everything.count(f'"{block["id"]}"') == 1
    ]
    shown = [m["event"].get("content_block", {}).get("id") for m in record.messages if "event" in m]
    ids += [each for each in shown if each and everything.count(f'"{each}"') == 1]
    if SIGNATURE not in json.dumps(record.requests):
        ids.append(SIGNATURE)
    return tuple(each for each in ids if ids.count(each) == 1)


# -- changes to a JSON value ------------------------------------------------------------------


def one_of_each(name: str, items: Sequence[Any]) -> list[set[Path]]:
    """Choose, for each item, the parts to change: of equal ones in one place of items of a kind, one.

    A conversation stands in every later request again. The trace's name says which one it is.
    """
    found: dict[tuple[str, ...], list[tuple[int, Path]]] = {}
    for i, item in enumerate(items):
        kind = [str(item.get(key)) for key in ("type", "subtype")] if isinstance(item, dict) else []
        for path, part in walked(item, ()):
            names = [key for key in path if isinstance(key, str)]
            found.setdefault((*kind, *names, json.dumps(part)), []).append((i, path))
    seeded = random.Random(name)  # noqa: S311 - a test repeats itself
    chosen = [seeded.choice(places) for places in found.values()]
    return [{path for at, path in chosen if at == i} for i in range(len(items))]


def altered(
    value: Any, places: Collection[Path], once: tuple[str, ...] | None = None
) -> Iterator[Change]:
    """Change each leaf, drop each key and each item that says something, one at a time.

    `places`: those that are changed. `once`: ids that may change in a record; None for a line of a
    trace.
    """
    for path, leaf in walked(value, ()):
        if path not in places:
            continue
        is_leaf = not isinstance(leaf, dict | list) or not leaf
        if is_leaf and says_something(path, leaf) and leaf not in (once or ()):
            yield f"{path} altered", with_change(value, path, other(leaf))
        if once is not None or (says_something(path, leaf) and not is_reminder(leaf)):
            yield f"{path} dropped", with_change(value, path, None, is_drop=True)


def walked(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield every part of a value, with its path."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key), item
            yield from walked(item, (*path, key))


def says_something(path: Path, leaf: Any) -> bool:
    names = [part for part in path if isinstance(part, str)]
    if names[-1] == "keys":
        is_of_tool = names[-2:-1] == ["tool_use_result"]
        return isinstance(path[-1], int) and (is_of_tool or leaf in EVERY_KEY)
    if "tool_use_result" in names[:-1] or (names[-1] == "tool_use_result" and leaf == []):
        return False  # only its keys are compared, and that it is a list
    return not SAYS_NOTHING & {*names, ".".join(names[-2:])}


def is_reminder(part: Any) -> bool:
    return isinstance(part, dict) and "<reminder>" in (part.get("text"), part.get("content"))


def other(leaf: Any) -> Any:
    match leaf:
        case bool():
            return not leaf
        case int() | float():
            return leaf + 1000
        case []:
            return ["~"]
    return "~"


def with_change(value: Any, path: Path, new: Any, *, is_drop: bool = False) -> Any:
    changed = copy.deepcopy(value)
    holder = changed
    for part in path[:-1]:
        holder = holder[part]
    if is_drop:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return changed
