"""The tool step: prepare, execute, finalize each call; hand over what it makes durable as it comes.

Neighbouring read-only calls run together, so do neighbouring subagents; all others run alone and in
order (decisions B10). Closing the step stops its calls and waits for them.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal

from app.agent.audit import audit_note, with_audit
from app.agent.broken_off import interrupted
from app.agent.calls import Calls, Done
from app.agent.changes import untold, with_current_options
from app.agent.draft import BRIEFING
from app.agent.effects import Effects
from app.agent.events import budget_warnings, files_changed
from app.agent.hook_memory import hook_facts
from app.agent.hook_points import hooked, with_hook
from app.agent.launch import BUDGET_TEXT as SPENT_TEXT
from app.agent.launch import forked, is_too_deep
from app.agent.narrowed import no_such_tool
from app.agent.offer import on_offer, unsent_hint
from app.agent.result_batch import denial_of, plain_usd
from app.agent.results import LOST_TEXT, note_entry, result_entry
from app.agent.state import Advance, LoopState
from app.agent.structured import OUTPUT_FACT
from app.agent.subagents import Drive, Spawn, Spawned, Tree
from app.agent.task_notes import task_started, task_stopped
from app.agent.thread_facts import REFUSED
from app.agent.thread_rows import threads_killed
from app.agent.tool_hooks import CallHooks
from app.domain.blocks import ToolUseBlock
from app.domain.hook_outcome import HookOutcome
from app.domain.journal import Batch, Entry, ServiceEvent, joined
from app.domain.messages import PermissionDeniedMessage
from app.domain.permissions import Scene
from app.domain.tools import ToolCall, ToolResult, ToolSpec
from app.errors import Interrupted
from app.permissions.decision import Allow, Author, Deny, Lost

NOT_LATER_TEXT = "A hook wants this call to wait for a later run; a subagent's cannot."
REFUSAL_TEXT = "This call was not made: the response that asked for it ended as a refusal."
BUDGET_TEXT = (
    "This call was not made: the run's budget of ${budget} is spent. "
    "A run after it has a budget of its own."
)

_NOTHING = Batch()


async def run_tools(
    calls: Sequence[ToolUseBlock], state: LoopState, effects: Effects, drive: Drive
) -> AsyncGenerator[Advance]:
    """Run the open calls of a response; yield what is ready, together. `drive` drives subagents.

    Raises `Parked` once all results that there are have been taken.
    """
    tree = effects.tree or Tree.of(state, effects, drive)
    for index, group in enumerate(_groups(calls, effects)):
        if index:  # what stands behind open calls has certainly not begun
            state = await with_current_options(replace(state, unsure=frozenset()), effects)
        effects.side.allow(state.budget_left_usd)
        running = Calls(state, effects, tree, carry_out)
        running.start(group)
        tree.expects(state, running.under_way)
        try:
            while done := await running.ready():
                advance = _settled(done, state, effects)
                yield advance
                state = advance.state
                tree.expects(state, running.under_way)
                running.stored()
        except Interrupted as end:
            await running.stop()
            if state.run.thread is not None:
                raise  # it ends the whole run
            if rows := effects.side.settle():
                advance = state.after(Batch(ledger=rows))
                yield advance
                state = advance.state
            denied = replace(state, denials=(*state.denials, end.denial))
            ended = interrupted(denied, effects, asides=effects.agents.partials())
            yield denied.after(replace(ended, entries=with_audit(ended.entries, end.audit)))
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
    killed = tuple(threads_killed(calls, state, effects))
    refused = (_refused(call, text, why, state, effects) for call in calls)
    yield state.after(Batch((*killed, *refused)))


def _refused(
    call: ToolUseBlock,
    text: str,
    why: Literal["budget", "refusal"],
    state: LoopState,
    effects: Effects,
) -> Entry:
    spec = effects.tools.spec(call.name)
    facts = None
    if why == "budget" and spec is not None and spec.agents and call.id not in state.threads:
        text, facts = f"{SPENT_TEXT}. {text}", {REFUSED: "budget"}
    return result_entry(call.id, ToolResult(text, is_error=True), state, effects, facts=facts)


def _settled(done: Sequence[Done], state: LoopState, effects: Effects) -> Advance:
    batch = joined([each.batch for each in done])
    deferred = [each.call_id for each in done if each.is_deferred]
    rows = effects.side.settle()
    if rows:
        told = (*batch.events, *budget_warnings(rows, state))
        batch = replace(batch, ledger=(*batch.ledger, *rows), events=told)
    return hooked(batch, hook_facts(deferred=deferred), state) if deferred else state.after(batch)


async def carry_out(block: ToolUseBlock, calls: Calls) -> Done:
    """Prepare, execute and finalize one call. A call that may not run becomes a result too."""
    state, effects = calls.state, calls.effects
    asker = state.run.thread
    by = (asker.call_id, asker.agent_id) if asker else ()
    call = ToolCall(block.id, block.name, block.input, *by)
    if state.is_output(block):
        return Done(Batch((await _output(call, state, effects),)))
    spec = effects.tools.spec(call.name)
    invalid = effects.tools.invalid(call)
    if spec is None or invalid is not None:
        refused = _hinted(invalid, spec, state, effects) if invalid else no_such_tool(call)
        limit = {REFUSED: "depth_limit"} if is_too_deep(call, state, effects) else None
        return Done(Batch((result_entry(call.id, refused, state, effects, facts=limit),)))
    if call.name != spec.name:  # a model may use an older name; rules and hooks do not
        call = replace(call, name=spec.name)
    may_have_run = call.id in state.unsure and await _may_have_run(call, spec, state, effects)
    hooks = CallHooks(state, effects, calls.hand_over)
    heard = await hooks.before(call)
    if heard.updated_input is not None:
        call = replace(call, input=heard.updated_input)
    if (stopped := _stopped(call, spec, heard, hooks, may_have_run)) is not None:
        return stopped
    mode = state.run.options.permission_mode if state.run.thread else None
    scene = Scene(state.memory.cwd, heard.verdict, may_have_run, mode, _granted(state))
    decision = await effects.gate.check(call, spec, scene, hooks.beside)
    if isinstance(decision, Deny):
        *before, denied = _denied(call, decision, state, effects)
        return _told(hooks, denied, before=before)
    if isinstance(decision, Lost) or (
        may_have_run and not spec.can_repeat and not decision.is_first
    ):
        return _told(hooks, _lost(call, state, effects))
    if decision.updated_input is not None:
        call = replace(call, input=decision.updated_input)
    changed = await _begin(call, spec, state, effects)
    began_s = effects.clock.monotonic()
    spawned = await _made(call, spec, calls)
    given = spawned.result
    if given.is_error:
        given = _hinted(given, spec, state, effects)
    result = await hooks.after(call, spec, given, began_s)
    news = await effects.place.near(result.facts.files, state.briefing)
    facts: dict[str, Any] = {BRIEFING: news.to_json()} if news else {}
    facts |= {REFUSED: spawned.limit} if spawned.limit else {}
    note = audit_note(call, decision)
    told = result_entry(call.id, result, state, effects, decision=decision, facts=facts, audit=note)
    of_tasks = _told_of_tasks(result, call, state, effects)
    done = _told(
        hooks,
        told,
        before=(*changed, *of_tasks.entries),
        after=[note_entry(text, state, effects, is_synthetic=True) for text in result.notes],
        told_runs=of_tasks.told,
        events=files_changed(call, spec, result),
    )
    return done if spawned.batch is None else Done(joined((spawned.batch, done.batch)))


async def _may_have_run(call: ToolCall, spec: ToolSpec, state: LoopState, effects: Effects) -> bool:
    """Say whether an attempt that was lost may have begun a call of which that is unsure."""
    if spec.can_repeat or not state.responses:
        return True
    return await effects.desk.may_have_begun(call.id)


async def _begin(
    call: ToolCall, spec: ToolSpec, state: LoopState, effects: Effects
) -> Sequence[Entry]:
    """Note that a call begins; give what readers are to be told of the run's options before it."""
    if not spec.can_repeat:
        await effects.desk.begins(call.id)
    return untold(await with_current_options(state, effects), effects)


async def _made(call: ToolCall, spec: ToolSpec, calls: Calls) -> Spawned:
    """Make a call: by its tool, or by a subagent, which a tool may ask for too."""
    state, effects = calls.state, calls.effects
    facts: Mapping[str, Any] = {}
    if call.id in state.threads:
        call = replace(call, input={"prompt": "", **call.input})  # that of a fork is not known here
    elif not spec.agents:
        given = await effects.tools.call(call, state.memory)
        if given.fork is None:
            return Spawned(result=given)
        call, facts = forked(call, given.fork)
    return await Spawn(call, state, effects, calls.tree, calls.hand_over, facts).run()


def _stopped(
    call: ToolCall, spec: ToolSpec, heard: HookOutcome, hooks: CallHooks, may_have_run: bool
) -> Done | None:
    """Give what comes of a call that hooks do not let be decided; None: it is."""
    state, effects = hooks.state, hooks.effects
    is_denied = heard.verdict is not None and heard.verdict.decision == "deny"
    is_kept_back = is_denied or heard.defers or heard.closed is not None
    if is_kept_back and may_have_run and not spec.can_repeat:
        # What hooks say now is no proof that it did not run before.
        return _told(hooks, _lost(call, state, effects))
    if heard.closed is not None:
        by = Author("hook", heard.closed)
        note = audit_note(call, Deny("hook", heard.closed, by, source="hook"))
        told = result_entry(call.id, _closed(call, heard.closed), state, effects, audit=note)
        return _told(hooks, told)
    if heard.defers and state.run.thread is not None:
        told = result_entry(call.id, ToolResult(NOT_LATER_TEXT, is_error=True), state, effects)
        return _told(hooks, told)
    if heard.defers:
        return Done(Batch(tuple(hooks.entries)), is_deferred=True, call_id=call.id)
    if heard.updated_input is None or (invalid := effects.tools.invalid(call)) is None:
        return None
    return _told(hooks, result_entry(call.id, invalid, state, effects))


def _told(
    hooks: CallHooks,
    result: Entry,
    *,
    before: Sequence[Entry] = (),
    after: Sequence[Entry] = (),
    told_runs: tuple[str, ...] = (),
    events: tuple[ServiceEvent, ...] = (),
) -> Done:
    """Give what came of a call, with what hooks said around it."""
    entries = (*hooks.entries, *before, with_hook(result, hooks.facts), *after)
    return Done(Batch(entries, events=events, told=told_runs))


def _lost(call: ToolCall, state: LoopState, effects: Effects) -> Entry:
    return result_entry(call.id, ToolResult(LOST_TEXT, is_error=True), state, effects)


def _closed(call: ToolCall, why: str) -> ToolResult:
    text = (
        f"PreToolUse:{call.name} hook error: {why} A hook has to agree before this call is made, "
        "so it was not made."
    )
    return ToolResult(text, is_error=True)


def _granted(state: LoopState) -> tuple[str, ...]:
    """Give the rules that skills brought which this conversation has loaded."""
    if not state.memory.granted:
        return ()
    return tuple(rule for rules in state.memory.granted.values() for rule in rules)


async def _output(call: ToolCall, state: LoopState, effects: Effects) -> Entry:
    """Take the run's output in, or say what is wrong with it. It needs no permission."""
    result = await effects.tools.call(call, state.memory)
    facts = {OUTPUT_FACT: "failed" if result.is_error else "valid"}
    return result_entry(call.id, result, state, effects, decision=Allow(None), facts=facts)


def _told_of_tasks(result: ToolResult, call: ToolCall, state: LoopState, effects: Effects) -> Batch:
    if result.stopped:
        return task_stopped(result.stopped, state, effects.tasks, effects)
    if result.started:
        return Batch(task_started(result.started, call.id, state, effects))
    return _NOTHING


def _groups(calls: Sequence[ToolUseBlock], effects: Effects) -> Iterable[tuple[ToolUseBlock, ...]]:
    for together, group in groupby(calls, lambda call: _kind(effects.tools.spec(call.name))):
        if together:
            yield tuple(group)
        else:
            yield from ((call,) for call in group)


def _kind(spec: ToolSpec | None) -> Literal["reads", "agents"] | None:
    """Give with which of its neighbours a call of a tool runs together; None: with none."""
    if spec is not None and spec.agents:
        return "agents"
    is_shared = spec is not None and spec.read_only and not spec.may_fork
    return "reads" if is_shared else None


def _hinted(
    failed: ToolResult, spec: ToolSpec | None, state: LoopState, effects: Effects
) -> ToolResult:
    """Say how to get a schema that the model has not seen, where a call of the tool failed."""
    has_search = effects.models.abilities(state.model).tool_search
    offered = on_offer(effects.tools.specs(), has_search=has_search)
    hint = unsent_hint(spec, state.memory, offered) if spec else ""
    if not hint or not isinstance(failed.content, str):
        return failed
    end = "</tool_use_error>" if failed.content.endswith("</tool_use_error>") else ""
    return replace(failed, content=f"{failed.content.removesuffix(end)}{hint}{end}")


def _denied(
    call: ToolCall, decision: Deny, state: LoopState, effects: Effects
) -> tuple[Entry, ...]:
    denial, note = denial_of(call), audit_note(call, decision)
    if decision.interrupts:
        raise Interrupted(denial, note)
    told = result_entry(
        call.id,
        ToolResult(decision.message, is_error=True),
        state,
        effects,
        decision=decision,
        facts={"denial": denial},
        audit=note,
    )
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
