"""Subagents in the background: each is a run of its own, beside the one that began it (ADR 16).

Theory of operation. The batch with the result of its call holds all that it was launched with, so any
host can begin it, or fold its rows and go on. Its rows are those of a thread, under its own run: its
parent's fold passes over them. Its parent learns of its end as it does of a command's, by asking.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from app.agent.active import JournalRow
from app.agent.briefing import opening_blocks
from app.agent.draft import MISSING_SERVERS, Draft
from app.agent.effects import Effects, NoServers, Stamps
from app.agent.hook_points import with_hook
from app.agent.narrowed import NarrowedToolbox
from app.agent.report import report_of
from app.agent.run_info import RunInfo, Thread, memory_of, thread_of, told_first
from app.agent.state import CARRIED, LoopState
from app.agent.task_fold import OWN_RUN
from app.agent.task_notes import tasks_changed
from app.agent.thread_facts import OF_THREAD, THREAD, WISH
from app.agent.thread_rows import in_thread, inside, task_usage
from app.agent.tool_effects import Desk
from app.domain.blocks import TextBlock
from app.domain.briefing import Briefing, News
from app.domain.journal import Batch, Entry, Launch
from app.domain.mcp import Readiness, tool_name
from app.domain.messages import (
    ResultMessage,
    TaskStartedMessage,
    UserContent,
    UserMessage,
    wire_time,
)
from app.domain.options import AgentOptions
from app.domain.runs import EndReason
from app.domain.subagent_stats import Killer
from app.domain.tasks import BackgroundTask, TaskEnd
from app.domain.tools import ToolResult
from app.domain.usage import Spend

BUDGET_SPENT = "was stopped, since the run's budget is spent"
_STOPPED: Mapping[EndReason, str] = {
    "cancelled": "was stopped",
    "superseded": "was stopped",
    "deadline": "was stopped at its deadline",
    "max_budget_run": BUDGET_SPENT,
}
"""How those have ended that did not end by themselves."""
_LAUNCHED = (
    "The subagent {agent_id} ({kind}) works in the background now. You will be told when it has ended, "
    "with its report: do not wait for it, and do not do its work. Go on with what does not depend on "
    "it, or end your turn. TaskStop with its id ends it early."
)


def launch(
    prompt: str,
    facts: Mapping[str, Any],
    state: LoopState,
    stamps: Stamps,
    added: Mapping[str, Any],
    beside: Iterable[BackgroundTask],
) -> tuple[Batch, BackgroundTask, ToolResult]:
    """Begin a subagent: what tells of it and makes its run, its task, and the result of its call.

    `facts` are those of a launch, `added` says what hooks tell it, `beside` are tasks that the step
    has begun already.
    """
    thread, now = thread_of(facts), stamps.clock.now()
    run_id = f"run_0{stamps.clock.uuid().replace('-', '').upper()[:25]}"
    options = state.run.of_thread(facts).options
    launched = {
        **facts,
        "options": dict(facts["options"]),
        "prompt": prompt,
        "prompt_uuid": stamps.clock.uuid(),
        "asked_at": wire_time(now),
        "hooks": dict(added),
        "known": state.briefing.since(Briefing()).to_json(),
        "cwd": state.memory.cwd,
        "servers": {name: pin.to_json() for name, pin in state.memory.servers.items()},
    }
    task = BackgroundTask(
        thread.agent_id,
        thread.description,
        "",
        thread.call_id,
        state.run.run_id,
        "local_agent",
        thread.agent_type,
        run_id,
    )
    started = TaskStartedMessage(
        session_id=state.run.session_id,
        uuid=stamps.clock.uuid(),
        task_id=thread.agent_id,
        run_id=state.run.run_id,
        tool_use_id=thread.call_id,
        description=thread.description,
        task_type="local_agent",
        subagent_type=thread.agent_type,
        spawn_depth=thread.depth,
        prompt=prompt,
    )
    entries = (
        tasks_changed(state, stamps, also=(*beside, task)),
        Entry.of(started, {OWN_RUN: run_id, WISH: facts[WISH]}),
    )
    batch = Batch(entries, launches=(Launch(run_id, options.stored(), launched),))
    return batch, task, _result(prompt, thread, options)


def _result(prompt: str, thread: Thread, options: AgentOptions) -> ToolResult:
    text = _LAUNCHED.format(agent_id=thread.agent_id, kind=thread.agent_type)
    structured = {
        "isAsync": True,
        "status": "async_launched",
        "agentId": thread.agent_id,
        "description": thread.description,
        "resolvedModel": options.model,
        "prompt": prompt,
        "outputFile": "",
        "canReadOutputFile": False,
        "canContinueAgent": False,
    }
    return ToolResult([{"type": "text", "text": text}], structured=structured)


def begun(info: RunInfo, launched: Mapping[str, Any], spend: Spend) -> LoopState:
    """Give the state in which a subagent begins; `info` is that of its own run."""
    briefing = Briefing().plus(News.from_json(launched["known"]))
    return LoopState(
        replace(info.of_thread(launched), elapsed_ms=info.elapsed_ms),
        briefing=briefing,
        head=opening_blocks(briefing),
        memory=memory_of(launched, launched["cwd"]),
        notes=told_first(launched),
        has_started=True,
        spend=spend,
    )


def folded(rows: Iterable[JournalRow], fresh: LoopState) -> LoopState:
    """Give the state of a subagent from the rows of its run."""
    draft = Draft(fresh, CARRIED)
    for _, message, facts in rows:
        if facts and THREAD in facts:
            draft.record(message, facts[OF_THREAD])
    return LoopState(**draft.fields()).resume()


def opening(launched: Mapping[str, Any], session_id: str, servers: Readiness) -> Batch:
    """Give the row with which a subagent's run begins: its prompt, which only its transcript shows.

    The same on every host, but for required servers whose tools it was launched with and has not.
    """
    missing = [
        why
        for name, why in servers.missing.items()
        if any(tool.startswith(tool_name(name, "")) for tool in launched["tools"])
    ]
    asked = UserMessage(
        session_id=session_id,
        uuid=launched["prompt_uuid"],
        message=UserContent(content=[TextBlock(text=launched["prompt"])]),
        timestamp=launched["asked_at"],
    )
    told = Entry.of(asked, {MISSING_SERVERS: missing} if missing else None)
    return Batch((with_hook(told, launched["hooks"]),))


def stored_rows(
    batch: Batch, child: LoopState, stamps: Stamps, duration_ms: int, *, is_shown: bool
) -> Batch:
    """Give a subagent's batch as its run's rows.

    Readers see all that it says where the batch `is_shown`, but never its result.
    """
    thread = child.run.thread
    if thread is None:
        raise ValueError("the main conversation is no subagent")
    rows = in_thread(batch, child, stamps, duration_ms, is_alone=True, shows_text=is_shown)
    results = tuple(
        inside(entry, thread, shows_text=False)
        for entry in batch.entries
        if isinstance(entry.message, ResultMessage)
    )
    return replace(rows, entries=(*rows.entries, *results), outcome=batch.outcome)


def end_of(child: LoopState, end_reason: EndReason, ended_s: float, took_ms: int) -> TaskEnd:
    """Say how a subagent ended that has its result."""
    below = child.subagents.stats
    if how := _STOPPED.get(end_reason):
        killer: Killer = "user" if end_reason in {"cancelled", "superseded"} else "system"
        return TaskEnd("killed", how, ended_s, killer=killer, below=below)
    report = report_of(child, "", took_ms)
    if report.status == "completed":
        usage = task_usage(child, took_ms)
        return TaskEnd(
            "completed", "has ended", ended_s, report=report.summary, usage=usage, below=below
        )
    return TaskEnd("failed", "failed", ended_s, report=report.summary, below=below)


def own_effects(child: LoopState, effects: Effects) -> Effects:
    """Give what a subagent in the background can touch, of what was opened for its run."""
    thread = child.run.thread
    if thread is None:
        raise ValueError("the main conversation is no subagent")
    aside = effects.agents.aside(thread.call_id)
    return replace(
        effects,
        tools=NarrowedToolbox(effects.agents.tools, frozenset(thread.tools)),
        place=aside.place,
        previews=aside.previews,
        desk=StayingDesk(effects.desk),
        servers=NoServers(),
    )


class StayingDesk:
    """Takes what a client changes of a run to its gate; the subagent's own options stay."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def expects(self, calls: int) -> None:
        self._desk.expects(calls)

    async def options(self) -> AgentOptions | None:
        if (options := await self._desk.options()) is not None:
            self._desk.adopt(options)
        return None

    def adopt(self, options: AgentOptions) -> None:
        raise RuntimeError(f"a subagent adopts no {options!r}")

    async def begins(self, call_id: str) -> None:
        await self._desk.begins(call_id)

    async def may_have_begun(self, call_id: str) -> bool:
        return await self._desk.may_have_begun(call_id)
