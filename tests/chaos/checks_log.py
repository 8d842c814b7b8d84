"""Checks of the journal: dense, whole, one run after the other, each call answered once."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

from app.agent.broken_off import CUT_TEXT
from app.agent.results import LOST_TEXT
from app.domain.actions import ACTION_RESOLVED
from app.runs.cancelling import UNSTARTED
from app.store.append import CANCEL_REQUESTED
from tests.chaos.evidence import Evidence, Record
from tests.chaos.readers import Reader, fingerprint

_TOKEN = re.compile(r"echo (\S+) >> ")
BEGUN = frozenset({"run.started", "run.attempt"})
BESIDE = frozenset({"run.queued", CANCEL_REQUESTED, ACTION_RESOLVED})
"""Rows of a run that the client's request writes, while another run may be under way."""


def dense(found: Evidence) -> Iterator[str]:
    """Sequence numbers of a session are 1, 2, … up to the newest."""
    for id_, session in found.sessions.items():
        seqs = [row["seq"] for row in found.journal.get(id_, [])]
        if seqs != list(range(1, session["last_seq"] + 1)):
            gaps = [(a, b) for a, b in pairwise([0, *seqs]) if b != a + 1]
            yield f"session {id_}: last_seq {session['last_seq']}, gaps {gaps[:5]}"


def calls_answered(found: Evidence) -> Iterator[str]:
    """A call before a result message has exactly one result, after it; no result lacks a call.

    Open calls of a subagent that was stopped end with it.
    """
    for id_, messages in found.messages.items():
        asked: dict[str, int] = {}
        thread: dict[str, str | None] = {}
        stopped = {
            message["tool_use_id"]
            for _, message in messages
            if message.get("subtype") == "task_notification" and message["status"] == "stopped"
        }
        answered: Counter[str] = Counter()
        last_result = max((r["seq"] for r, m in messages if m["type"] == "result"), default=0)
        for row, message in messages:
            for block in blocks(message):
                if block["type"] == "tool_use":
                    asked[block["id"]] = row["seq"]
                    thread[block["id"]] = message["parent_tool_use_id"]
                elif block["type"] == "tool_result":
                    answered[block["tool_use_id"]] += 1
                    if block["tool_use_id"] not in asked:
                        yield f"session {id_}: a result without a call at {row['seq']}"
        for call, seq in asked.items():
            least = 0 if thread[call] in stopped else 1
            if answered[call] > 1 or (seq < last_result and answered[call] < least):
                yield f"session {id_}: call {call} at {seq} has {answered[call]} results"


def one_result(found: Evidence) -> Iterator[str]:
    """A finished run has one result, one end, no row after it; every run is finished."""
    for run in found.runs.values():
        rows = [r for r in found.journal.get(run["session_id"], []) if r["run_id"] == run["id"]]
        types = Counter(row["type"] for row in rows)
        if run["status"] != "finished":
            yield f"run {run['id']} of {run['session_id']} is {run['status']} after the quiet time"
        elif (types["result"], types["run.finished"]) != (1, 1):
            yield f"run {run['id']}: {types['result']} results, {types['run.finished']} ends"
        elif rows[-1]["type"] != "run.finished" or rows[-1]["seq"] != run["last_seq"]:
            yield f"run {run['id']}: its last row is {rows[-1]['type']}, {rows[-1]['seq']}"
        attempts = Counter(json.loads(r["body"])["attempt"] for r in rows if r["type"] in BEGUN)
        if attempts and max(attempts.values()) > 1:
            yield f"run {run['id']}: attempts were announced twice: {dict(attempts)}"
        began = sum(row["subtype"] == "init" for row in rows)
        if types["run.queued"] != 1 or types["run.started"] > 1 or began > 1:
            yield f"run {run['id']}: {dict(types)}, begun {began} times"


def apart(found: Evidence) -> Iterator[str]:
    """Runs of a session never overlap, but for its subagents': neither their rows nor their money."""
    for id_, rows in found.journal.items():
        driven = [r for r in rows if r["run_id"] and r["type"] not in BESIDE]
        driven = [r for r in driven if r["run_id"] not in found.children]
        driven = [r for r in driven if found.runs[r["run_id"]]["attempt"] > 0]
        yield from _returns(id_, "rows", driven)
    ledger: dict[str, list[Record]] = {}
    for row in found.ledger:
        if row["run_id"] not in found.children:
            ledger.setdefault(row["session_id"], []).append(row)
    for id_, entries in ledger.items():
        yield from _returns(id_, "ledger rows", entries)


def _returns(session: str, what: str, rows: list[Record]) -> Iterator[str]:
    left: set[str] = set()
    for before, after in pairwise(rows):
        if before["run_id"] != after["run_id"]:
            left.add(before["run_id"])
            if after["run_id"] in left:
                yield f"session {session}: {what} of run {after['run_id']} after another's"


def prompts_taken_once(found: Evidence) -> Iterator[str]:
    """A prompt stands in the log at most once, and once if its run succeeded."""
    said = Counter(
        (session, message["uuid"])
        for session, messages in found.messages.items()
        for row, message in messages
        if message["type"] == "user" and row["run_id"]
    )
    for prompt in found.inbox:
        times = said[prompt["session_id"], prompt["uuid"]]
        run = found.runs[prompt["run_id"]]
        if times > 1 or (times == 0 and run["result_subtype"] == "success"):
            yield f"prompt {prompt['uuid']} of run {run['id']} stands {times} times in the log"


def subagents_end_once(found: Evidence) -> Iterator[str]:
    """A subagent that began has one end; results count those that have ended until then.

    What one in the background has begun is counted with its own end. A run that was cancelled before
    it began has folded nothing, and counts as the result before it does; so does its copy in a fork. A
    fork in which no run has begun yet has not told what became of those that worked when it was made.
    """
    driven = {run["session_id"] for run in found.runs.values() if run["attempt"] > 0}
    for id_, messages in found.messages.items():
        begun: dict[str, int] = {}
        alone: set[str] = set()
        above: dict[str, str | None] = {}
        """Of those that one in the background has begun, itself or through others: that one."""
        ends: Counter[str] = Counter()
        counted = (0, 0)
        for row, message in messages:
            subtype = message.get("subtype")
            if subtype == "task_started" and message["task_type"] == "local_agent":
                task, parent = message["task_id"], message.get("parent_task_id", "")
                begun[task] = row["seq"]
                above[task] = parent if parent in alone else above.get(parent)
                if message["is_backgrounded"]:
                    alone.add(task)
            elif subtype == "task_notification":
                ends[message["task_id"]] += 1
            elif message["type"] == "result":
                if message.get("errors") != [UNSTARTED]:
                    heard = [task for task, by in above.items() if by is None or ends[by]]
                    counted = len(heard), sum(ends[task] for task in heard)
                yield from _miscounted(id_, message["subagent_stats"], *counted)
        for task, seq in begun.items():
            if ends[task] != 1 and id_ in driven:
                yield f"session {id_}: subagent {task}, begun at {seq}, has {ends[task]} ends"


def _miscounted(id_: str, told: dict[str, Any], begun: int, ended: int) -> Iterator[str]:
    counted = told["completed"] + told["failed"] + sum(told["killed"].values())
    if (told["spawned"], counted) != (begun, ended):
        yield f"session {id_}: {begun} subagents began and {ended} ended, but a result says {told}"


def effects_once(found: Evidence) -> Iterator[str]:
    """No command ran twice; what is told as done was done."""
    for id_, messages in found.messages.items():
        own = [message for row, message in messages if row["run_id"]]
        traces = Counter(found.traces.get(id_, ()))
        is_done = {
            block["tool_use_id"]: not block.get("is_error")
            for block in chain.from_iterable(map(blocks, own))
            if block["type"] == "tool_result"
        }
        calls: dict[str, list[str]] = defaultdict(list)
        for block in chain.from_iterable(map(blocks, own)):
            if block["type"] == "tool_use" and block["name"] == "Bash":
                for token in _TOKEN.findall(block["input"]["command"]):
                    calls[token].append(block["id"])
        for token, ids in calls.items():
            times = traces.pop(token, 0)
            if times > 1 or (times == 0 and any(is_done.get(call) for call in ids)):
                yield f"session {id_}: {token} of {', '.join(ids)} ran {times} times"
        if traces:
            yield f"session {id_}: effects of calls that no log has: {sorted(traces)}"


def approved_calls_run_once(found: Evidence) -> Iterator[str]:
    """An approved call ran once, a denied one never; none was lost before its answer was taken."""
    for action in found.actions:
        session, call_id = action["session_id"], action["tool_use_id"]
        own = [message for row, message in found.messages.get(session, []) if row["run_id"]]
        of_call = [
            block
            for block in chain.from_iterable(map(blocks, own))
            if call_id in {block.get("id"), block.get("tool_use_id")}
        ]
        commands = [b["input"]["command"] for b in of_call if b["type"] == "tool_use"]
        results = [b for b in of_call if b["type"] == "tool_result"]
        traces = found.traces.get(session, [])
        times = [traces.count(token) for text in commands for token in _TOKEN.findall(text)]
        is_allowed = '"allow"' in (action["answer"] or "")
        what = f"session {session}: {call_id}, action {action['id']} ({action['status']})"
        if not (is_allowed and action["used_at"]) and any(times):
            yield f"{what} ran without an approval that was taken"
        for result in results:
            if str(result["content"]) in {LOST_TEXT, CUT_TEXT} and action["used_at"] is None:
                yield f"{what} is told as lost, but had not begun"
            if is_allowed and not result.get("is_error") and set(times) != {1}:
                yield f"{what} was approved and ran {times} times"


def readers_saw_the_log(found: Evidence, readers: list[Reader]) -> Iterator[str]:
    """What a reader got over all its connections is the log, byte for byte."""
    for reader in readers:
        yield from (f"reader of {reader.session_id}: {flaw}" for flaw in reader.flaws)
        rows = found.journal.get(reader.session_id, [])
        if not reader.is_done:
            missing = sorted(reader.waits_for - reader.finished)
            yield f"reader of {reader.session_id} got {len(reader.seen)} events, not {missing}"
        sent = [row for row in rows if row["kind"] != "aside" and row["seq"] <= reader.cursor]
        if reader.seen != [(row["seq"], fingerprint(*_sent(row))) for row in sent]:
            yield f"reader of {reader.session_id}: other bytes than the log's"


def _sent(row: Record) -> tuple[str, bytes]:
    if row["kind"] == "message":
        return "message", row["body"].encode()
    return "service", f'{{"seq":{row["seq"]},{row["body"][1:]}'.encode()


def blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the content blocks of a message."""
    if message["type"] not in {"user", "assistant"}:
        return []
    content = message["message"]["content"]
    return content if isinstance(content, list) else []
