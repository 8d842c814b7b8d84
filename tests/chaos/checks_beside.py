"""Checks of subagents in the background: each has a run, and its end is told once, after it."""

import json
from collections.abc import Iterator

from tests.chaos.evidence import Evidence, Record

_STOPPED = frozenset({"cancelled", "superseded"})


def told_once(found: Evidence) -> Iterator[str]:
    """Each has one beginning and one end in the log, which comes after its run's and agrees with it."""
    for id_, run in found.children.items():
        what = f"run {id_} of subagent {_agent_of(run)} of {run['session_id']}"
        if run["is_untold"]:
            yield f"{what} is untold"
        begun = _notes(found, run, "task_started")
        ends = _notes(found, run, "task_notification")
        if (len(begun), len(ends)) != (1, 1):
            yield f"{what}: begun at {[seq for seq, _ in begun]}, told at {[seq for seq, _ in ends]}"
            continue
        seq, status = ends[0]
        if run["last_seq"] is None or seq <= run["last_seq"]:
            yield f"{what} is told at {seq}, but ended at {run['last_seq']}"
        if (run["end_reason"] in _STOPPED) != (status == "stopped"):
            yield f"{what} ended as {run['end_reason']}, but is told as {status}"
        if found.runs[run["parent_run_id"]]["session_id"] != run["session_id"]:
            yield f"{what} has a parent in another session"


def waited_for(found: Evidence) -> Iterator[str]:
    """A run that waits for its subagents and came to its own end has heard of them all."""
    for id_, run in found.children.items():
        parent = found.runs[run["parent_run_id"]]
        waits = json.loads(parent["options"]).get("wait_for_subagents")
        if waits and parent["end_reason"] == "completed":
            ends = _notes(found, run, "task_notification")
            if not all(seq < parent["last_seq"] for seq, _ in ends):
                yield f"run {parent['id']} ended at {parent['last_seq']}, subagent's {id_} is told at {ends}"


def _notes(found: Evidence, run: Record, subtype: str) -> list[tuple[int, str | None]]:
    """Give seq and status of what the session's own log says of a subagent."""
    agent_id = _agent_of(run)
    return [
        (row["seq"], message.get("status"))
        for row, message in found.messages.get(run["session_id"], [])
        if row["run_id"] and message.get("subtype") == subtype and message["task_id"] == agent_id
    ]


def _agent_of(run: Record) -> str:
    return str(json.loads(run["launched"])["agent_id"])
