"""Folding a session's journal: rows become the state of a run."""

from collections.abc import Iterable
from dataclasses import replace

from app.agent.active import JournalRow, active_rows, briefing_of
from app.agent.draft import Draft
from app.agent.state import CARRIED, LoopState, RunInfo
from app.agent.thread_facts import THREAD
from app.domain.messages import ResultMessage
from app.domain.usage import Spend


def fold(
    rows: Iterable[JournalRow],
    run: RunInfo,
    *,
    spent_before: Spend,
    spend: Spend,
) -> LoopState:
    """Give the state of `run` from a session's journal rows `(run_id, message, facts)`.

    Rows come oldest first; one without a run belongs to the run before it. Rows before the tail
    that the last compaction kept say nothing and may be left out. Sums of money come from the
    ledger, not from messages.
    """
    fresh = LoopState(run)
    draft = Draft(fresh, CARRIED)
    kept, left = active_rows(list(rows))
    draft.briefing = briefing_of(left)
    current: str | None = None
    for run_id, message, facts in kept:
        # A subagent in the background is a run of its own, and part of no other one.
        if run_id not in (None, current) and not (facts and THREAD in facts):
            if isinstance(message, ResultMessage) and run_id != run.run_id:
                continue  # it was cancelled before it began, while another run was under way
            draft.enter(fresh)
            current = run_id
        draft.record(message, facts)
    if current != run.run_id:
        draft.enter(fresh)
    return replace(LoopState(**draft.fields()).resume(), spent_before=spent_before, spend=spend)
