"""The tool step: prepare, execute, finalize each call; hand results over as they finish.

Neighbouring read-only calls run together, all others alone and in order (decisions B10). Calls
run as tasks of a `Calls` object, which hands results over in a queue, so that nothing is yielded
inside a task group (PEP 789). Closing the step stops its tasks and waits for them.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal

from app.agent.audit import audit_note
from app.agent.changes import untold, with_current_options
from app.agent.draft import BRIEFING
from app.agent.effects import Effects
from app.agent.events import budget_warnings, files_changed
from app.agent.finish_step import interrupted, plain_usd
from app.agent.hook_memory import hook_facts
from app.agent.hook_points import hooked, with_hook
from app.agent.offer import on_offer, unsent_hint
from app.agent.results import LOST_TEXT, note_entry, result_entry
from app.agent.state import Advance, LoopState
from app.agent.structured import OUTPUT_FACT
from app.agent.task_notes import task_started, task_stopped
from app.agent.tool_hooks import CallHooks
from app.domain.blocks import ToolUseBlock
from app.domain.hooks import HookOutcome
from app.domain.journal import Batch, Entry
from app.domain.messages import PermissionDeniedMessage
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolResult, ToolSpec
from app.errors import Interrupted, Parked
from app.permissions.decision import Allow, Author, Deny, Lost

MAX_PARALLEL_CALLS = 16
REFUSAL_TEXT = "This call was not made: the response that asked for it ended as a refusal."
BUDGET_TEXT = (
    "This call was not made: the run's budget of ${budget} is spent. "
    "A run after it has a budget of its own."
)


async def run_tools(
    calls: Sequence[ToolUseBlock], state: LoopState, effects: Effects
) -> AsyncGenerator[Advance]:
    """Run the open calls of a response; yield results that are ready, together.

    Raises `Parked` once all results that there are have been taken.
    """
    for index, group in enumerate(_groups(calls, effects)):
        if index:  # what stands behind open calls has certainly not begun
            state = await with_current_options(replace(state, unsure=frozenset()), effects)
        effects.side.allow(state.budget_left_usd)
        running = Calls(state, effects)
        effects.desk.expects(len(group))
        running.start(group)
        try:
            while done := await running.finished():
                advance = _settled(done, state, effects)
                yield advance
                state = advance.state
                effects.desk.expects(running.open)
        except Interrupted as end:
            await running.stop()
            if rows := effects.side.settle():
                advance = state.after(Batch(ledger=rows))
                yield advance
                state = advance.state
            denied = replace(state, denials=(*state.denials, end.denial))
            ended = interrupted(denied, effects)
            entries = tuple(_with_audit(entry, end.audit) for entry in ended.entries)
            yield denied.after(replace(ended, entries=entries))
            return
        finally:
            await running.stop()


async def refuse_tools(
    calls: Sequence[ToolUseBlock],
    why: Literal["budget", "refusal"],
    state: LoopState,
    effects: Effects,
) -> AsyncGenerator[Advance]:
    """Close the open calls with an error result that says why (decisions B8)."""
    budget = plain_usd(state.run.options.max_budget_usd or Decimal(0))
    text = REFUSAL_TEXT if why == "refusal" else BUDGET_TEXT.replace("{budget}", budget)
    result = ToolResult(text, is_error=True)
    refused = tuple(result_entry(call.id, result, state, effects) for call in calls)
    yield state.after(Batch(refused))


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a call."""

    entries: tuple[Entry, ...] = ()
    """Its result, behind what is told before it."""
    is_deferred: bool = False
    """Whether a hook left it for a later run: it has no result."""
    call_id: str = ""


def _settled(done: Sequence[Done], state: LoopState, effects: Effects) -> Advance:
    entries = tuple(entry for each in done for entry in each.entries)
    deferred = [each.call_id for each in done if each.is_deferred]
    rows = effects.side.settle()
    changed = files_changed(entries, state, effects.tools)
    batch = Batch(entries, rows, events=(*budget_warnings(rows, state), *changed))
    return hooked(batch, hook_facts(deferred=deferred), state) if deferred else state.after(batch)


@dataclass(slots=True)
class Calls:
    """Owns the tasks of calls that run together."""

    state: LoopState
    effects: Effects
    _tasks: list[asyncio.Task[Done]] = field(default_factory=list)
    _done: asyncio.Queue[asyncio.Task[Done]] = field(default_factory=asyncio.Queue)
    open: int = 0
    """Calls whose entries nobody has taken."""
    _end: Parked | Interrupted | None = None
    """What ends the step, once what is ready is taken."""

    def start(self, calls: Iterable[ToolUseBlock]) -> None:
        """Start a task for each call."""
        slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)
        for call in calls:
            task = asyncio.create_task(self._run(call, slots))
            task.add_done_callback(self._done.put_nowait)
            self._tasks.append(task)
            self.open += 1

    async def finished(self) -> tuple[Done, ...]:
        """Wait for a call's end; give all that are ready, in completion order. Empty at the end.

        Raises what a call raised: a gate or a toolbox that broke ends the step, it never hangs.
        """
        while self.open and not isinstance(self._end, Interrupted):
            done = [await self._done.get()]
            while not self._done.empty():
                done.append(self._done.get_nowait())
            self.open -= len(done)
            if ended := tuple(each for task in done for each in self._ended(task)):
                return ended
        if self._end is not None:
            raise self._end
        return ()

    def _ended(self, task: asyncio.Task[Done]) -> tuple[Done, ...]:
        try:
            return (task.result(),)
        except (Parked, Interrupted) as end:
            self._end = end
            return ()

    async def stop(self) -> None:
        """Cancel what still runs and wait until it is gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, block: ToolUseBlock, slots: asyncio.Semaphore) -> Done:
        async with slots:
            return await carry_out(block, self.state, self.effects)


async def carry_out(block: ToolUseBlock, state: LoopState, effects: Effects) -> Done:
    """Prepare, execute and finalize one call. A call that may not run becomes a result too."""
    call = ToolCall(block.id, block.name, block.input)
    if state.is_output(block):
        return Done((await _output(call, state, effects),))
    spec = effects.tools.spec(call.name)
    invalid = effects.tools.invalid(call)
    if spec is None or invalid is not None:
        refused = _hinted(invalid, spec, state, effects) if invalid else _unknown(call)
        return Done((result_entry(call.id, refused, state, effects),))
    may_have_run = call.id in state.unsure
    hooks = CallHooks(state, effects)
    heard = await hooks.before(call)
    if heard.updated_input is not None:
        call = replace(call, input=heard.updated_input)
    if (stopped := _stopped(call, spec, heard, hooks)) is not None:
        return stopped
    scene = Scene(state.memory.cwd, heard.verdict, may_have_run)
    decision = await effects.gate.check(call, spec, scene)
    if isinstance(decision, Deny):
        *before, denied = _denied(call, decision, state, effects)
        return _told(hooks, denied, before=before)
    if isinstance(decision, Lost) or (
        may_have_run and not spec.can_repeat and not decision.is_first
    ):
        return _told(hooks, _lost(call, state, effects))
    if decision.updated_input is not None:
        call = replace(call, input=decision.updated_input)
    changed = untold(await with_current_options(state, effects), effects)
    began_s = effects.clock.monotonic()
    given = await effects.tools.call(call, state.memory)
    result = await hooks.after(call, spec, given, began_s)
    news = await effects.place.near(result.facts.files, state.briefing)
    facts = {BRIEFING: news.to_json()} if news else None
    told = result_entry(call.id, result, state, effects, decision=decision, facts=facts)
    return _told(
        hooks,
        _audited(told, call, decision),
        before=(*changed, *_told_of_tasks(result, call, state, effects)),
        after=[note_entry(text, state, effects, is_synthetic=True) for text in result.notes],
    )


def _stopped(call: ToolCall, spec: ToolSpec, heard: HookOutcome, hooks: CallHooks) -> Done | None:
    """Give what comes of a call that hooks do not let be decided; None: it is."""
    state, effects = hooks.state, hooks.effects
    is_denied = heard.verdict is not None and heard.verdict.decision == "deny"
    is_kept_back = is_denied or heard.defers or heard.closed is not None
    if is_kept_back and call.id in state.unsure and not spec.can_repeat:
        # What hooks say now is no proof that it did not run before.
        return _told(hooks, _lost(call, state, effects))
    if heard.closed is not None:
        by = Author("hook", heard.closed)
        told = result_entry(call.id, _closed(call, heard.closed), state, effects)
        return _told(hooks, _audited(told, call, Deny("hook", heard.closed, by, source="hook")))
    if heard.defers:
        return Done(tuple(hooks.entries), is_deferred=True, call_id=call.id)
    if heard.updated_input is None or (invalid := effects.tools.invalid(call)) is None:
        return None
    return _told(hooks, result_entry(call.id, invalid, state, effects))


def _told(
    hooks: CallHooks, result: Entry, *, before: Sequence[Entry] = (), after: Sequence[Entry] = ()
) -> Done:
    """Give what came of a call, with what hooks said around it."""
    return Done((*hooks.entries, *before, with_hook(result, hooks.facts), *after))


def _lost(call: ToolCall, state: LoopState, effects: Effects) -> Entry:
    return result_entry(call.id, ToolResult(LOST_TEXT, is_error=True), state, effects)


def _closed(call: ToolCall, why: str) -> ToolResult:
    text = (
        f"PreToolUse:{call.name} hook error: {why} A hook has to agree before this call is made, "
        "so it was not made."
    )
    return ToolResult(text, is_error=True)


async def _output(call: ToolCall, state: LoopState, effects: Effects) -> Entry:
    """Take the run's output in, or say what is wrong with it. It needs no permission."""
    result = await effects.tools.call(call, state.memory)
    facts = {OUTPUT_FACT: "failed" if result.is_error else "valid"}
    return result_entry(call.id, result, state, effects, decision=Allow(None), facts=facts)


def _with_audit(entry: Entry, note: Mapping[str, Any]) -> Entry:
    """Put a decision with the entry that answers its call."""
    meta = getattr(entry.message, "tool_result_meta", None) or [{}]
    is_answer = meta[0].get("id") == note["tool_use_id"]
    return replace(entry, audit=note) if is_answer else entry


def _audited(entry: Entry, call: ToolCall, decision: Allow | Deny) -> Entry:
    return replace(entry, audit=audit_note(call, decision))


def _told_of_tasks(
    result: ToolResult, call: ToolCall, state: LoopState, effects: Effects
) -> tuple[Entry, ...]:
    started = task_started(result.started, call.id, state, effects) if result.started else ()
    stopped = task_stopped(result.stopped, state, effects.tasks, effects) if result.stopped else ()
    return (*started, *stopped)


def _groups(calls: Sequence[ToolUseBlock], effects: Effects) -> Iterable[tuple[ToolUseBlock, ...]]:
    def is_read_only(call: ToolUseBlock) -> bool:
        spec = effects.tools.spec(call.name)
        return spec is not None and spec.read_only

    for together, group in groupby(calls, is_read_only):
        if together:
            yield tuple(group)
        else:
            yield from ((call,) for call in group)


def _hinted(
    invalid: ToolResult, spec: ToolSpec | None, state: LoopState, effects: Effects
) -> ToolResult:
    """Say how to get a schema that the model has not seen."""
    has_search = effects.models.abilities(state.model).tool_search
    offered = on_offer(effects.tools.specs(), has_search=has_search)
    hint = unsent_hint(spec, state.memory, offered) if spec else ""
    if not hint or not isinstance(invalid.content, str):
        return invalid
    end = "</tool_use_error>"
    return replace(invalid, content=f"{invalid.content.removesuffix(end)}{hint}{end}")


def _unknown(call: ToolCall) -> ToolResult:
    text = f"<tool_use_error>Error: No such tool available: {call.name}</tool_use_error>"
    return ToolResult(text, is_error=True)


def _denied(
    call: ToolCall, decision: Deny, state: LoopState, effects: Effects
) -> tuple[Entry, ...]:
    denial = {
        "tool_name": call.name,
        "tool_use_id": call.id,
        "tool_input": dict(call.input),
    }
    if decision.interrupts:
        raise Interrupted(denial, audit_note(call, decision))
    result = ToolResult(decision.message, is_error=True)
    told = result_entry(
        call.id, result, state, effects, decision=decision, facts={"denial": denial}
    )
    told = _audited(told, call, decision)
    if not decision.is_announced:
        return (told,)
    notice = PermissionDeniedMessage(
        session_id=state.run.session_id,
        uuid=effects.clock.uuid(),
        tool_name=call.name,
        tool_use_id=call.id,
        message=decision.message,
        decision_reason_type=decision.reason,
    )
    return (Entry.of(notice), told)
