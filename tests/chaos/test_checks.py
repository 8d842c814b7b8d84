"""The checker's own blind spots: what is right and looks odd, and what only looks right."""

from typing import Any

import pytest

from app.runs.cancelling import UNSTARTED
from tests.chaos.checks_log import subagents_end_once
from tests.chaos.evidence import Evidence, Record

_NONE: dict[str, Any] = {"completed": 0, "failed": 0, "killed": {"system": 0}}


def fork_with(result: dict[str, Any]) -> Evidence:
    """Give the evidence of a fork: a subagent begins, a result is told, and the subagent ends."""
    started = {
        "type": "system",
        "subtype": "task_started",
        "task_type": "local_agent",
        "task_id": "a",
        "is_backgrounded": True,
    }
    ended = {"type": "system", "subtype": "task_notification", "task_id": "a"}
    messages = [started, {"type": "result", **result}, ended]
    copies: list[tuple[Record, dict[str, Any]]] = [
        ({"seq": seq, "run_id": None}, each) for seq, each in enumerate(messages, 1)
    ]
    return Evidence({"s": {"id": "s"}}, {}, {}, {"s": copies}, [], [], [], {}, [], {})


@pytest.mark.parametrize(
    ("spawned", "errors", "is_right"),
    [(1, [], True), (0, [], False), (0, [UNSTARTED], True), (1, [UNSTARTED], False)],
)
def test_the_copied_result_of_a_run_that_never_began_counts_as_the_one_before_it(
    spawned: int, errors: list[str], is_right: bool
) -> None:
    told = {**_NONE, "spawned": spawned}
    found = list(subagents_end_once(fork_with({"subagent_stats": told, "errors": errors})))
    assert (not found) == is_right
